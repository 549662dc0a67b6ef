"""A searcher's communication thread: takes part in every round while the main thread generates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch.distributed import ProcessGroup

from tba_hpc.accuracy import Accuracy
from tba_hpc.config import DistributedConfig
from tba_hpc.distributed.abort import abort_on_error
from tba_hpc.distributed.patience import MemberPatience
from tba_hpc.distributed.process_groups import close_group
from tba_hpc.distributed.round import HEADER, Flag, RoundMember
from tba_hpc.distributed.trajectory_channel import Outbox, to_payload
from tba_hpc.distributed.weight_channel import StagedWeights
from tba_hpc.distributed.world import World, use_device


class SearcherStats:
    """What a searcher tells about itself in every header. Written by the main thread, read by the communication
    thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._header = np.zeros(1, HEADER)
        self._header["policy_version"] = -1
        self._last_batch = time.monotonic()

    def record(self, generated: int, tokens: int, busy_seconds: float) -> None:
        """One generation batch that ended now."""
        with self._lock:
            self._header["generated"] += generated
            self._header["tokens"] += tokens
            self._header["busy_seconds"] += busy_seconds
            self._last_batch = time.monotonic()

    def record_version(self, version: int) -> None:
        """Of the weights in use from now on."""
        with self._lock:
            self._header["policy_version"] = version

    def record_evaluation(self, due: int, version: int, accuracy: Accuracy) -> None:
        """Of this searcher's share of the held-out problems, as asked for with the weights of version `due`, with those
        of `version`."""
        with self._lock:
            self._header["evaluation"], self._header["evaluation_version"] = due, version
            self._header["evaluation_problems"] = accuracy.problems
            self._header["evaluation_correct"] = accuracy.correct

    def record_waiting(self, seconds: float) -> None:
        with self._lock:
            self._header["waiting_seconds"] += seconds

    def header(self, trajectories: int) -> NDArray[np.void]:
        """`[1]` of `HEADER` for a round that carries this many trajectories."""
        with self._lock:
            header = self._header.copy()
            header["idle_seconds"] = time.monotonic() - self._last_batch
        header["trajectories"] = trajectories
        return header


class SearcherExchange:
    """Runs this searcher's side of the rounds on a thread of its own, which alone calls MPI on this rank after
    start-up."""

    def __init__(
        self,
        world: World,
        staged: StagedWeights,
        fingerprint: int,
        group: ProcessGroup,
        config: DistributedConfig,
        interrupted: Callable[[], bool],
    ) -> None:
        """`interrupted`: whether a signal has asked this rank to save and leave, which the next header passes on."""
        assert world.exchange is not None, "only searchers take part in rounds"
        self.outbox = Outbox(config.pending_bytes)
        self.staged = staged
        self.stats = SearcherStats()
        self._world = world
        self._fingerprint = fingerprint
        self._group = group
        self._interrupted = interrupted
        self._seconds = config.timeout_seconds
        self._member = RoundMember(
            world.exchange, config.chunk_bytes, MemberPatience(world.exchange, config.timeout_seconds)
        )
        self._stopped = threading.Event()
        self._evaluation = self._evaluated = 0  # versions that an evaluation was asked for at, and made for
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stopped(self) -> bool:
        """Whether trainer 0 has ended the run."""
        return self._stopped.is_set()

    def evaluation_due(self, version: int) -> int | None:
        """Since which version an evaluation is due that the weights of `version` are new enough for; None if none is.
        Of several, the last: it is not due any longer then. For the main thread."""
        due = self._evaluation  # read once: the communication thread may set it any moment
        if due == self._evaluated or due > version:
            return None
        self._evaluated = due
        return due

    def join(self) -> None:
        """Waits for the thread to end after `stopped` and closes the group. Raises `TimeoutError`."""
        self._thread.join(self._seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"the communication thread did not end within {self._seconds:.0f} s")
        close_group(self._group)

    def _run(self) -> None:
        """Waits for trainer 0 to start a round; the round with the stop flag is the last."""
        with abort_on_error(self._world.comm, f"{self._world.name}, communication thread"):
            use_device(self._world.device)
            self._member.post()
            while not self._stopped.is_set():
                self._take_part()

    def _take_part(self) -> None:
        control = self._member.next_control()
        flags = Flag(int(control["flags"]))
        batch = self.outbox.take()
        header = self.stats.header(len(batch))
        header["interrupted"] = self._interrupted()
        self._member.contribute(header, to_payload(batch))
        if Flag.STOP in flags:
            self._stopped.set()
            self.outbox.close()
            self.staged.wake()
            return
        self._member.post()
        if Flag.WEIGHTS in flags:
            if control["manifest"] != self._fingerprint:
                raise ValueError("the trainer's weights no longer match the manifest compared at start-up")
            version = int(control["policy_version"])
            if Flag.EVALUATE in flags:
                self._evaluation = version
            self.staged.receive(self._group, self._member.wait, version, is_reference=Flag.RESET_REFERENCE in flags)
        self.outbox.announce_room()
