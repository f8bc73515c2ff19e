"""YAML files that people write: loaded with line numbers, changed by `--set`, checked against a
model.

YAML 1.2 by ruamel.yaml, so that `no` is a string, `1e-6` a number, and a key given twice an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from slurmmiles.errors import BadInput, did_you_mean

Model = TypeVar("Model", bound=BaseModel)


def load_mapping(path: Path) -> CommentedMap:
    """The file's mapping, with positions; BadInput names file:line of what is not YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BadInput(f"cannot read this file: {reason}", where=str(path)) from error
    try:
        data = YAML(typ="rt").load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadInput(f"this is not YAML: {problem}", where=where, fix="mend this line") from error
    if data is None:
        return CommentedMap()
    if not isinstance(data, CommentedMap):
        raise BadInput("the file's top level must be `key: value` lines", where=f"{path}:1")
    return data


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
        parsed.append((parts, _scalar(text, setting)))
    return parsed


def _scalar(text: str, setting: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text) if text else ""
    except (YAMLError, ValueError, RecursionError) as error:
        raise BadInput(
            f"the value of {setting!r} is not YAML", where="--set", fix="quote the value"
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
        return model.model_validate(_plain(data))
    except ValidationError as error:
        overridden = {s.partition("=")[0].strip() for s in settings}
        lines = [_explain(e, data, model, path, overridden) for e in error.errors()]
        first, rest = lines[0], lines[1:]
        if not rest:
            raise BadInput(first[1], where=first[0], fix=first[2]) from None
        text = "\n".join(f"{where}: {what}; {fix}" for where, what, fix in lines)
        raise BadInput(f"{len(lines)} settings are wrong:\n{text}", where=str(path)) from None


def _plain(data: Any) -> Any:
    """Without ruamel's own types: a frozen model must not hold the file's mutable, comment-carrying
    objects.
    """
    if isinstance(data, Mapping):
        return {str(k): _plain(v) for k, v in data.items()}
    if isinstance(data, list):
        return [_plain(v) for v in data]
    for kind in (bool, int, float, str):
        if isinstance(data, kind):
            return kind(data)
    return data


def _explain(
    error: Any, data: Mapping[str, Any], model: type[BaseModel], path: Path, overridden: set[str]
) -> tuple[str, str, str]:
    loc = [str(part) for part in error["loc"]]
    dotted = ".".join(loc)
    set_by_flag = any(dotted == key or dotted.startswith(key + ".") for key in overridden)
    where = f"--set {dotted}" if set_by_flag else f"{path}:{_line(data, error['loc'])}"
    if error["type"] == "extra_forbidden":
        return where, f"unknown key {dotted!r}", did_you_mean(loc[-1], _fields(model, loc[:-1]))
    if error["type"] == "missing":
        return where, f"the key {dotted!r} is missing", "add it"
    shown = error.get("input")
    message = error["msg"].removeprefix("Value error, ")
    return where, f"{dotted} = {shown!r}: {message[0].lower()}{message[1:]}", "change this value"


def _line(data: Any, loc: tuple[int | str, ...]) -> int:
    """The line of the deepest part of `loc` that the file has (1 when it has none of it)."""
    line = 1
    for part in loc:
        try:
            line = data.lc.data[part][0] + 1
            data = data[part]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
    return line


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
