"""Pinned copies between host and GPU: against what the PCIe link can do. Pure.

A generation 5 x16 link moves 63 GB/s each way by its encoding, and 52 to 55 are measured (AzNHC
asks 48, OCI 52); half of it is what x8 or generation 4 give.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from slurmmiles.findings import about, fail
from slurmmiles.report import Finding

# GB/s of x16 in one direction that a healthy pinned copy reaches at least, by generation.
FLOORS = {3: 10.0, 4: 20.0, 5: 48.0}


@dataclass(frozen=True, slots=True)
class HostCopy:
    """GB/s of one GPU."""

    gpu: int
    h2d: float
    d2h: float


def judge_copies(
    copies: Sequence[HostCopy],
    generation: int = 5,
    node: str = "",
    *,
    explained: Collection[int] = (),
) -> list[Finding]:
    """host_copy_low below the floor of the link's generation; GPUs in `explained` have a finding
    about their link already, which the copy only confirms.
    """
    floor = FLOORS.get(generation)
    if floor is None:
        return []
    return [
        fail(
            "host_copy_low",
            about(node=node, gpu=copy.gpu),
            f"{copy.h2d:.1f} GB/s to the GPU and {copy.d2h:.1f} back, where {floor:g} are the least"
            f" for PCIe {generation} x16",
            "look at the width and generation of its PCIe link under load, and at NUMA binding",
            h2d=copy.h2d,
            d2h=copy.d2h,
        )
        for copy in copies
        if copy.gpu not in explained and min(copy.h2d, copy.d2h) < floor
    ]
