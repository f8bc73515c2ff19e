"""The `Fabric` part of `nvidia-smi -q`: are the NVSwitches set up for each GPU. Pure.

A container cannot see the service nvidia-fabricmanager, so the state that the driver tells is what
decides; the service's own state is a hint for the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmmiles.findings import about, fail, unknown, unreadable
from slurmmiles.preflight.products import NvLink, product_of
from slurmmiles.preflight.text import plain
from slurmmiles.report import Finding

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


@dataclass(slots=True)
class FabricState:
    """One GPU's Fabric block."""

    gpu: str
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return self.fields.get("state", "")

    @property
    def status(self) -> str:
        return self.fields.get("status", "")

    @property
    def in_cluster(self) -> bool:
        """Whether it belongs to a multi-node NVLink domain."""
        uuid = self.fields.get("clusteruuid", "")
        return bool(uuid) and uuid not in (NO_CLUSTER, "N/A")


def parse_fabric(text: str) -> list[FabricState]:
    """The Fabric blocks of `nvidia-smi -q`, in order; lines of other sections are skipped."""
    found: list[FabricState] = []
    depth: int | None = None
    for line in plain(text).splitlines():
        row = line.strip()
        indent = len(line) - len(line.lstrip())
        if gpu := _GPU.fullmatch(row):
            found.append(FabricState(gpu[1]))
            depth = None
        elif row == "Fabric":
            depth = indent
        elif depth is not None and row and indent <= depth:
            depth = None
        elif depth is not None and found and ":" in row:
            key, _, value = row.partition(":")
            found[-1].fields.setdefault(key.strip().lower(), value.strip())
    return found


def judge_fabric(
    text: str, product: str, node: str = "", *, service: str = "", file: str = "fabric.txt"
) -> list[Finding]:
    """fabric_not_ready on products whose GPUs stand on NVSwitches; `product` as nvidia-smi names
    it, "" when it is not known.
    """
    gpus = parse_fabric(text)
    if not gpus or any(not g.state for g in gpus):
        return [unreadable(file, "a GPU has no Fabric state", node)]
    known = product_of(product) if product else None
    needed = known is None or known.nvlink is NvLink.BOARD
    findings = []
    for gpu in gpus:
        state = gpu.state.lower()
        if state == "completed" and gpu.status.lower() in ("success", "n/a", ""):
            continue
        if state in ("n/a", "not supported"):
            # Ampere has no such state; on newer boards with switches it should have one.
            if known is not None and known.fp8 and known.fabric_manager:
                findings.append(_no_state(gpu, node))
            continue
        if needed:
            findings.append(_not_ready(gpu, node, service))
    return findings


def _not_ready(gpu: FabricState, node: str, service: str) -> Finding:
    hint = f" (the service is {service})" if service else ""
    return fail(
        "fabric_not_ready",
        about(node=node, gpu=gpu.gpu.lower()),
        f"its NVLink fabric is {gpu.state!r} with status {gpu.status!r}: CUDA fails with error 802,"
        " or NVLS does later",
        f"start nvidia-fabricmanager in the driver's version{hint}; NCCL_NVLS_ENABLE=0 lets a job"
        " start at about four fifths of the all-reduce speed",
        state=gpu.state,
        status=gpu.status,
    )


def _no_state(gpu: FabricState, node: str) -> Finding:
    return unknown(
        "fabric_state_unknown",
        about(node=node, gpu=gpu.gpu.lower()),
        "this product stands on NVSwitches and its driver tells no fabric state",
        "look at nvidia-smi -q on the node and at the service nvidia-fabricmanager",
    )


def has_cluster(texts: Mapping[str, str]) -> bool:
    """Whether some GPU of some node belongs to a multi-node NVLink domain."""
    return any(g.in_cluster for text in texts.values() for g in parse_fabric(text))
