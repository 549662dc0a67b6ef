"""Checkpoints on disk: folders that are complete and undamaged, or do not count.

A checkpoint is written into a temporary folder. When every file is on stable storage, a manifest with their sizes and
hashes is added, and the folder gets its name. So whatever has a name and a manifest that holds is what was saved,
whenever the job may have died.

    step_00000050/
        state.json              where the run stands
        config.yaml             the run's configuration
        policy/                 policy and tokenizer in Hugging Face format
        training_state.safetensors   float32 weights and optimizer state
        …                       what else that kind of run needs to go on
        manifest.json           sizes and hashes
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import xxhash
from pydantic import NonNegativeInt
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tba_hpc.config import CheckpointConfig
from tba_hpc.replay.files import link_or_copy
from tba_hpc.settings import ConfigError, Settings, validate
from tba_hpc.stable_storage import sync

logger = logging.getLogger(__name__)

_FORMAT = 1
_MANIFEST = "manifest.json"
_PIN = "pinned"
_TEMPORARY = ".tmp"
_SET_ASIDE = ".set-aside"
_NAME = re.compile(r"step_(\d{8,})(?:\.(\d+))?")
_SELF_CHECKED = "replay/segment-*.h5"
"""Files with a checksum of their own, which is verified when the run first reads them: only their sizes are compared
here, lest every save and every start read a whole replay buffer."""


class CheckpointError(Exception):
    """A checkpoint is incomplete or damaged; the message names the file."""


class SavedState(Settings):
    """What `state.json` holds. Every random draw of a run is a function of its seed and of counters that are in here:
    there is no state of a random generator to save."""

    step: NonNegativeInt
    """Optimizer steps done; also the version of the policy."""

    @property
    def recorded_steps(self) -> int:
        """Steps whose numbers were in `metrics.jsonl` when this was saved."""
        return self.step


State = TypeVar("State", bound=SavedState)


class CheckpointFolder(Generic[State]):
    """A complete checkpoint: the files that every kind of run has in it."""

    def __init__(self, path: Path, state_type: type[State]) -> None:
        self.path = path
        self.policy = path / "policy"
        self.config = path / "config.yaml"
        self._state = path / "state.json"
        self._tensors = path / "training_state.safetensors"
        self._state_type = state_type

    def write_state(self, state: State, config_yaml: str, tensors: Mapping[str, Tensor]) -> None:
        """`tensors`: weights and optimizer state, in memory of their own. Raises `OSError`."""
        self._state.write_text(state.model_dump_json(indent=2) + "\n", encoding="utf-8")
        self.config.write_text(config_yaml, encoding="utf-8")
        try:
            save_file(dict(tensors), self._tensors)
        except SafetensorError as error:
            raise OSError(f"{self._tensors} cannot be written: {error}") from error

    def state(self) -> State:
        return validate(self._state_type, json.loads(self._state.read_text(encoding="utf-8")), str(self._state))

    def tensors(self) -> dict[str, Tensor]:
        return load_file(self._tensors)


Folder = TypeVar("Folder", bound=CheckpointFolder[Any])


def write_checkpoint(folder: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """Has `fill` write a checkpoint's files into a folder, which then appears in `folder`, complete, on stable storage;
    its path. Where an earlier one of the same step exists, that stays and the new one counts. Raises `OSError` and
    leaves nothing behind."""
    path = _free_name(folder, step)
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        temporary.mkdir(parents=True)
        fill(temporary)
        files = _files(temporary)
        for file in files:
            sync(file)
        manifest = {"format": _FORMAT, "files": {str(f.relative_to(temporary)): _facts(f, temporary) for f in files}}
        (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        sync(temporary / _MANIFEST)
        for inner in {temporary, *(file.parent for file in files)}:
            sync(inner)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync(folder)
    return path


def verify(path: Path, kind: Callable[[Path], Folder]) -> Folder:
    """Reads all of a checkpoint but its replay segments; `kind` is its class. Raises `CheckpointError` naming what is
    missing or not as it was written."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        files = dict(manifest["files"])
        if manifest["format"] != _FORMAT:
            raise CheckpointError(f"{path} has format {manifest['format']}; this version of tba_hpc reads {_FORMAT}")
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} has no {_MANIFEST}: it is not a checkpoint, or not a complete one") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path / _MANIFEST} cannot be read: {error}") from error
    for name, expected in files.items():
        try:
            found = _facts(path / name, path)
        except OSError as error:
            raise CheckpointError(f"{path / name} cannot be read: {error.strerror}") from error
        if found != expected:
            raise CheckpointError(f"{path / name} is not as it was written")
    checkpoint = kind(path)
    try:
        checkpoint.state()
    except (OSError, ConfigError, ValueError) as error:
        raise CheckpointError(
            f"{path} was saved by another version of tba_hpc, or by another kind of run: {error}"
        ) from error
    return checkpoint


