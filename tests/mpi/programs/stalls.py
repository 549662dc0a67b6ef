"""Rounds in which one member stops polling. Each case has a communicator of its own; what every rank raised is
reported by case and rank."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from reporting import gather_texts, meet, report

from tba_hpc.distributed.patience import LeaderPatience, MemberPatience
from tba_hpc.distributed.round import HEADER, Flag, RoundLeader, RoundMember

BOUND = 1.0
GOOD_ROUNDS = 3
FOREVER = 2.5 * BOUND  # longer than any bound in this program


def before_control(stalled: int) -> Callable[[RoundMember, int], None]:
    """The member stops between two rounds, where it may stand in the way of a control record to others."""

    def take_part(member: RoundMember, rank: int) -> None:
        if rank == stalled and member.number == GOOD_ROUNDS:
            time.sleep(FOREVER)
            return
        member.next_control()
        member.contribute(np.zeros(1, HEADER), np.full(100 * rank, rank, np.uint8))
        member.post()

    return take_part


def before_header(stalled: int) -> Callable[[RoundMember, int], None]:
    """The member stops with the control record in hand."""

    def take_part(member: RoundMember, rank: int) -> None:
        member.next_control()
        if rank == stalled and member.number > GOOD_ROUNDS:
            time.sleep(FOREVER)
            return
        member.contribute(np.zeros(1, HEADER), np.full(100 * rank, rank, np.uint8))
        member.post()

    return take_part


def silent_trainer(_: int) -> Callable[[RoundMember, int], None]:
    return before_control(stalled=-1)


def lead(comm: MPI.Intracomm, silent: bool) -> None:
    leader = RoundLeader(comm, 64, LeaderPatience(comm, BOUND))
    for number in range(GOOD_ROUNDS + 1):
        if silent and number == GOOD_ROUNDS:
            return
        leader.run(Flag(0), 0, 0)


def follow(comm: MPI.Intracomm, take_part: Callable[[RoundMember, int], None]) -> None:
    member = RoundMember(comm, 64, MemberPatience(comm, BOUND))
    member.post()
    for _ in range(GOOD_ROUNDS + 1):
        take_part(member, comm.rank)


def outcome(body: Callable[[], None]) -> str:
    started = time.monotonic()
    try:
        body()
    except TimeoutError as error:
        return f"{time.monotonic() - started:.2f} {error}"
    return ""


def main() -> None:
    world = MPI.COMM_WORLD
    cases = [(f"before control {i}", before_control(i + 1), False) for i in range(world.size - 1)]
    cases.append(("before header 1", before_header(2), False))
    cases.append(("silent trainer", silent_trainer(0), True))
    results = {}
    for name, take_part, silent in cases:
        comm = world.Dup()
        if comm.rank == 0:
            text = outcome(lambda comm=comm, silent=silent: lead(comm, silent))
        else:
            text = outcome(lambda comm=comm, take_part=take_part: follow(comm, take_part))
        meet(world)
        results[name] = gather_texts(world, text)
    report(world, **results)
    meet(world)
    world.Abort(0)  # the rounds that were given up are in flight for ever: nothing is left to finalize


if __name__ == "__main__":
    main()
