"""The trainers among themselves: trainer 0 deals out each batch, all sum their gradients.

Over torch.distributed only, as MPI on trainer 0 belongs to its communication thread. Batches travel on a CPU group
(Gloo), gradients on a group of the trainers' device.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch.distributed import Work

from tba_hpc.codec import pack, unpack
from tba_hpc.distributed.process_groups import close_group, make_group, open_store
from tba_hpc.distributed.world import LEADER, World
from tba_hpc.trajectory import SampledBatch

_INTERRUPTED = "interrupted"  # key in the store
_STOP, _IDLE = -1, -2  # in place of a step
_HEADER, _TRAJECTORIES, _GROUPS = range(3)  # message tags
_HEARTBEAT = 0.25  # of the patience: while trainer 0 waits for data, the others hear from it about this often


class TrainerGroup:
    """All trainers; one alone needs no communication and makes none."""

    def __init__(self, world: World, seconds: float, patience_seconds: float) -> None:
        """Collective over the trainers. `seconds` bounds the start-up and each reduction, `patience_seconds` the wait
        for a sign of life from trainer 0."""
        assert world.trainers is not None, "searchers have no part in the trainer group"
        self.rank, self.size = world.index, world.n_trainers
        self._heartbeat_seconds = _HEARTBEAT * patience_seconds
        self._last_sent = time.monotonic()
        if self.size > 1:
            store = self._store = open_store(world.trainers, world.host, seconds)
            cpu = torch.device("cpu")
            self._batches = make_group(store, "batches", world.trainers, world.host, cpu, patience_seconds)
            self._gradients = make_group(store, "gradients", world.trainers, world.host, world.device, seconds)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sums a tensor over the trainers, in place."""
        if self.size > 1:
            # With NCCL this makes the current stream wait, not the CPU. Whoever uses the sum does so on that stream,
            # after it; and should it never come, NCCL's watchdog ends the process when the group's bound has passed.
            self._gradients.allreduce([tensor]).wait()

    def tell_interrupted(self) -> None:
        """Lets trainer 0 know that a signal has asked this rank to save and leave."""
        if self.size > 1:
            self._store.set(_INTERRUPTED, "")

    def interrupted(self) -> bool:
        """Whether one of the trainers has called `tell_interrupted`."""
        return self.size > 1 and self._store.check([_INTERRUPTED])

    def send(self, step: int, shares: Sequence[SampledBatch]) -> None:
        """From trainer 0 to each other trainer its share of the batch of `step`."""
        total = sum(len(share) for share in shares)
        self._send([self._messages(step, total, share) for share in shares[1:]])

    @staticmethod
    def _messages(step: int, total: int, share: SampledBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        packed = torch.from_numpy(pack(share.trajectories))
        groups = torch.from_numpy(np.stack([share.group_ids, share.recent.astype(np.int32)]))
        return torch.tensor([step, total, len(share), packed.numel()]), packed, groups

    def send_idle(self) -> None:
        """Tells the other trainers that trainer 0 still waits for data, unless they have heard from it lately. To be
        called every now and then while it waits: so nobody's patience runs out before its own, and it, who knows which
        searcher is silent, is the one to raise."""
        if time.monotonic() - self._last_sent >= self._heartbeat_seconds:
            self._send_signal(_IDLE)

    def send_stop(self) -> None:
        """Tells the other trainers that there are no more steps."""
        self._send_signal(_STOP)

    def _send_signal(self, signal: int) -> None:
        self._send([(torch.tensor([signal, 0, 0, 0]),)] * (self.size - 1))

    def _send(self, messages: Sequence[Sequence[torch.Tensor]]) -> None:
        """To each other trainer its messages, which are tagged 0, 1, …; waits until all have taken them."""
        works = [
            (rank, self._batches.send([message], rank, tag))
            for rank, per_rank in enumerate(messages, start=1)
            for tag, message in enumerate(per_rank)
        ]
        for rank, work in works:
            _finish(work, f"trainer {rank} does not take what trainer 0 sends")
        self._last_sent = time.monotonic()

    def receive(self) -> tuple[int, int, SampledBatch] | None:
        """(step, trajectories in the whole batch, this trainer's share), or None after the last step.

        Waits for trainer 0 to sample a batch, which it does once it has data; until then it sends signs of life."""
        header = torch.full((4,), _IDLE)
        while header[0] == _IDLE:
            self._receive(header, _HEADER)
        step, total, n, size = header.tolist()
        if step == _STOP:
            return None
        packed, groups = torch.empty(size, dtype=torch.uint8), torch.empty((2, n), dtype=torch.int32)
        self._receive(packed, _TRAJECTORIES)
        self._receive(groups, _GROUPS)
        group_ids, recent = groups.numpy()
        return step, total, SampledBatch(unpack(packed.numpy()), group_ids, recent.astype(bool))

    def _receive(self, tensor: torch.Tensor, tag: int) -> None:
        _finish(self._batches.recv([tensor], LEADER, tag), f"trainer {self.rank} hears nothing from trainer 0")

    def close(self) -> None:
        """Ends the groups. Collective over the trainers, after the last step."""
        if self.size > 1:
            close_group(self._batches)
            close_group(self._gradients)


def _finish(work: Work, problem: str) -> None:
    """Waits for a transfer; says what its failure means, as the transport does not."""
    try:
        work.wait()
    except RuntimeError as error:
        raise RuntimeError(f"{problem}: {error}") from error
