"""What each GPU product should show: NVLink between pairs, links, FP8, PCIe, and floors. Pure.

Sources: NVIDIA's data sheets and HGX/DGX system guides (links of a GPU; HGX boards of 4 GPUs are
wired directly, so that each pair has a third of the links: 18 -> 6, 12 -> 4); `nvidia-smi nvlink
-s` prints raw rates (26.562 GB/s on Hopper, 53.125 on Blackwell, 25 on Ampere); H100 NVL shows 18
links of which 12 are wired (azurehpc-health-checks#162).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class NvLink(Enum):
    """How the GPUs of a node are joined beyond PCIe."""

    NONE = "none"
    BRIDGE = "bridge"
    """PCIe cards that a person may join in pairs or fours, or leave alone."""
    PAIRS = "pairs"
    """PCIe cards that are sold with their bridges (NVL)."""
    BOARD = "board"
    """SXM and superchips: every GPU of the node has NVLink to every other."""
    MESH = "mesh"
    """V100 and P100 boards without a switch: pairs differ by design."""


@dataclass(frozen=True, slots=True)
class Product:
    """One row of the table; `name` is the row's, not the device's."""

    name: str
    nvlink: NvLink
    links: int = 0
    """Links that are wired, of one GPU."""
    link_gb_s: float = 0.0
    """Raw rate of one link, one direction, as nvidia-smi prints it."""
    fp8: bool = False
    bf16: bool = True
    fabric_manager: bool = False
    """It stands on NVSwitches, which the fabric manager must have set up (Hopper and newer tell
    their own state)."""
    multi_node: bool = False
    """A board that may belong to a multi-node NVLink domain (GB200, GB300, GH200 NVL32)."""
    bf16_floor: float | None = None
    """TFLOP/s of dense bf16 with random data below which a whole set is called low: a warning."""

    def pair_counts(self, gpus: int) -> frozenset[int]:
        """The NV numbers that a pair may show on a board of which `gpus` are seen; empty: any."""
        if self.nvlink is not NvLink.BOARD or not self.links:
            return frozenset()
        direct = {self.links // 3} if gpus <= 4 and self.links % 3 == 0 else set()
        return frozenset({self.links} | direct)


_HOPPER, _BLACKWELL, _AMPERE = 26.562, 53.125, 25.0
# First match wins: the names that hold another's name stand above it.
_TABLE: tuple[tuple[str, Product], ...] = (
    (r"GB[23]00", Product("GB200", NvLink.BOARD, 18, _BLACKWELL, fp8=True, multi_node=True)),
    (r"GH200", Product("GH200", NvLink.BOARD, 18, _HOPPER, fp8=True, multi_node=True)),
    (r"B[123]00", Product("B200", NvLink.BOARD, 18, _BLACKWELL, fp8=True, fabric_manager=True)),
    (r"H200 NVL", Product("H200 NVL", NvLink.BRIDGE, 18, _HOPPER, fp8=True)),
    (
        r"H200",
        Product("H200", NvLink.BOARD, 18, _HOPPER, fp8=True, fabric_manager=True, bf16_floor=650.0),
    ),
    (r"H100 NVL", Product("H100 NVL", NvLink.PAIRS, 12, _HOPPER, fp8=True)),
    (r"H[18]00.*PCIe", Product("H100 PCIe", NvLink.BRIDGE, 12, _HOPPER, fp8=True)),
    (r"H800", Product("H800", NvLink.BOARD, 8, _HOPPER, fp8=True, fabric_manager=True)),
    (
        r"H100",
        Product(
            "H100 SXM", NvLink.BOARD, 18, _HOPPER, fp8=True, fabric_manager=True, bf16_floor=650.0
        ),
    ),
    (r"H20\b", Product("H20", NvLink.BOARD, 18, _HOPPER, fp8=True, fabric_manager=True)),
    (r"A100.*(PCIe|PCI-E)|A100 80GB PCIe", Product("A100 PCIe", NvLink.BRIDGE, 12, _AMPERE)),
    (r"A800.*SXM", Product("A800 SXM", NvLink.BOARD, 8, _AMPERE, fabric_manager=True)),
    (r"A800", Product("A800 PCIe", NvLink.BRIDGE, 8, _AMPERE)),
    (
        r"A100.*SXM",
        Product("A100 SXM", NvLink.BOARD, 12, _AMPERE, fabric_manager=True, bf16_floor=200.0),
    ),
    (r"A30\b", Product("A30", NvLink.BRIDGE, 4, _AMPERE)),
    (r"A40\b|RTX A[456]\d00", Product("A40", NvLink.BRIDGE, 4, 14.062)),
    (r"V100.*SXM|P100.*SXM", Product("V100 SXM", NvLink.MESH, 6, 25.781, bf16=False)),
    (r"V100|P100|P40|P4\b|T4\b|T4G|M60|K80", Product("before Ampere", NvLink.NONE, bf16=False)),
    (r"L40S?\b|L4\b|L20\b|L2\b|Ada Generation", Product("Ada", NvLink.NONE, fp8=True)),
    (r"RTX PRO .*Blackwell", Product("RTX PRO Blackwell", NvLink.NONE, fp8=True)),
    (r"A10G?\b|A16\b|A2\b", Product("Ampere without NVLink", NvLink.NONE)),
    (r"RTX (4\d|5\d)\d\d", Product("GeForce Ada or newer", NvLink.NONE, fp8=True)),
    (r"RTX 30\d\d", Product("GeForce Ampere", NvLink.BRIDGE, 4, 14.062)),
)
_ROWS = tuple((re.compile(p, re.IGNORECASE), product) for p, product in _TABLE)


def product_of(name: str) -> Product | None:
    """The row for a name as nvidia-smi prints it; None when it is not in the table."""
    return next((product for pattern, product in _ROWS if pattern.search(name)), None)
