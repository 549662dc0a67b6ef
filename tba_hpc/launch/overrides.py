"""Settings of a run given as values of a program, in the form in which a rank reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tba_hpc.settings import ConfigError

Overrides = Mapping[str, Any] | Sequence[str]
"""Settings by their dotted path; or `KEY=VALUE` words, as on the command line."""


def override_words(overrides: Overrides) -> list[str]:
    """`KEY=VALUE` words. Raises `ConfigError` for a value that YAML does not know."""
    if isinstance(overrides, Mapping):
        return [f"{key}={yaml_text(value)}" for key, value in overrides.items()]
    return list(overrides)


def yaml_text(value: Any) -> str:
    """`value` as YAML on one line. Raises `ConfigError` as `override_words` does."""
    plain = str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
    try:
        in_brackets = _flow_yaml([plain])
        if len(in_brackets.splitlines()) > 1:
            # Only between double quotes are line breaks written as escapes.
            in_brackets = _flow_yaml([plain], default_style='"')
    except yaml.YAMLError as error:
        raise ConfigError(f"{value!r} is not a value for a setting: {error}") from error
    return in_brackets[1:-1]


def _flow_yaml(value: Any, default_style: str | None = None) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, default_style=default_style, width=math.inf, allow_unicode=True
    )
    return text.strip()


def parsed_grid(words: Sequence[str]) -> dict[str, list[Any]]:
    """`KEY=VALUE,VALUE` words as values by setting. Raises `ConfigError`."""
    return {key: _parsed(key, f"[{text}]", "--grid") for key, text in _pairs(words, "--grid", "seed=1,2,3")}


def parsed_options(words: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` words, or `NAME` for an option without a value, as options of sbatch. Raises `ConfigError`."""
    whole = [word if "=" in word else f"{word}=true" for word in words]
    return {key: _parsed(key, text, "--sbatch") for key, text in _pairs(whole, "--sbatch", "qos=long")}


def _pairs(words: Sequence[str], option: str, example: str) -> list[tuple[str, str]]:
    pairs = [word.partition("=") for word in words]
    for key, equals, text in pairs:
        if not (key and equals and text):
            raise ConfigError(f"{option} {key}{equals}{text} is not of the form {example}")
    keys = [key for key, _, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ConfigError(f"{option}: {max(keys, key=keys.count)} is given more than once")
    return [(key, text) for key, _, text in pairs]


def _parsed(key: str, text: str, option: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{option} {key}: {text} is not valid YAML: {error}") from error
