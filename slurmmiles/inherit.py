"""`extends: NAME` in a recipe or site file: the other file's keys, under this one's.

Sections are merged key by key; any other value of this file replaces the other's. `name` is each
file's own. A path is read from the folder of the file that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from slurmmiles.errors import BadInput
from slurmmiles.yamlfile import load_mapping

KEY = "extends"


def load_chain(
    path: Path, find: Callable[[str], Path], check: Callable[[CommentedMap, Path], object]
) -> CommentedMap:
    """The file's mapping with all that it extends; BadInput, with the chain, when it goes round.

    `find` gives the file of a name; `check` judges each file that is extended, by itself, so that
    an error in it names its own line.
    """
    data = load_mapping(path)
    chain, link = [path], _take(data, path, find)
    while link is not None:
        line, parent = link
        if any(_same(parent, seen) for seen in chain):
            steps = [*(str(p) for p in chain), str(parent)]
            raise BadInput(
                f"it extends itself: {' -> '.join(steps)}",
                where=f"{chain[-1]}:{line}",
                fix="remove this `extends`",
            )
        upper = load_mapping(parent)
        link = _take(upper, parent, find)
        check(upper, parent)
        _fill(data, {k: v for k, v in upper.items() if k != "name"})
        chain.append(parent)
    return data


def _take(data: CommentedMap, path: Path, find: Callable[[str], Path]) -> tuple[int, Path] | None:
    """Remove `extends` from `data`: its line and the file that it names, or None without one."""
    if KEY not in data:
        return None
    line = data.lc.data[KEY][0] + 1 if KEY in (data.lc.data or {}) else 1
    name = data.pop(KEY)
    if not isinstance(name, str) or not name:
        raise BadInput(
            f"{KEY} = {name!r}: the name or path of one file is wanted",
            where=f"{path}:{line}",
            fix="change this value",
        )
    if "/" in name or name.endswith((".yaml", ".yml")):
        return line, path.parent / name
    try:
        return line, find(name)
    except BadInput as error:
        raise BadInput(error.what, where=f"{path}:{line}", fix=error.fix) from None


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _fill(data: Any, base: Mapping[str, Any]) -> None:
    """Add to `data` what only `base` has, through sections; the positions of `data` stay."""
    for key, value in base.items():
        if key not in data:
            data[key] = value
        elif isinstance(data[key], CommentedMap) and isinstance(value, Mapping):
            _fill(data[key], value)
