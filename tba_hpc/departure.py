"""When a run saves and leaves before it is done: trainer 0 decides, for all ranks."""

from __future__ import annotations

from tba_hpc.distributed.trainer_exchange import TrainerExchange
from tba_hpc.distributed.trainer_group import TrainerGroup
from tba_hpc.interruption import Deadline, Interruption


class Departure:
    """Gathers who has been asked to leave: this rank or another, by a signal, or the run by the end of its job."""

    def __init__(
        self, interruption: Interruption, exchange: TrainerExchange, group: TrainerGroup, deadline: Deadline
    ) -> None:
        self._interruption = interruption
        self._exchange = exchange
        self._group = group
        self._deadline = deadline

    def reason(self, save_seconds: float) -> str | None:
        """Why to save and leave now, if the run has to. `save_seconds`: how long a save takes."""
        if self._interruption.signal:
            return f"trainer 0 received {self._interruption.signal.name}"
        if (searchers := self._exchange.interrupted).any():
            return f"a signal reached searcher {int(searchers.argmax())}"
        if self._group.interrupted():
            return "a signal reached another trainer"
        if self._deadline.has_come(save_seconds):
            return "the job is about to end"
        return None
