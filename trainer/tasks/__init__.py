"""Toy tasks whose answers a program can check; prompts come from a seed, nothing is downloaded."""

from __future__ import annotations

import random

from trainer.config import Data
from trainer.tasks.digits import Addition, Copy, Reverse, Task

ALPHABET = "0123456789+="  # every character that any task writes

__all__ = ["ALPHABET", "Task", "make_task", "problem_rng", "score"]


def make_task(data: Data) -> Task:
    """The task that `data` names."""
    kinds: dict[str, type[Task]] = {"copy": Copy, "reverse": Reverse, "addition": Addition}
    return kinds[data.task](data.digits)


def problem_rng(seed: int, stage: str, step: int) -> random.Random:
    """The generator of one step's prompts: a resumed run draws the same ones."""
    return random.Random(f"{seed}/{stage}/{step}")


def score(answer: str, response: str) -> float:
    """The share of right characters, by position, of the longer text; 1 only when equal."""
    right = sum(a == b for a, b in zip(answer, response, strict=False))
    return right / max(len(answer), len(response))
