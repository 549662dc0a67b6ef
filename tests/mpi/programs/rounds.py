"""Rounds of payloads that both ends can compute: `rounds.py ROUNDS CHUNK_BYTES LARGEST_PAYLOAD`."""

from __future__ import annotations

import sys
import zlib

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from reporting import report

from tba_hpc.distributed.patience import LeaderPatience, MemberPatience
from tba_hpc.distributed.round import HEADER, Flag, RoundLeader, RoundMember

SECONDS = 60.0


def payload_of(number: int, searcher: int, largest: int) -> NDArray[np.uint8]:
    """Every fifth round brings nothing from anybody, and in others some searchers have nothing."""
    random = np.random.default_rng((number, searcher))
    empty = number % 5 == 0 or random.random() < 0.2
    return random.integers(256, size=0 if empty else random.integers(largest + 1), dtype=np.uint8)


def lead(comm: MPI.Intracomm, rounds: int, chunk: int, largest: int) -> None:
    leader = RoundLeader(comm, chunk, LeaderPatience(comm, SECONDS))
    wrong, sizes = [], []
    for number in range(1, rounds + 1):
        collected = leader.run(Flag.STOP if number == rounds else Flag(0), number * 2, 17)
        for searcher, payload in enumerate(collected.payloads):
            expected, header = payload_of(number, searcher, largest), collected.headers[searcher]
            same = len(payload) == len(expected) and zlib.crc32(payload.tobytes()) == zlib.crc32(expected.tobytes())
            if not (same and header["trajectories"] == number and header["generated"] == searcher):
                wrong.append([number, searcher])
            sizes.append(len(payload))
    report(comm, rounds=leader.number, wrong=wrong, empty=sizes.count(0), largest=max(sizes), shares=len(sizes))


def take_part(comm: MPI.Intracomm, chunk: int, largest: int) -> None:
    member = RoundMember(comm, chunk, MemberPatience(comm, SECONDS))
    member.post()
    while True:
        control = member.next_control()
        number = int(control["round"])
        assert (control["policy_version"], control["manifest"]) == (2 * number, 17)
        header = np.zeros(1, HEADER)
        header["trajectories"], header["generated"] = number, comm.rank - 1
        member.contribute(header, payload_of(number, comm.rank - 1, largest))
        if Flag.STOP in Flag(int(control["flags"])):
            return
        member.post()


def main() -> None:
    comm = MPI.COMM_WORLD
    rounds, chunk, largest = map(int, sys.argv[1:])
    if comm.rank == 0:
        lead(comm, rounds, chunk, largest)
    else:
        take_part(comm, chunk, largest)


if __name__ == "__main__":
    main()
