"""The base of every configuration model, and what a user gets to read when a configuration is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
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
        lines = [_explain(mistake, model, prefix) for mistake in error.errors()]
    raise ConfigError("\n".join([f"{where}:", *(f"  {line}" for line in lines)]))


def _explain(mistake: Any, model: type[Settings], prefix: str) -> str:
    keys, members = _follow(model, mistake["loc"])
    key = prefix + ".".join(str(part) for part in keys)
    message = mistake["msg"].removeprefix("Value error, ")
    match mistake["type"]:
        case "missing":
            return f"{key} is missing"
        case "extra_forbidden":
            allowed = {name for member in _follow(model, mistake["loc"][:-1])[1] for name in member.model_fields}
            return f"{key} = {mistake['input']!r}: no such setting; {did_you_mean(str(keys[-1]), allowed)}"
        case "union_tag_invalid" | "union_tag_not_found":
            field, tag = mistake["ctx"]["discriminator"].strip("'"), mistake["ctx"].get("tag")
            names = [name for member in members for name in _tags(member)]
            if tag is None:
                return f"{key}.{field} is missing; allowed: {', '.join(sorted(names))}"
            return f"{key}.{field} = {tag!r}: no such {field}; {did_you_mean(tag, names)}"
        case _:
            return f"{key} = {mistake['input']!r}: {message}" if keys else message


def _follow(model: type[BaseModel], location: tuple[str | int, ...]) -> tuple[list[str | int], list[type[BaseModel]]]:
    """The keys a user wrote to come to a pydantic `location` in a `model`, and the models that may stand there. A
    location has, beside keys, the tag of the member wherever it enters a discriminated union."""
    keys: list[str | int] = []
    here = [model]
    for part in location:
        tagged = [member for member in here if part in _tags(member)]
        if tagged and len(here) > 1:
            here = tagged
            continue
        keys.append(part)
        fields = [member.model_fields[str(part)] for member in here if part in member.model_fields]
        here = [member for field in fields for member in _models_in(field.annotation)]
    return keys, here


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """The end of a message about a name that is not `allowed`: the nearest one that is, and all of them."""
    names = sorted(allowed)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(names)}"


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    """The values of `kind` or `name` that choose the model out of a discriminated union; none for other models."""
    fields = [model.model_fields[name] for name in ("kind", "name") if name in model.model_fields]
    return tuple(tag for field in fields for tag in getattr(field.annotation, "__args__", ()))


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
