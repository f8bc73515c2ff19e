"""How far two PCI devices are from each other, in the words of `nvidia-smi topo -m`. Pure.

Paths are real sysfs paths: /sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0 goes
from the host bridge over a root port and the ports of switches to the device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

_BDF = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}")
UNKNOWN_NUMA = -1


class Distance(IntEnum):
    """Nearest first; the meaning of each is in nvidia-smi's own legend."""

    PIX = 0
    PXB = 1
    PHB = 2
    NODE = 3
    SYS = 4


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device's real sysfs path and its NUMA node (-1: the platform does not say)."""

    path: str
    numa: int = UNKNOWN_NUMA

    @property
    def bdf(self) -> str:
        """Domain:bus:device.function, or "" for a path that is not of a PCI device."""
        chain = self.chain
        return chain[-1] if chain and _BDF.fullmatch(chain[-1]) else ""

    @property
    def card(self) -> str:
        """The address without its function: two ports of one card share it."""
        return self.bdf.rpartition(".")[0]

    @property
    def chain(self) -> tuple[str, ...]:
        """Host bridge, bridges and the device, outermost first; other parts of the path are cut."""
        parts = self.path.split("/")
        return tuple(p for p in parts if _BDF.fullmatch(p) or _HOST_BRIDGE.fullmatch(p))


def short_bdf(text: str) -> str:
    """NVML's and nvidia-smi's 00000000:1B:00.0 as sysfs writes it, 0000:1b:00.0."""
    domain, colon, rest = text.strip().lower().partition(":")
    while len(domain) > 4 and domain.startswith("0"):
        domain = domain[1:]
    return f"{domain}{colon}{rest}"


def distance(a: PciDevice, b: PciDevice) -> Distance | None:
    """None when either path is not of a PCI device.

    The common leading parts of the two paths are dropped. What is left before the devices are
    bridges: a port of the switch that both share, then two (up, down) for each further switch.
    """
    if not a.bdf or not b.bdf:
        return None
    left, right = a.chain, b.chain
    if left[0] != right[0]:
        known = UNKNOWN_NUMA not in (a.numa, b.numa)
        return Distance.NODE if known and a.numa == b.numa else Distance.SYS
    common = 0
    while common < min(len(left), len(right)) and left[common] == right[common]:
        common += 1
    if common == 1 and len(left) > 1 and len(right) > 1:
        return Distance.PHB
    bridges = [max(0, len(chain) - common - 1) for chain in (left, right)]
    switches = sum(n // 2 for n in bridges) + max(n % 2 for n in bridges)
    return Distance.PIX if switches <= 1 else Distance.PXB


def distances(
    gpus: Mapping[str, PciDevice], nics: Mapping[str, PciDevice]
) -> dict[str, dict[str, Distance | None]]:
    """GPU name to NIC name to distance."""
    return {g: {n: distance(gpu, nic) for n, nic in nics.items()} for g, gpu in gpus.items()}


def nearest(
    gpus: Mapping[str, PciDevice], nics: Mapping[str, PciDevice], order: Sequence[str] = ()
) -> dict[str, str | None] | None:
    """GPU name to its nearest NIC, the first in `order` (default: as given) where several are.

    None, instead of a guess, when every NIC is equally far from every GPU: so it looks in a virtual
    machine without a topology file (nccl-tests#256).
    """
    table = distances(gpus, nics)
    seen = {d for row in table.values() for d in row.values()}
    if len(nics) > 1 and len(seen) <= 1:
        return None
    names = [n for n in order if n in nics] or list(nics)
    return {
        gpu: min(
            (n for n in names if row[n] is not None),
            key=lambda n: row[n] or 0,
            default=None,
        )
        for gpu, row in table.items()
    }
