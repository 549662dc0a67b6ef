"""A batch job whose ranks are all killed in its first attempt and meet in its second."""

import os
import signal
import sys

from tba_hpc.launch.slurm import requeue, srun_words, supervise_srun

if "SLURM_STEP_ID" in os.environ:
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    if "SLURM_RESTART_COUNT" not in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0)

code = supervise_srun(srun_words([sys.executable, __file__], os.environ), os.environ)
if code == 128 + signal.SIGKILL:
    requeue(os.environ)
sys.exit(code)
