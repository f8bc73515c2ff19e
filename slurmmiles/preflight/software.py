"""Versions and settings that must agree between the nodes of a job, or within one node. Pure.

The reference is the most common value, never the head's: the head may be the odd one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slurmmiles.env_launch import PER_NODE
from slurmmiles.findings import about, fail, warn
from slurmmiles.report import Finding

# What a difference between nodes costs: a driver or NCCL that differs fails or hangs.
MUST_AGREE = {"driver": "driver_skew", "torch_nccl": "nccl_skew", "nvshmem_host": "nvshmem_skew"}
SHOULD_AGREE = (
    "cuda",
    "libfabric",
    "aws_ofi_nccl",
    "sglang_nccl",
    "transformer_engine",
    "flash_attention",
    "deep_gemm",
    "deep_ep",
    "kernel",
    "gpu",
)


@dataclass(frozen=True, slots=True)
class Software:
    """One node's versions by name (see MUST_AGREE, SHOULD_AGREE, and `fabricmanager`,
    `nvshmem_device`) and the environment that its workers have; None: unset.
    """

    versions: Mapping[str, str | None]
    env: Mapping[str, str | None] = field(default_factory=dict)


def judge_software(nodes: Mapping[str, Software], *, colocate: bool = True) -> list[Finding]:
    """driver_skew, fabricmanager_driver_mismatch, nvshmem_host_device_mismatch, env_skew,
    nccl_version_mismatch, and version_skew for what should agree.
    """
    findings: list[Finding] = []
    for key, code in MUST_AGREE.items():
        findings += _skew(nodes, key, code, must=True)
    for key in SHOULD_AGREE:
        findings += _skew(nodes, key, "version_skew", must=False)
    findings += _env_skew(nodes)
    for node, software in nodes.items():
        findings += _within(node, software, colocate=colocate)
    return findings


def usual(values: Mapping[str, str | None]) -> str | None:
    """The most common value that is known; None when several are equally common."""
    counts = Counter(v for v in values.values() if v).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return None
    return counts[0][0]


def _skew(nodes: Mapping[str, Software], key: str, code: str, *, must: bool) -> Iterator[Finding]:
    values = {node: s.versions.get(key) for node, s in nodes.items()}
    judge = fail if must else warn
    if len({v for v in values.values() if v}) < 2:
        return
    reference = usual(values)
    if reference is None:
        shown = ", ".join(f"{node} {v}" for node, v in values.items() if v)
        yield judge(
            code,
            about(job=key),
            f"the nodes have different versions of {key}, none of them most common: {shown}",
            "install one version, or take nodes that agree",
        )
        return
    for node, value in values.items():
        if value and value != reference:
            yield judge(
                code,
                about(node=node),
                f"{key} is {value} there and {reference} on most nodes",
                "install one version, or leave the node out",
                value=value,
                usual=reference,
            )


def _env_skew(nodes: Mapping[str, Software]) -> Iterator[Finding]:
    """Ranks that disagree on a tuning variable can hang (nccl#1328, nccl#626)."""
    with_env = {node: s.env for node, s in nodes.items() if s.env}
    for name in sorted({n for env in with_env.values() for n in env} - PER_NODE):
        values = {node: env.get(name) for node, env in with_env.items()}
        if len(set(values.values())) < 2:
            continue
        counts = Counter(values.values()).most_common(2)
        tie = counts[0][1] == counts[1][1]
        odd = list(values) if tie else [n for n, v in values.items() if v != counts[0][0]]
        for node in odd:
            yield fail(
                "env_skew",
                about(node=node, var=name),
                f"{name} is {_shown(values[node])} there and elsewhere"
                f" {_shown(counts[0][0] if values[node] != counts[0][0] else counts[1][0])}",
                "give all nodes the same value; only names of interfaces and devices may differ",
                value=values[node],
            )


def _shown(value: str | None) -> str:
    return "unset" if value is None else repr(value)


def _within(node: str, software: Software, *, colocate: bool) -> Iterator[Finding]:
    said = software.versions
    driver, manager = said.get("driver"), said.get("fabricmanager")
    if driver and manager and driver != manager:
        yield fail(
            "fabricmanager_driver_mismatch",
            about(node=node),
            f"nvidia-fabricmanager is {manager} and the driver is {driver}; they must be the same",
            "install the fabric manager of the driver's version",
            driver=driver,
            fabricmanager=manager,
        )
    host, device = said.get("nvshmem_host"), said.get("nvshmem_device")
    if host and device and host != device:
        yield fail(
            "nvshmem_host_device_mismatch",
            about(node=node),
            f"NVSHMEM's host library is {host} and its device library {device} (Automodel#2614)",
            "build DeepEP against the NVSHMEM that is loaded",
            host=host,
            device=device,
        )
    torch_nccl, sglang_nccl = said.get("torch_nccl"), said.get("sglang_nccl")
    if torch_nccl and sglang_nccl and torch_nccl != sglang_nccl:
        judge = fail if colocate else warn
        yield judge(
            "nccl_version_mismatch",
            about(node=node),
            f"torch loads NCCL {torch_nccl} and SGLang NCCL {sglang_nccl}, and a weight update puts"
            " both into one communicator",
            "set SGLANG_NCCL_SO_PATH and LD_PRELOAD to one library",
            torch_nccl=torch_nccl,
            sglang_nccl=sglang_nccl,
        )
