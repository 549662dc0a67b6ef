"""Where a task's problems come from: a file on disk, or a data set on the Hugging Face hub."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from tba_hpc.settings import ConfigError, Settings, did_you_mean
from tba_hpc.tasks.base import Split

_FORMATS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
"""What `datasets` calls the format of a file, by its suffix."""


class DataSource(Settings):
    """In a configuration, a plain string stands for `path` alone."""

    path: str = Field(min_length=1)
    """A file that ends in .jsonl, .json or .parquet; or else the name of a data set on the hub, or a folder laid out as
    one. A path that starts with `./` in a configuration file is relative to that file."""
    config: str | None = None
    """The hub's name for one of several configurations of a data set."""
    split: str | None = None
    """As the data set calls it; the name of the task's split when not given. `train[:100]` is its first 100 rows."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""

    @model_validator(mode="before")
    @classmethod
    def _from_string(cls, values: Any) -> Any:
        return {"path": values} if isinstance(values, str) else values

    @model_validator(mode="after")
    def _files_have_no_parts(self) -> DataSource:
        given = [name for name in ("config", "split", "revision") if getattr(self, name) is not None]
        if self.is_file and given:
            raise ValueError(f"{self.path} is a file, which has no {' and no '.join(given)}: leave it out")
        return self

    @property
    def is_file(self) -> bool:
        return Path(self.path).suffix in _FORMATS

    def load(self, split: Split) -> Table:
        """The rows of the task's `split`. They stay on disk, in a memory map that all processes of a machine share;
        the first process to ask for them makes it, and others wait.

        Raises `ConfigError` for a source that is not there, cannot be read, or has no rows."""
        import datasets  # here: it takes seconds, and grading needs no data set

        datasets.disable_progress_bars()
        option = f"task.options.{split}"
        try:
            if self.is_file:
                self._check_file(option)
                rows = datasets.load_dataset(
                    _FORMATS[Path(self.path).suffix], data_files=glob.escape(self.path), split="train"
                )
            else:
                self._check_no_file(option)
                rows = datasets.load_dataset(self.path, self.config, split=self.split or split, revision=self.revision)
        except (datasets.exceptions.DatasetsError, OSError, ValueError, StopIteration) as error:
            raise _explained(error, self, split, option) from error
        return Table(rows, f"{option}: {self.path}")

    def _check_file(self, option: str) -> None:
        if not Path(self.path).is_file():
            raise ConfigError(f"{option}: there is no file {self.path}")

    def _check_no_file(self, option: str) -> None:
        if Path(self.path).is_file():
            raise ConfigError(f"{option}: {self.path} is a file of no known kind: give one of {', '.join(_FORMATS)}")


def _explained(error: Exception, source: DataSource, split: Split, option: str) -> ConfigError:
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, StopIteration) or "corresponds to no data" in str(error):  # what `datasets` calls no rows
        return ConfigError(f"{option}: {source.path} has no rows")
    reason = f"{error.__cause__ or error}".strip()
    if source.is_file:
        return ConfigError(f"{option}: cannot read {source.path}: {reason}")
    config = f"configuration {source.config!r}, " if source.config else ""
    return ConfigError(
        f"{option}: cannot load {source.path!r} ({config}split {source.split or split!r}) as a folder or from the "
        f"Hugging Face hub: {reason}\n  Without a network, name a file of JSON lines, JSON or Parquet: "
        f'{option}=/data/{split}.jsonl, or with --task-options \'{{"{split}": "/data/{split}.jsonl"}}\''
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table."""

    values: Mapping[str, Any]
    where: str
    """What an error calls it."""

    def text(self, column: str) -> str:
        """A field that has to be there: a text, or a number as text. Raises `ConfigError` for any other value, and for
        an empty text."""
        value = self.values.get(column)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{self.where}: {column} is {value!r}, not a text")
        return value

    def has(self, column: str) -> bool:
        """Whether the table has the column and the row something in it."""
        return self.values.get(column) not in (None, "")


class Table:
    """The rows of one split."""

    def __init__(self, rows: Any, name: str) -> None:
        """`rows` is a `datasets.Dataset`; `name` is what errors call it."""
        self._rows = rows
        self.name = name

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        """Raises `ConfigError` for a row that is not UTF-8."""
        where = f"{self.name}: row {index + 1}"
        try:
            return Row(self._rows[index], where)
        except UnicodeDecodeError as error:
            raise ConfigError(f"{where} is not UTF-8: {error}") from error

    @property
    def columns(self) -> list[str]:
        return list(self._rows.column_names)

    def require(self, *columns: str) -> None:
        """Raises `ConfigError` for a column that is missing."""
        for column in columns:
            if column not in self.columns:
                raise ConfigError(f"{self.name} has no column {column!r}; {did_you_mean(column, self.columns)}")
