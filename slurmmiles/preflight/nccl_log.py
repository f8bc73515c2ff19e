"""Which transport NCCL really chose on each node, from its log (NCCL_DEBUG=INFO). Pure.

    n00:101:101 [0] NCCL INFO Using network IB
    n02:101:101 [0] NCCL INFO NET/IB : No device found.

Without NCCL_NET a missing plugin or device is only such a line, and the job goes on over TCP.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmmiles.findings import about, fail, unknown, unreadable, warn
from slurmmiles.preflight.text import plain
from slurmmiles.report import Finding

_LINE = re.compile(r"([A-Za-z0-9._-]+):(\d+):(\d+) \[(\d+)\] NCCL (\w+) (.*)", re.ASCII)
# `Using network X` to 2.28; newer versions assign a plugin to each communicator.
_NETWORK = re.compile(r"Using network (.+)|Assigned NET plugin (.+?) to comm", re.ASCII)
_GDR_ON, _GDR_OFF = re.compile(r"via NET/\S+/GDRDMA"), re.compile(r"via NET/\S+")
SOCKET = "socket"
_LIBFABRIC = ("aws libfabric", "libfabric", "ofi")
EXPECTED: Mapping[str, tuple[str, ...]] = {
    "infiniband": ("ib",),
    "roce": ("ib",),
    "slingshot": _LIBFABRIC,
    "efa": _LIBFABRIC,
    "ethernet": (SOCKET,),
}


@dataclass(slots=True)
class NodeLog:
    """What one host's lines say."""

    networks: set[str] = field(default_factory=set)
    gdr: set[bool] = field(default_factory=set)
    lines: int = 0


def parse_nccl_log(text: str) -> dict[str, NodeLog]:
    """Host to what it says; lines that are not NCCL's are skipped."""
    hosts: dict[str, NodeLog] = {}
    for line in plain(text).splitlines():
        found = _LINE.search(line)
        if not found:
            continue
        host = hosts.setdefault(found[1], NodeLog())
        host.lines += 1
        said = found[6].strip()
        if network := _NETWORK.fullmatch(said):
            host.networks.add((network[1] or network[2]).strip())
        elif _GDR_ON.search(said):
            host.gdr.add(True)
        elif _GDR_OFF.search(said):
            host.gdr.add(False)
    return hosts


def judge_nccl_log(text: str, fabric: str | None = None, file: str = "nccl.log") -> list[Finding]:
    """nccl_transport_differs, nccl_fell_back_to_socket, nccl_transport_unexpected, nccl_gdr_off.

    `fabric`: what detection says of the nodes; None: not known, and then the nodes are compared
    with each other only.
    """
    hosts = parse_nccl_log(text)
    if not any(h.networks for h in hosts.values()):
        return [unreadable(file, "no line of it says which network NCCL uses")]
    findings: list[Finding] = []
    for host, log in hosts.items():
        if not log.networks:
            findings.append(
                unknown(
                    "nccl_transport_unknown",
                    about(node=host),
                    "no line of its log says which network NCCL uses",
                    "look at its NCCL log up to `Using network`",
                )
            )
    chosen = {host: log.networks for host, log in hosts.items() if log.networks}
    findings += _differences(chosen)
    findings += _fallbacks(chosen, fabric)
    return findings + _direct(hosts)


def _is_socket(networks: set[str]) -> bool:
    return any(n.lower().startswith(SOCKET) for n in networks)


def _differences(chosen: Mapping[str, set[str]]) -> list[Finding]:
    """Nodes whose transport is not the most common one; with a tie, the ones on Socket, or all."""
    kinds = {host: "+".join(sorted(networks)) for host, networks in chosen.items()}
    counts = Counter(kinds.values())
    if len(counts) < 2:
        return []
    ranked = sorted(counts, key=lambda k: (counts[k], not k.lower().startswith(SOCKET)))
    usual = ranked[-1]
    return [
        fail(
            "nccl_transport_differs",
            about(node=host),
            f"NCCL uses {kind} there and {usual} on most nodes",
            "look for `NET/` lines above it in the log; export NCCL_NET so that this is an error",
            network=kind,
            usual=usual,
        )
        for host, kind in kinds.items()
        if kind != usual
    ]


def _fallbacks(chosen: Mapping[str, set[str]], fabric: str | None) -> list[Finding]:
    on_socket = [host for host, networks in chosen.items() if _is_socket(networks)]
    others = sorted({n for networks in chosen.values() for n in networks if not _is_socket({n})})
    wanted = EXPECTED.get(fabric or "")
    remedy = "export NCCL_NET (IB, or AWS Libfabric), which makes a missing device an error"
    if wanted == (SOCKET,):
        return []
    if len(on_socket) == len(chosen):
        if wanted is None:
            return [
                warn(
                    "nccl_on_tcp",
                    about(job="nccl"),
                    "NCCL uses TCP on every node; that is right only where there is nothing faster",
                    remedy,
                )
            ]
        return [
            fail(
                "nccl_fell_back_to_socket",
                about(job="nccl"),
                f"NCCL uses TCP on every node, and their fabric is {fabric}; no single node is at"
                " fault",
                remedy,
            )
        ]
    findings = [
        fail(
            "nccl_fell_back_to_socket",
            about(node=host),
            f"NCCL fell back to TCP there, while others use {' and '.join(others)}",
            remedy,
        )
        for host in on_socket
    ]
    if wanted is not None:
        strange = [n for n in others if not n.lower().startswith(wanted)]
        findings += [
            warn(
                "nccl_transport_unexpected",
                about(job="nccl"),
                f"NCCL uses {name}, which is not the transport for {fabric}",
                remedy,
            )
            for name in strange
        ]
    return findings


def _direct(hosts: Mapping[str, NodeLog]) -> list[Finding]:
    """Channels without GDRDMA on a node where others have it."""
    off = [host for host, log in hosts.items() if log.gdr == {False}]
    on = [host for host, log in hosts.items() if True in log.gdr]
    return [
        warn(
            "nccl_gdr_off",
            about(node=host),
            "its channels go through host memory (no GDRDMA), and others' do not",
            "look at nvidia_peermem, DMA-BUF and the PCIe distance of GPU and NIC",
        )
        for host in off
        if on
    ]
