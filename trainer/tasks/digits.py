"""Copy, reverse or add numbers of a fixed count of digits."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from trainer.types import Problem


class Task(Protocol):
    """Draws problems; `answer_len` bounds the characters of any right answer."""

    def __init__(self, digits: int) -> None: ...

    @property
    def answer_len(self) -> int: ...

    def draw(self, rng: random.Random) -> Problem: ...


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(count))


@dataclass(frozen=True, slots=True)
class Copy:
    """`472=` -> `472`."""

    digits: int

    @property
    def answer_len(self) -> int:
        return self.digits

    def draw(self, rng: random.Random) -> Problem:
        text = _digits(rng, self.digits)
        return Problem(f"{text}=", text)


@dataclass(frozen=True, slots=True)
class Reverse:
    """`472=` -> `274`."""

    digits: int

    @property
    def answer_len(self) -> int:
        return self.digits

    def draw(self, rng: random.Random) -> Problem:
        text = _digits(rng, self.digits)
        return Problem(f"{text}=", text[::-1])


@dataclass(frozen=True, slots=True)
class Addition:
    """`47+08=` -> `055`: numbers are padded with zeros, the sum to one digit more."""

    digits: int

    @property
    def answer_len(self) -> int:
        return self.digits + 1

    def draw(self, rng: random.Random) -> Problem:
        a, b = _digits(rng, self.digits), _digits(rng, self.digits)
        return Problem(f"{a}+{b}=", str(int(a) + int(b)).zfill(self.digits + 1))
