"""The base of every configuration model, and what a user gets to read when a configuration is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Integer = Annotated[int, Field(strict=True)]
"""Strict: otherwise `true` would be a 1."""
PositiveInt = Annotated[Integer, Field(gt=0)]


class Settings(BaseModel):
    """Frozen; refuses keys it does not know, and numbers that are not finite unless a field allows them."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",  # the default, null, would not load again
    )


S = TypeVar("S", bound=Settings)


class ConfigError(ValueError):
    """A configuration a user has to change; the message names the key, the value and the fix."""


def validate(model: type[S], values: Any, where: str, prefix: str = "") -> S:
    """`values` as a `model`. Raises `ConfigError` with one line a mistake; `where` is what the user calls the source,
    `prefix` the dotted path of `values` in it."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [_explain(mistake, values, model, prefix) for mistake in error.errors()]
    raise ConfigError("\n".join([f"{where}:", *(f"  {line}" for line in lines)]))


def _explain(mistake: Any, values: Any, model: type[Settings], prefix: str) -> str:
    location = [part for part in mistake["loc"] if not _is_union_tag(part, mistake["loc"], values)]
    key = prefix + ".".join(str(part) for part in location)
    message = mistake["msg"].removeprefix("Value error, ")
    if mistake["type"] == "missing":
        return f"{key} is missing"
    if mistake["type"] != "extra_forbidden":
        return f"{key} = {mistake['input']!r}: {message}" if location else message
    allowed = _allowed_keys(model, mistake["loc"][:-1])
    return f"{key} = {mistake['input']!r}: no such setting; {did_you_mean(str(location[-1]), allowed)}"


def _is_union_tag(part: str | int, location: tuple[str | int, ...], values: Any) -> bool:
    """Whether `part` of a pydantic location is the tag of a discriminated union and so no key the user wrote."""
    here = values
    for step in location[: location.index(part)]:
        if isinstance(here, Mapping) and step in here:
            here = here[step]
    return isinstance(here, Mapping) and here.get("kind") == part and part not in here


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """The end of a message about a name that is not `allowed`: the nearest one that is, and all of them."""
    names = sorted(allowed)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(names)}"


def _allowed_keys(model: type[BaseModel], path: tuple[str | int, ...]) -> set[str]:
    """Names of the fields of the model at `path` below `model`; at a union, of the member its tag names."""
    if not path:
        return set(model.model_fields)
    head, *rest = path
    members = _models_in(model.model_fields[str(head)].annotation) if head in model.model_fields else []
    tagged = [m for m in members if rest and "kind" in m.model_fields and rest[0] in _tags(m)]
    if tagged:
        members, rest = tagged, rest[1:]
    return set().union(*(_allowed_keys(m, tuple(rest)) for m in members))


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    return getattr(model.model_fields["kind"].annotation, "__args__", ())


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for argument in getattr(annotation, "__args__", ()) for m in _models_in(argument)]


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; a value written `./…` or `../…` is a path relative to that file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds {type(values).__name__}, not a mapping of settings")
    return {key: _resolve_paths(value, path.resolve().parent) for key, value in values.items()}


def _resolve_paths(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {key: _resolve_paths(item, folder) for key, item in value.items()}
    if isinstance(value, str) and value.startswith(("./", "../")):
        return str((folder / value).resolve())
    return value


def apply_overrides(values: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """`values` with `a.b=value` strings applied; the value is read as YAML, and one written `./…` or `../…` is a path
    relative to the working directory. Raises `ConfigError`."""
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"override {override!r} is not of the form key=value")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        values = _with(values, key.split("."), _resolve_paths(value, Path.cwd()), key)
    return values


def _with(values: Any, path: list[str], value: Any, key: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ConfigError(f"override {key}: {values!r} is a single value and has no settings below it")
    head, *rest = path
    return {**values, head: _with(values.get(head) or {}, rest, value, key) if rest else value}


def to_yaml(settings: Settings) -> str:
    """The resolved configuration, every default written out, as YAML that loads again."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
