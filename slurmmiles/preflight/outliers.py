"""The GPU, or anything that is measured alike everywhere, that is slower than the others. Pure.

Against the job's own median first (one slow GPU sets the pace of all), and against a floor of the
product only as a warning: a whole set is low by a power cap or by other data, and no node is at
fault. Random data and a warm-up matter: zeros run faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from slurmmiles.findings import about, fail, warn
from slurmmiles.report import Finding

RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Speed:
    """One measurement: TFLOP/s, GB/s or MB/s, more is better."""

    node: str
    value: float
    gpu: int | None = None

    @property
    def subject(self) -> str:
        return about(node=self.node, gpu="" if self.gpu is None else self.gpu)


@dataclass(frozen=True, slots=True)
class Kind:
    """What was measured: the code of an outlier and of a low set, the unit, the words."""

    outlier: str
    low_set: str
    what: str
    unit: str


GEMM = Kind("gpu_slow_outlier", "gpu_set_low", "bf16 matrix multiplication", "TFLOP/s")
HOST_COPY = Kind("host_copy_outlier", "host_copy_set_low", "copy between host and GPU", "GB/s")
PEER_COPY = Kind("peer_copy_outlier", "peer_copy_set_low", "copy between GPUs", "GB/s")


def judge_speeds(
    speeds: Sequence[Speed], kind: Kind, floor: float | None = None, ratio: float = RATIO
) -> list[Finding]:
    """`kind.outlier` for each below `ratio` of the median, `kind.low_set` when the median itself
    is below `floor`, or the only value is.
    """
    if not speeds:
        return []
    median = statistics.median(s.value for s in speeds)
    findings = [
        fail(
            kind.outlier,
            s.subject,
            f"{kind.what} at {s.value:.1f} {kind.unit}, {1 - s.value / median:.0%} below the"
            f" median of {median:.1f}",
            "measure it once more; if it stays, leave it out and look at heat, power and clocks",
            value=s.value,
            median=median,
        )
        for s in speeds
        if median > 0 and s.value < ratio * median
    ]
    if floor is not None and median < floor:
        findings.append(
            warn(
                kind.low_set,
                about(job=kind.low_set.removesuffix("_set_low")),
                f"{kind.what} is low everywhere: the median is {median:.1f} {kind.unit}, and"
                f" {floor:g} are usual; no node is left out",
                "look at power caps and cooling of the whole set",
                median=median,
                floor=floor,
            )
        )
    return findings
