"""Cost and speed of a run as arithmetic: GPU-hours, tokens/s/GPU, MFU, $ per token, CV; pure.

Definitions are those of the OpenRecipes results, which these functions reproduce from step counts
and tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from slurmmiles.errors import BadInput

FLOPS_PER_PARAMETER = 6
"""Of one token in training: 2 forward and 4 backward for each active parameter (Kaplan et al.
2020, appendix B), attention scores not counted."""


def window_tokens(first: int, last: int, rows: int, row_tokens: int) -> int:
    """Tokens of the steps `first` to `last`, both included, of `rows` rows each."""
    if not 0 <= first <= last or rows < 1 or row_tokens < 1:
        raise BadInput(f"steps {first} to {last} of {rows} x {row_tokens} tokens are no window")
    return (last - first + 1) * rows * row_tokens


def tokens_per_second_per_gpu(tokens: float, seconds: float, gpus: int) -> float:
    """Throughput of a window: tokens over seconds over GPUs."""
    return tokens / _positive(seconds, "seconds") / _positive(gpus, "GPUs")


def usd_per_million_tokens(usd_per_hour: float, tokens_per_s_per_gpu: float) -> float:
    """What 1e6 tokens cost at a price of one GPU-hour."""
    return usd_per_hour / (_positive(tokens_per_s_per_gpu, "tokens/s/GPU") * 3600) * 1e6


def usd_per_gpu_hour(usd_per_million: float | None, tokens_per_s: float | None) -> float | None:
    """The price of one GPU-hour that a result implies; None when it states no price or speed."""
    if not usd_per_million or not tokens_per_s:
        return None
    return usd_per_million * tokens_per_s * 3600 / 1e6


def mfu(active_parameters: int, tokens_per_s_per_gpu: float, peak_tflops: float) -> float:
    """Model FLOPs utilisation: 6 N tokens/s over the GPU's dense peak (Chowdhery et al. 2022)."""
    flops = FLOPS_PER_PARAMETER * active_parameters * tokens_per_s_per_gpu
    return flops / (_positive(peak_tflops, "TFLOP/s") * 1e12)


def variation_percent(step_seconds: Sequence[float]) -> float:
    """Coefficient of variation of step times: their standard deviation over their mean, in %."""
    if len(step_seconds) < 2:
        raise BadInput(f"{len(step_seconds)} step has no variation")
    mean = _positive(sum(step_seconds) / len(step_seconds), "mean step time")
    spread = sum((s - mean) ** 2 for s in step_seconds) / (len(step_seconds) - 1)
    return 100 * sqrt(spread) / mean


def gpu_hours(gpus: int, seconds: float) -> float:
    """GPU-hours of a job, from admission to finish."""
    return gpus * seconds / 3600


def usd(hours: float, price: float | None) -> float | None:
    """What these GPU-hours cost; None without a price."""
    return None if price is None else hours * price


def _positive(value: float, what: str) -> float:
    if not value > 0:
        raise BadInput(f"{value} {what}: a number above 0 is wanted")
    return value
