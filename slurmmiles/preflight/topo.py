"""`nvidia-smi topo -m`: is every pair of GPUs joined as its product should be. Pure.

The table is tab-separated; its header begins with a tab and may be underlined by escapes; it ends
at the first empty line. NIC names stand in the legend below it. Old drivers used the names of the
NICs as columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from slurmmiles.preflight.text import plain

_NV = re.compile(r"NV(\d{1,3})", re.ASCII)
_FAR = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_NEAR = ("PIX", "PXB")
_NIC = re.compile(r"NIC\d{1,4}", re.ASCII)
_GPU = re.compile(r"GPU\d{1,4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Topology:
    """Names in the order of the header; `cells` by (row, column), self cells left out."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]
    legend: Mapping[str, str]
    """NIC0 to mlx5_0: the number in the table is not the device's."""

    def links(self, a: str, b: str) -> int:
        """NVLinks between two GPUs; 0 where the pair goes over PCIe."""
        found = _NV.fullmatch(self.cells[a, b])
        return int(found[1]) if found else 0

    def near_nics(self, gpu: str) -> tuple[str, ...]:
        """NICs below the same PCIe switches as `gpu` (PIX or PXB), by device name."""
        return tuple(
            self.legend.get(nic, nic)
            for nic in self.nics
            if self.cells.get((gpu, nic), self.cells.get((nic, gpu))) in _NEAR
        )

    @property
    def compute_nics(self) -> tuple[str, ...]:
        """NICs near some GPU, in the table's order; the others are front end or storage."""
        near = {nic for gpu in self.gpus for nic in self.near_nics(gpu)}
        return tuple(n for n in (self.legend.get(nic, nic) for nic in self.nics) if n in near)


class BadTable(ValueError):
    """The text is not a whole topology table; the message says why."""


def parse_topology(text: str) -> Topology:
    """The table; BadTable for anything that is not one, or that is cut short."""
    lines = plain(text).split("\n")
    start = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    if start is None:
        raise BadTable("there is no header line with GPU0")
    columns = [c for c in re.split(r"\t+| {2,}", lines[start].strip()) if c]
    # Every column before the affinities is a device, whatever its name.
    devices = list(takewhile(lambda c: "Affinity" not in c and "NUMA" not in c, columns))
    if len(set(devices)) != len(devices):
        raise BadTable("the header names a device twice")
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].strip()), len(lines))
    cells = _cells(lines[start + 1 : end], devices)
    gpus = tuple(d for d in devices if _GPU.fullmatch(d))
    for a in gpus:
        for b in gpus:
            if a != b and cells[a, b] != cells[b, a]:
                raise BadTable(
                    f"{a}-{b} is {cells[a, b]} in one row and {cells[b, a]} in the other"
                )
    nics = tuple(d for d in devices if d not in gpus)
    legend = _legend(lines[end:], nics)
    nameless = [n for n in nics if _NIC.fullmatch(n) and n not in legend]
    if nameless or len(set(legend.values())) != len(legend):
        raise BadTable(f"the legend below it does not name {nameless[0] if nameless else 'each'}")
    return Topology(gpus, nics, cells, legend)


def _is_header(line: str) -> bool:
    words = line.split()
    return len(words) > 0 and words[0] == "GPU0" and (len(words) == 1 or words[1] not in ("X", "-"))


def _cells(rows: Sequence[str], devices: Sequence[str]) -> dict[tuple[str, str], str]:
    cells: dict[tuple[str, str], str] = {}
    seen: list[str] = []
    for row in rows:
        fields = [f.strip() for f in re.split(r"\t| {2,}", row.strip()) if f.strip()]
        name, values = fields[0], fields[1 : len(devices) + 1]
        if name not in devices or name in seen or len(values) < len(devices):
            raise BadTable(f"the row of {name[:20]!r} is cut or is of no device in the header")
        seen.append(name)
        for column, value in zip(devices, values, strict=True):
            if (value == "X") is not (name == column):
                raise BadTable(f"{name}-{column} is {value[:20]!r}")
            if value != "X" and value not in _FAR and not _NV.fullmatch(value):
                raise BadTable(f"{name}-{column} is {value[:20]!r}, which is no kind of connection")
            if value != "X":
                cells[name, column] = value
    if missing := [d for d in devices if d not in seen]:
        raise BadTable(f"there is no row of {', '.join(missing[:4])}")
    return cells


def _legend(lines: Sequence[str], nics: Sequence[str]) -> dict[str, str]:
    named = (re.fullmatch(r"\s*(NIC\d{1,4}):\s*(\S+)\s*", line) for line in lines)
    return {m[1]: m[2] for m in named if m and m[1] in nics}
