"""Slurm's node range expressions: `node[01-03],gpu7` to names and back, keeping Slurm's order.

Slurm's own rules (man scontrol, "hostnames"): the width of a range's first number is kept, brackets
may appear more than once in a name, commas separate expressions only outside brackets. Order is
never changed, because SLURM_NODEID counts in the written order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

from slurmmiles.errors import BadInput

MAX_HOSTS = 65_536  # Slurm's own limit on one expression (slurm/src/common/hostlist.c, MAX_RANGE)
MAX_NAME = 255  # a host name's longest form (RFC 1035, 2.3.4)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_COUNT = re.compile(r"(\d{1,18})(?:\(x(\d{1,18})\))?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NUMBERED = re.compile(r"(.*?)(\d{1,18})$", re.ASCII)


def expand(expression: str) -> tuple[str, ...]:
    """Every host name of `expression`, in the written order; BadInput on anything malformed."""
    text = expression.strip()
    if not text:
        return ()
    hosts: list[str] = []
    for part in _split(text):
        hosts.extend(_expand_one(part, expression))
        if len(hosts) > MAX_HOSTS:
            raise _too_many(expression)
    return tuple(hosts)


def _split(text: str) -> Iterator[str]:
    start = depth = 0
    for i, char in enumerate(text):
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            raise _bad(text, "brackets do not match")
        if char == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    if depth:
        raise _bad(text, "brackets do not match")
    yield text[start:]


def _expand_one(part: str, whole: str) -> Iterator[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)
    choices = [_ranges(p, whole) if i % 2 else [p] for i, p in enumerate(pieces)]
    if prod(len(choice) for choice in choices) > MAX_HOSTS:
        raise _too_many(whole)
    if sum(max(len(text) for text in choice) for choice in choices) > MAX_NAME:
        raise _bad(whole, f"a name of more than {MAX_NAME} characters")
    for combination in product(*choices):
        name = "".join(combination)
        if not _NAME.fullmatch(name):
            raise _bad(whole, f"{_short(name)} is not a host name")
        yield name


def _ranges(body: str, whole: str) -> list[str]:
    numbers: list[str] = []
    for item in body.split(","):
        found = _RANGE.fullmatch(item.strip())
        if not found:
            raise _bad(whole, f"{_short(item)} is not a number or a range")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise _bad(whole, f"the range {_short(item)} runs backwards")
        if len(numbers) + int(last) - int(first) >= MAX_HOSTS:
            raise _too_many(whole)
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return numbers


def fold(hosts: Iterable[str]) -> str:
    """The names as one expression, for people and `--exclude`; neighbours share a bracket."""
    runs: list[tuple[str, list[tuple[str, str]]]] = []  # (prefix, [(first, last)])
    for host in hosts:
        found = _NUMBERED.fullmatch(host)
        prefix, number = (found[1], found[2]) if found else (host, "")
        if runs and number and runs[-1][0] == prefix and runs[-1][1][-1][1]:
            ranges = runs[-1][1]
            last = ranges[-1][1]
            if int(number) == int(last) + 1 and len(number) == len(
                str(int(last) + 1).zfill(len(last))
            ):
                ranges[-1] = (ranges[-1][0], number)
            else:
                ranges.append((number, number))
        else:
            runs.append((prefix, [(number, number)]))
    return ",".join(_fold_one(prefix, ranges) for prefix, ranges in runs)


def _fold_one(prefix: str, ranges: list[tuple[str, str]]) -> str:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return prefix + ranges[0][0]
    return f"{prefix}[{','.join(a if a == b else f'{a}-{b}' for a, b in ranges)}]"


def counts(expression: str) -> tuple[int, ...]:
    """`8(x2),4` (SLURM_TASKS_PER_NODE) to (8, 8, 4), one a node; BadInput when malformed."""
    numbers: list[int] = []
    for item in expression.strip().split(","):
        found = _COUNT.fullmatch(item)
        if not found or len(numbers) + int(found[2] or 1) > MAX_HOSTS:
            raise BadInput(
                f"{_short(expression)} are not Slurm's counts per node", fix="write them as 8(x2),4"
            )
        numbers += [int(found[1])] * int(found[2] or 1)
    return tuple(numbers)


def _too_many(expression: str) -> BadInput:
    return _bad(expression, f"more than {MAX_HOSTS} hosts")


def _bad(expression: str, why: str) -> BadInput:
    return BadInput(
        f"{_short(expression)} is not a Slurm node list: {why}", fix="write it as node[01-04],gpu7"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
