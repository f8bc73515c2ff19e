"""GPUDirect RDMA: can a NIC read and write GPU memory on this node. Pure.

NCCL's IB transport takes nvidia_peermem (or the older nv_mem below memory_peers), else DMA-BUF,
which needs CUDA's attribute and a kernel of 5.12 or newer (the version is common knowledge; see the
vendor's page). EFA and Slingshot have ways of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurmmiles.findings import about, fail, unknown, warn
from slurmmiles.report import Finding
from slurmmiles.systree import Tree

DMABUF_KERNEL = (5, 12)
OWN_WAY = ("slingshot", "efa", "ethernet")


@dataclass(frozen=True, slots=True)
class GdrFacts:
    """What one node offers; None: it could not be asked."""

    peermem: bool
    memory_peers: bool
    dmabuf: bool | None = None
    kernel: str = ""


def read_modules(tree: Tree) -> tuple[bool, bool]:
    """(nvidia_peermem or nv_peer_mem is loaded, something is registered below memory_peers)."""
    loaded = any(tree.exists(f"/sys/module/{m}") for m in ("nvidia_peermem", "nv_peer_mem"))
    return loaded, bool(tree.entries("/sys/kernel/mm/memory_peers"))


def kernel_version(release: str) -> tuple[int, int] | None:
    """`5.15.0-1053-nvidia` to (5, 15)."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", release, re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


def judge_gdr(
    facts: GdrFacts, node: str = "", fabric: str = "", *, old_nvshmem: bool = False
) -> list[Finding]:
    """gdr_unavailable; gdr_nvshmem_path where `old_nvshmem` looks only at memory_peers."""
    if fabric in OWN_WAY:
        return []
    subject = about(node=node)
    if facts.peermem or facts.memory_peers:
        return [_old_path(subject)] if old_nvshmem and not facts.memory_peers else []
    kernel = kernel_version(facts.kernel)
    works = None if facts.dmabuf and kernel is None else facts.dmabuf
    if works and kernel is not None:
        works = kernel >= DMABUF_KERNEL
    if works:
        return [_old_path(subject)] if old_nvshmem else []
    seen: dict[str, str | bool | None] = {"dmabuf": facts.dmabuf, "kernel": facts.kernel or None}
    if works is None:
        return [
            unknown(
                "gdr_unknown",
                subject,
                "no peer-memory module is loaded, and it is not known whether DMA-BUF works",
                "run the check with CUDA on the node",
                **seen,
            )
        ]
    return [
        fail(
            "gdr_unavailable",
            subject,
            "neither a peer-memory module nor DMA-BUF is there: traffic goes through host memory"
            " at about half the speed",
            "load nvidia_peermem, or use a kernel of 5.12 or newer with the open driver",
            **seen,
        )
    ]


def _old_path(subject: str) -> Finding:
    return warn(
        "gdr_nvshmem_path",
        subject,
        "this NVSHMEM looks only below /sys/kernel/mm/memory_peers, which is empty",
        "use a newer NVSHMEM, or load nv_peer_mem",
    )
