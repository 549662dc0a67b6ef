"""Trainer 0's communication thread: leads the rounds while the main thread trains."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed import ProcessGroup

from tba_hpc.config import DistributedConfig
from tba_hpc.distributed.abort import abort_on_error
from tba_hpc.distributed.patience import LeaderPatience
from tba_hpc.distributed.process_groups import close_group
from tba_hpc.distributed.round import Flag, RoundLeader
from tba_hpc.distributed.trajectory_channel import from_payloads
from tba_hpc.distributed.weight_channel import FlatWeights
from tba_hpc.distributed.world import World, use_device
from tba_hpc.trajectory import TrajectoryBatch

_HEARTBEAT = 0.25  # of the timeout: searchers hear from trainer 0 at least this often
_HEARTBEAT_SECONDS = 2.0  # and this often as long as the main thread takes what arrives: signals are to be known soon


@dataclass(frozen=True, slots=True)
class Arrival:
    """What one round brought."""

    sync: int
    """Number of the last publish begun: trajectories with the same one arrived at the same sync."""
    batches: list[TrajectoryBatch]
    """By searcher."""
    headers: NDArray[np.void]
    """`[n]` of `round.HEADER`, by searcher."""


class TrainerExchange:
    """Runs rounds on a thread of its own, which alone calls MPI on this rank after start-up: one at a time, when
    weights are to be published, when the trainer is short of data, and now and then as a sign of life."""

    def __init__(
        self, world: World, flat: FlatWeights, group: ProcessGroup, config: DistributedConfig, syncs: int
    ) -> None:
        """`syncs`: publishes of earlier attempts of the run."""
        assert world.exchange is not None, "only trainer 0 leads rounds"
        self._world = world
        self._flat = flat
        self._fingerprint = flat.manifest.fingerprint
        self._group = group
        self._seconds = config.timeout_seconds
        self._idle_seconds = config.idle_round_seconds
        self._leader = RoundLeader(
            world.exchange, config.chunk_bytes, LeaderPatience(world.exchange, config.timeout_seconds)
        )
        self._changed = threading.Condition()
        self._pending: int | None = None  # version of the weights to publish
        self._purpose = Flag(0)  # what they are for besides
        self._hungry = False
        self._stopping = False
        self._arrivals: list[Arrival] = []
        self._interrupted = np.zeros(world.n_searchers, bool)
        self._syncs = syncs
        self._sync_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def ready_to_publish(self) -> bool:
        """Whether the previous publish is complete."""
        with self._changed:
            return self._pending is None

    @property
    def sync_seconds(self) -> float:
        """Duration of the last complete sync, from the start of its round to the last byte of weights."""
        return self._sync_seconds

    @property
    def interrupted(self) -> NDArray[np.bool_]:
        """`[n]` whether a signal has asked a searcher to save and leave."""
        return self._interrupted

    def publish(
        self,
        version: int,
        named: Iterable[tuple[str, torch.Tensor]],
        reset_reference: bool = False,
        evaluate: bool = False,
    ) -> None:
        """Takes a snapshot of the weights and returns; a round then carries it to the searchers. The version is the
        number of optimizer steps that made them. `reset_reference`: the reference policy is to be the same; `evaluate`:
        the searchers are to try it on held-out problems. Only when `ready_to_publish`."""
        with self._changed:
            assert self._pending is None, "a publish is still under way"
        self._flat.copy_from(named)
        with self._changed:
            self._pending = version
            self._purpose = Flag(Flag.RESET_REFERENCE * reset_reference | Flag.EVALUATE * evaluate)
            self._changed.notify_all()

    def wait_until_published(self) -> None:
        """Waits for the publish under way. The exchange's own bounds end the job if it fails; this one is their sum."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._pending is None, 4 * self._seconds):
                raise TimeoutError(f"publishing weights took more than {4 * self._seconds:.0f} s")

    def arrivals(self) -> list[Arrival]:
        """What came since the last call. Never waits."""
        with self._changed:
            arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def wait_for_arrivals(self, seconds: float) -> list[Arrival]:
        """As `arrivals`, but runs rounds in quick succession and waits for one up to `seconds`."""
        with self._changed:
            self._hungry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._arrivals, seconds)
            self._hungry = False
        return self.arrivals()

    def stop(self) -> None:
        """Runs the last round, which tells searchers to stop, waits for the thread to end and closes the group."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(4 * self._seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"the last round took more than {4 * self._seconds:.0f} s")
        close_group(self._group)

    def _run(self) -> None:
        """Waits for a publish, a stop, hunger or the heartbeat's time, whichever comes first, and leads a round."""
        with abort_on_error(self._world.comm, f"{self._world.name}, communication thread"):
            use_device(self._world.device)
            while True:
                with self._changed:
                    self._changed.wait_for(self._something_to_do, self._heartbeat())
                    pending, stopping = self._pending, self._stopping
                if pending is not None:
                    self._sync(pending)
                elif stopping:
                    self._round(Flag.STOP)
                    return
                else:
                    self._round(Flag(0))
                    self._rest()

    def _heartbeat(self) -> float:
        """Seconds. Longer while nobody takes what arrives, such as during an evaluation: what the searchers make then
        is to stay with them, where `pending_bytes` bounds it."""
        longest = _HEARTBEAT * self._seconds
        return longest if self._arrivals else min(longest, _HEARTBEAT_SECONDS)

    def _something_to_do(self) -> bool:
        return self._pending is not None or self._hungry or self._stopping

    def _rest(self) -> None:
        """A breath between two rounds that carry no weights, cut short by a publish or a stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending is not None or self._stopping, self._idle_seconds)

    def _sync(self, version: int) -> None:
        started = time.monotonic()
        self._syncs += 1
        self._round(Flag.WEIGHTS | self._purpose, version)
        self._flat.broadcast(self._group, self._leader.wait)
        with self._changed:
            self._sync_seconds = time.monotonic() - started
            self._pending = None
            self._changed.notify_all()

    def _round(self, flags: Flag, version: int = 0) -> None:
        collected = self._leader.run(flags, version, self._fingerprint)
        arrival = Arrival(self._syncs, from_payloads(collected), collected.headers)
        with self._changed:
            self._interrupted = collected.headers["interrupted"].astype(bool)
            self._arrivals.append(arrival)
            self._changed.notify_all()
