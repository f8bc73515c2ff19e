"""Foreign text made plain before it is parsed: colours, carriage returns, tables. Pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
MAX_INT_DIGITS = 18


def plain(text: str) -> str:
    """Without terminal escapes (ECMA-48), byte-order mark, NUL and carriage returns."""
    text = text.removeprefix("\ufeff").replace("\x00", "")
    return _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def is_whole(text: str) -> bool:
    """Whether the last line was ended, as every tool ends it."""
    return text.endswith(("\n", "\r"))


def number(text: str) -> float | None:
    """The number that `text` begins with (`78.10 W`, `16`), None for [N/A] and other words."""
    found = re.match(r"\s*([+-]?\d{1,18}(?:\.\d{1,18})?)", text, re.ASCII)
    return float(found[1]) if found else None


def integer(text: str) -> int | None:
    """A plain decimal integer and nothing else."""
    found = re.fullmatch(r"\s*([+-]?\d{1,18})\s*", text, re.ASCII)
    return int(found[1]) if found else None


def assignments(text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """NAME=VALUE lines (the value starts after the first =), and the lines that are not such.

    Empty lines and comments are skipped; a value may be empty.
    """
    found: dict[str, str] = {}
    others: list[str] = []
    for line in plain(text).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name = name.strip().removeprefix("export ")
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            found[name] = value
        else:
            others.append(line)
    return found, tuple(others)


def table(text: str, delimiter: str = ",") -> list[dict[str, str]] | None:
    """Rows by header name, cells stripped; None when a row has another number of cells.

    Names are in lower case and without a unit in brackets: `clocks.sm [MHz]` is clocks.sm.
    """
    try:
        rows = list(csv.reader(plain(text).splitlines(), delimiter=delimiter))
    except csv.Error:
        return None
    cells = [[c.strip() for c in row] for row in rows if any(c.strip() for c in row)]
    if len(cells) < 2:
        return None
    header = [name.partition("[")[0].strip().lower() for name in cells[0]]
    if len(set(header)) != len(header) or any(len(row) != len(header) for row in cells[1:]):
        return None
    return [dict(zip(header, row, strict=True)) for row in cells[1:]]


def truth(value: str | None) -> bool | None:
    """`true`, `1`, `yes`, `on` and their opposites; None for anything else."""
    word = (value or "").strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    return False if word in ("false", "0", "no", "off") else None


def any_true(values: Iterable[bool | None]) -> bool | None:
    """True when one is, False when all are known not to be, None otherwise or without any."""
    known = list(values)
    if True in known:
        return True
    return False if known and None not in known else None
