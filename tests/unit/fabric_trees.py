"""Kernel trees of nodes, written as a machine would show them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurmmiles.nics import NodeNics
from slurmmiles.sysfs import read_node
from slurmmiles.systree import DiskTree, TextTree

ROUTE = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
GID4 = "0000:0000:0000:0000:0000:ffff:0a00:0001"
GID6 = "fd00:0000:0000:0000:0000:0000:0000:0001"


def verbs(
    names: Sequence[str], layer: str = "InfiniBand", *, down: Sequence[str] = (), vendor: str = ""
) -> dict[str, str]:
    """Devices with one port each."""
    files: dict[str, str] = {}
    for name in names:
        port = f"/sys/class/infiniband/{name}/ports/1"
        files[f"{port}/state"] = "1: DOWN" if name in down else "4: ACTIVE"
        files[f"{port}/rate"] = "400 Gb/sec (4X NDR)"
        files[f"{port}/link_layer"] = layer
        if vendor:
            files[f"/sys/class/infiniband/{name}/device/vendor"] = vendor
    return files


def gids(name: str, entries: dict[int, tuple[str, str]]) -> dict[str, str]:
    files: dict[str, str] = {}
    for index, (value, kind) in entries.items():
        files[f"/sys/class/infiniband/{name}/ports/1/gids/{index}"] = value
        files[f"/sys/class/infiniband/{name}/ports/1/gid_attrs/types/{index}"] = kind
    return files


def slingshot(count: int = 4) -> dict[str, str]:
    files: dict[str, str] = {}
    for i in range(count):
        files[f"/sys/class/cxi/cxi{i}/device/numa_node"] = str(i)
        files[f"/sys/class/net/hsn{i}/speed"] = "200000"
        files[f"/sys/class/net/hsn{i}/operstate"] = "up"
    return files


def nics_of(files: dict[str, str]) -> NodeNics:
    return read_node(TextTree.parse("".join(f"{p} = {c}\n" for p, c in files.items())))


def on_disk(root: Path, files: dict[str, str]) -> NodeNics:
    """The same tree as files below `root`."""
    for path, content in files.items():
        at = root / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(content + "\n")
    return read_node(DiskTree(root))
