"""How ranks come to life.

`from tba_hpc.launch import submit, submit_sweep` is the interface for programs; see `tba_hpc.launch.submission`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tba_hpc.launch.submission import submit, submit_sweep

__all__ = ["submit", "submit_sweep"]


def __getattr__(name: str) -> Any:
    """Loaded on demand: a rank imports from this package before it can take signals, and has no use for submitit."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tba_hpc.launch import submission

    return getattr(submission, name)
