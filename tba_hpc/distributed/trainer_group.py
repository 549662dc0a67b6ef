"""The trainers among themselves: trainer 0 deals out each batch, all sum their gradients.

Over torch.distributed only, as MPI on trainer 0 belongs to its communication thread. Batches travel on a CPU group
(Gloo), gradients on a group of the trainers' device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tba_hpc.codec import pack, unpack
from tba_hpc.distributed.process_groups import make_group, open_store
from tba_hpc.distributed.world import LEADER, World
from tba_hpc.trajectory import SampledBatch

_STOP = -1
_HEADER, _TRAJECTORIES, _GROUPS = range(3)  # message tags


class TrainerGroup:
    """All trainers; one alone needs no communication and makes none."""

    def __init__(self, world: World, seconds: float, patience_seconds: float) -> None:
        """Collective over the trainers. `seconds` bounds a reduction, `patience_seconds` the wait for a batch."""
        assert world.trainers is not None, "searchers have no part in the trainer group"
        self.rank, self.size = world.index, world.n_trainers
        if self.size > 1:
            store = open_store(world.trainers, world.host, seconds)
            cpu = torch.device("cpu")
            self._batches = make_group(store, "batches", world.trainers, world.host, cpu, patience_seconds)
            self._gradients = make_group(store, "gradients", world.trainers, world.host, world.device, seconds)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sums a tensor over the trainers, in place."""
        if self.size > 1:
            self._gradients.allreduce([tensor]).wait()

    def send(self, step: int, shares: Sequence[SampledBatch]) -> None:
        """From trainer 0 to each other trainer its share of the batch of `step`."""
        total = sum(len(share) for share in shares)
        messages = [(rank, self._messages(step, total, shares[rank])) for rank in range(1, self.size)]
        works = [
            self._batches.send([message], rank, tag)
            for rank, per_rank in messages
            for tag, message in enumerate(per_rank)
        ]
        for work in works:
            work.wait()

    @staticmethod
    def _messages(step: int, total: int, share: SampledBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        packed = torch.from_numpy(pack(share.trajectories))
        groups = torch.from_numpy(np.stack([share.group_ids, share.recent.astype(np.int32)]))
        return torch.tensor([step, total, len(share), packed.numel()]), packed, groups

    def send_stop(self) -> None:
        """Tells the other trainers that there are no more steps."""
        for rank in range(1, self.size):
            self._batches.send([torch.tensor([_STOP, 0, 0, 0])], rank, _HEADER).wait()

    def receive(self) -> tuple[int, int, SampledBatch] | None:
        """(step, trajectories in the whole batch, this trainer's share), or None after the last step.

        Waits for trainer 0 to sample a batch, which it does once it has data."""
        header = torch.zeros(4, dtype=torch.int64)
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
        self._batches.recv([tensor], LEADER, tag).wait()
