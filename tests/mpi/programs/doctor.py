"""`doctor.py RUN_DIR MEETING_SECONDS [ABSENT_RANK]`: the doctor on every rank but one that does not come."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tba_hpc.doctor.command import run_doctor
from tba_hpc.progress import make_console

if __name__ == "__main__":
    run_dir, seconds, *absent = sys.argv[1:]
    if os.environ["PMI_RANK"] in absent:
        time.sleep(2 * float(seconds))
        sys.exit(0)
    sys.exit(run_doctor(Path(run_dir), make_console(), float(seconds)))
