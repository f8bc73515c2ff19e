"""YAML files that people write: loaded with line numbers, changed by `--set`, checked by a model.

YAML 1.2 by ruamel.yaml, so that `no` is a string, `1e-6` a number, and a key given twice an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from slurmmiles.errors import BadInput, did_you_mean

Model = TypeVar("Model", bound=BaseModel)
MAX_BYTES = 200_000
MAX_VALUES = 100_000  # a file of nested aliases can stand for more values than memory holds
# What ruamel.yaml raises on text that is not YAML; the last ones on odd tags, keys and merges.
_NOT_YAML = (YAMLError, ValueError, RecursionError, TypeError, AttributeError, LookupError)


def load_mapping(path: Path) -> CommentedMap:
    """The file's mapping, with positions; BadInput names file:line of what is not YAML."""
    text = _read(path)
    try:
        data = _parse(YAML(typ="rt"), text)
    except _NOT_YAML as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise BadInput(
            f"this is not YAML: {_problem(error)}", where=where, fix="mend this line"
        ) from error
    if data is None:
        return CommentedMap()
    if not isinstance(data, CommentedMap):
        raise BadInput(
            "the file's top level must be `key: value` lines",
            where=f"{path}:1",
            fix="begin with a key",
        )
    return data


def _read(path: Path) -> str:
    try:
        # A pipe of the shell's `<(...)` is a file to be read; any other may never be written to.
        if path.is_fifo() and not str(path).startswith(("/dev/fd/", "/proc/")):
            raise BadInput("this is a named pipe", where=str(path), fix="check the path")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            what = f"this file has more than {MAX_BYTES} bytes"
            raise BadInput(what, where=str(path), fix="check the path")
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        what = f"cannot read this file: {reason}"
        raise BadInput(what, where=str(path), fix="check the path") from error


