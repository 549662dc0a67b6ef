"""Answers graded on every rank, some of which cost their worker its life. Reports by rank what was right."""

from __future__ import annotations

import json
import os

from mpi4py import MPI
from reporting import gather_texts, report

from tba_hpc.grading.mathematics import MathGrader

BOXED = [
    r"\boxed{\frac{x^2-1}{x-1}}",
    r"\boxed{\int_0^{10^{9}} e^{-t^{7}\sin t} dt}",
    r"\boxed{2(k+1)}",
    r"\boxed{9^{9^9}}",
]
ANSWERS = ["x+1", r"\int_0^1 t^{t^{t}} dt", "2k+2", "9^{9^9}+x"]


def main() -> None:
    comm = MPI.COMM_WORLD
    with MathGrader(seconds_per_answer=3.0, seconds_per_batch=20.0) as grader:
        right = [verdict.correct for verdict in grader.grade(BOXED, ANSWERS)]
        again = [verdict.correct for verdict in grader.grade(BOXED[:1], ANSWERS[:1])]
    comm.Barrier()  # MPI is as it was
    texts = gather_texts(comm, json.dumps({"right": right, "again": again, "size": int(os.environ["PMI_SIZE"])}))
    report(comm, ranks=[json.loads(text) for text in texts])


if __name__ == "__main__":
    main()
