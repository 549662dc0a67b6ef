"""The end of a job in which one rank has failed. Imports MPI and nothing heavy, so that it can guard heavy imports
too."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from mpi4py import MPI

from tba_hpc.settings import ConfigError

logger = logging.getLogger(__name__)
_FORWARDING_SECONDS = 0.5  # for the launcher to pass on what was printed: it may stop listening once the job is aborted


@contextmanager
def abort_on_error(comm: MPI.Intracomm, name: str) -> Iterator[None]:
    """Ends the whole job when the body raises: an exception that only ends one rank would hang the others.

    Prints the traceback with `name` in front of each line and logs it; of a `ConfigError`, the user's to mend,
    the message alone."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        text = f"error: {error}" if isinstance(error, ConfigError) else "".join(traceback.format_exception(error))
        if logger.hasHandlers():  # else logging would print it a second time
            logger.critical("%s", text)
        sys.stderr.write("".join(f"[{name}] {line}\n" for line in [*text.rstrip().splitlines(), "ending the job"]))
        sys.stderr.flush()
        time.sleep(_FORWARDING_SECONDS)
        comm.Abort(1)
        raise
