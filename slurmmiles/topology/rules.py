"""Broken layout rules: all at once, each with its numbers, and the nearest values that work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from slurmmiles.errors import BadInput

MAX_WORLD = 131_072
"""More ranks than any machine has: a larger number is a slip, and would only cost memory here."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: `what` has its numbers, `key` is the setting to change, as in `--set`."""

    key: str
    what: str
    also: tuple[str, ...] = ()
    """Other settings that could mend it."""


def too_small(values: dict[str, int]) -> list[Violation]:
    """A violation for each value below 1."""
    return [
        Violation(key, f"{value} is not a count: it must be at least 1")
        for key, value in values.items()
        if value < 1
    ]


def too_large(nodes: int, ranks_per_node: int) -> list[Violation]:
    """A violation when the ranks are more than any machine has."""
    world = nodes * ranks_per_node
    if world <= MAX_WORLD:
        return []
    what = f"{nodes} nodes x {ranks_per_node} are {world} ranks, more than {MAX_WORLD}"
    return [Violation("nodes", what)]


def divides(
    key: str, whole: int, part: int, what: str, also: tuple[str, ...] = ()
) -> list[Violation]:
    """A violation that says `what`, unless `part` divides `whole`."""
    return [] if whole % part == 0 else [Violation(key, what, also)]


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def candidates(field: str, nodes: int, ranks_per_node: int) -> Iterable[int]:
    """Values worth trying for a field: node counts, else divisors of the number of ranks."""
    if too_small({"": nodes, " ": ranks_per_node}) or too_large(nodes, ranks_per_node):
        return (1, 2, 4, 8, 16, 32, 64, 128)
    return (
        range(1, min(4 * nodes + 64, 4096))
        if field == "nodes"
        else divisors(nodes * ranks_per_node)
    )


def nearest(
    value: int, tried: Iterable[int], works: Callable[[int], bool], each_side: int = 2
) -> list[int]:
    """The tried values closest to `value` that work, at most `each_side` below and above it."""
    others = sorted(set(tried) - {value})
    found: list[int] = []
    for side in ([c for c in reversed(others) if c < value], [c for c in others if c > value]):
        wanted = each_side
        for candidate in side:
            if wanted and works(candidate):
                found.append(candidate)
                wanted -= 1
    return sorted(found)


def refuse(
    violations: Sequence[Violation],
    suggest: Callable[[str], tuple[object, list[int] | str]],
) -> NoReturn:
    """Raise one BadInput with all `violations`, and for each setting at fault what would work.

    `suggest(key)` gives the value now, and either values that work or the advice in words.
    """
    keys = dict.fromkeys(key for v in violations for key in (v.key, *v.also))
    advice = [text for key in keys if (text := _advice(key, suggest(key)[1]))]
    fix = "; ".join(advice) or "no other value of one setting alone mends this: change several"
    if len(violations) == 1:
        raise BadInput(violations[0].what, where=violations[0].key, fix=fix)
    lines = "\n".join(f"  {v.key}: {v.what}" for v in violations)
    raise BadInput(f"{len(violations)} rules are broken:\n{lines}", where="layout", fix=fix)


def _advice(key: str, working: list[int] | str) -> str:
    """What works for `key` with the rest as it is, or nothing."""
    if isinstance(working, str):
        return working
    words = [str(v) for v in working]
    listed = " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
    return f"{key} works at {listed}" if listed else ""