def newest(folder: Path, kind: Callable[[Path], Folder]) -> Folder | None:
    """The newest checkpoint that is complete and undamaged; those that are not are passed over with a warning. None
    where there is none at all. Raises `CheckpointError` where all there are cannot be used."""
    problems = []
    for path in list_checkpoints(folder):
        try:
            return verify(path, kind)
        except CheckpointError as error:
            logger.warning("%s; it is passed over", error)
            problems.append(str(error))
    if problems:
        raise CheckpointError("\n  ".join(["none of the checkpoints can be used:", *problems]))
    return None


def list_checkpoints(folder: Path) -> list[Path]:
    """Whatever is named like a checkpoint, the newest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), key=_age, reverse=True)


def clear_leftovers(folder: Path) -> None:
    """Removes what a crash in the middle of a save or of a removal left behind."""
    for path in folder.glob(f"step_*{_TEMPORARY}"):
        shutil.rmtree(path)


def set_aside_newer(folder: Path, chosen: Path) -> None:
    """Renames the checkpoints newer than the chosen one of the same folder, which the run now leaves behind: damaged
    ones, and those of a course that is not taken further. They stay for someone to look into."""
    for path in list_checkpoints(folder):
        if path.name == chosen.name:
            return
        aside = _free_aside(path)
        path.rename(aside)
        logger.warning("%s is set aside as %s: the run goes on from %s", path, aside.name, chosen.name)


def _free_aside(path: Path) -> Path:
    names = (f"{path.name}{_SET_ASIDE}{number}" for number in itertools.chain([""], itertools.count(2)))
    return next(aside for aside in map(path.with_name, names) if not aside.exists())


def is_checkpoint_name(name: str) -> bool:
    """Whether a run would find a checkpoint by this name again."""
    return _NAME.fullmatch(name) is not None


def adopt_checkpoint(folder: Path, checkpoint: CheckpointFolder[Any]) -> Path:
    """Gives a run whose checkpoints are in `folder` another run's checkpoint to begin with; its path there. Costs no
    room where the file system has hard links. Raises `OSError`."""

    def fill(target: Path) -> None:
        for file in _files(checkpoint.path):
            if file.name != _MANIFEST:
                place = target / file.relative_to(checkpoint.path)
                place.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(file, place)

    return write_checkpoint(folder, checkpoint.state().step, fill)


def remove_old(folder: Path, config: CheckpointConfig) -> None:
    """Removes all but the newest `keep_last` and the pinned ones."""
    for path in list_checkpoints(folder)[config.keep_last :]:
        step, _ = _age(path)
        if (path / _PIN).exists() or (config.pin_every and step % config.pin_every == 0):
            continue
        doomed = path.with_name(path.name + _TEMPORARY)  # half a removal must not look like a checkpoint
        path.rename(doomed)
        shutil.rmtree(doomed)


def _age(path: Path) -> tuple[int, int]:
    """Step and how often that step was saved before."""
    match = _NAME.fullmatch(path.name)
    assert match, "only what list_checkpoints gives has an age"
    return int(match[1]), int(match[2] or 1)


def _free_name(folder: Path, step: int) -> Path:
    taken = [repeat for path in list_checkpoints(folder) for number, repeat in [_age(path)] if number == step]
    name = f"step_{step:08d}"
    return folder / (f"{name}.{max(taken) + 1}" if taken else name)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _facts(file: Path, root: Path) -> dict[str, object]:
    """What the manifest says of a file."""
    facts: dict[str, object] = {"bytes": file.stat().st_size}
    if not file.relative_to(root).match(_SELF_CHECKED):
        facts["xxh3_128"] = _digest(file)
    return facts


def _digest(file: Path) -> str:
    state = xxhash.xxh3_128()
    with file.open("rb") as raw:
        while chunk := raw.read(2**22):
            state.update(chunk)
    return state.hexdigest()
