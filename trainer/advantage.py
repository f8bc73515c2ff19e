"""GRPO's advantage: how much better a sample is than the others of its own prompt."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

EPSILON = 1e-6  # keeps a group of equal rewards at advantage 0 instead of 0/0


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + EPSILON) over one group, population std; zero when all are equal.

    Source: GRPO, equation 3 of arXiv:2402.03300 (outcome supervision).
    """
    mean, std = fmean(rewards), pstdev(rewards)
    return [(reward - mean) / (std + EPSILON) for reward in rewards]