def _parse(yaml: YAML, text: str) -> Any:
    """Without ruamel's warnings: an anchor given twice is legal, and stderr is for sentences."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return yaml.load(text)


def _problem(error: Exception) -> str:
    said = getattr(error, "problem", None) or next(iter(str(error).splitlines()), "")
    return str(said) or type(error).__name__


def parse_settings(settings: Iterable[str]) -> list[tuple[tuple[str, ...], Any]]:
    """`a.b=v` strings of `--set` as ((a, b), value), the value read as YAML would read it."""
    parsed: list[tuple[tuple[str, ...], Any]] = []
    for setting in settings:
        key, equals, text = setting.partition("=")
        parts = tuple(key.strip().split("."))
        if not equals or not all(parts):
            raise BadInput(
                f"{setting!r} is not of the form a.b=value", where="--set", fix="write key=value"
            )
        parsed.append((parts, _scalar(text, key)))
    return parsed


def env_names(settings: Iterable[str]) -> list[str]:
    """The environment variables that these `--set` name, by `env.X=v` or by `env={X: v}`."""
    names: list[str] = []
    for parts, value in parse_settings(settings):
        if parts[0] == "env":
            names += [*parts[1:2]] or ([str(k) for k in value] if isinstance(value, dict) else [])
    return names


def _scalar(text: str, key: str) -> Any:
    try:
        return _parse(YAML(typ="safe", pure=True), text) if text else ""
    except _NOT_YAML as error:
        raise BadInput(
            f"the value of {key.strip()!r} is not YAML", where="--set", fix="quote the value"
        ) from error


def apply_settings(data: CommentedMap, settings: Iterable[tuple[tuple[str, ...], Any]]) -> None:
    """Write each setting into `data`, making sections as needed; a value in place of a section is
    BadInput.
    """
    for parts, value in settings:
        section: Any = data
        for depth, part in enumerate(parts[:-1]):
            if section.get(part) is None:
                section[part] = CommentedMap()
            section = section[part]
            if not isinstance(section, dict):
                inner = ".".join(parts[: depth + 1])
                raise BadInput(
                    f"{inner!r} is a value, not a section", where=f"--set {'.'.join(parts)}"
                )
        section[parts[-1]] = value


def validate(
    data: Mapping[str, Any], model: type[Model], *, path: Path, settings: Iterable[str] = ()
) -> Model:
    """`data` as `model`; every wrong key and value is reported at once, each with its file:line."""
    try:
        return model.model_validate(_plain(data, count()))
    except RecursionError:
        raise BadInput(
            "its aliases (*name) stand for too many values or for themselves",
            where=str(path),
            fix="write the values out",
        ) from None
    except ValidationError as error:
        overridden = {s.partition("=")[0].strip() for s in settings}
        lines = [_explain(e, data, model, path, overridden) for e in _merged(error, data)]
    first, rest = lines[0], lines[1:]
    if not rest:
        raise BadInput(first[1], where=first[0], fix=first[2])
    text = "\n".join(f"{where}: {what}; {fix}" for where, what, fix in lines)
    raise BadInput(f"{len(lines)} settings are wrong:\n{text}", where=str(path))


def _plain(data: Any, counter: Iterator[int]) -> Any:
    """Without ruamel's own types: a frozen model must not hold the file's mutable, comment-carrying
    objects. Raises RecursionError beyond MAX_VALUES values.
    """
    if next(counter) >= MAX_VALUES:
        raise RecursionError
    if isinstance(data, Mapping):
        return {str(k): _plain(v, counter) for k, v in data.items()}
    if isinstance(data, (list, set)):
        return [_plain(v, counter) for v in data]
    for kind in (bool, int, float, str):
        if isinstance(data, kind):
            return kind(data)
    return data


def _merged(error: ValidationError, data: Mapping[str, Any]) -> list[Any]:
    """One error for each wrong value; pydantic has one for each type that it could have had."""
    found: dict[tuple[int | str, ...], Any] = {}
    for e in error.errors(include_url=False):
        loc = e["loc"]
        if e["type"] not in ("missing", "extra_forbidden") and loc[-1] != "[key]":
            loc = loc[: _depth(data, loc)]
        known = found.get(loc)
        if known is None:
            found[loc] = {**e, "loc": loc}
        elif e["type"] == "value_error":
            found[loc] = {**e, "loc": loc}  # the type was right, and so this is what is wrong
        elif known["type"] != "value_error":
            known["msg"] += f", or {e['msg'].removeprefix('Input should be ')}"
    return list(found.values())


def _depth(data: Any, loc: tuple[int | str, ...]) -> int:
    """How many parts of `loc` the file has; the rest names the types that pydantic tried."""
    for depth, part in enumerate(loc):
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return max(depth, 1)
    return len(loc)


def _explain(
    error: Any, data: Mapping[str, Any], model: type[BaseModel], path: Path, overridden: set[str]
) -> tuple[str, str, str]:
    loc = [str(part) for part in error["loc"]]
    is_key = loc[-1] == "[key]"
    dotted = ".".join(loc[:-1] if is_key else loc)
    line, in_file = _place(data, error["loc"])
    set_by_flag = any(
        f"{dotted}.".startswith(f"{key}.") or (not in_file and key.startswith(f"{dotted}."))
        for key in overridden
    )
    where = f"--set {dotted}" if set_by_flag else f"{path}:{line}"
    if error["type"] == "extra_forbidden":
        return where, f"unknown key {dotted!r}", did_you_mean(loc[-1], _fields(model, loc[:-1]))
    if error["type"] == "missing":
        return where, f"the key {dotted!r} is missing", "add it"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] in ("model_type", "dict_type"):
        message = "input should be `key: value` lines"
    message = message[0].lower() + message[1:]
    if is_key:
        return where, f"the name {dotted!r}: {message}", "change this name"
    shown = repr(error.get("input"))
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return where, f"{dotted} = {shown}: {message}", _fix(error)


def _fix(error: Any) -> str:
    value = error.get("input")
    if error["type"] in ("int_type", "float_type", "bool_type") and isinstance(value, str):
        return "write it without quotes" if value.strip() else "give a value"
    return "change this value"


def _place(data: Any, loc: tuple[int | str, ...]) -> tuple[int, bool]:
    """The line of the deepest part of `loc` that the file has (1: of none), and if it has all."""
    line = 1
    for part in loc:
        try:
            line = data.lc.data[part][0] + 1
            data = data[part]
        except (AttributeError, KeyError, IndexError, TypeError):
            return line, False
    return line, True


def _fields(model: type[BaseModel], loc: list[str]) -> list[str]:
    """The field names that may stand in the section at `loc`."""
    for part in loc:
        field = model.model_fields.get(part)
        inner = field.annotation if field else None
        candidates = [inner, *getattr(inner, "__args__", ())]
        nested = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not nested:
            return []
        model = nested[0]
    return list(model.model_fields)
