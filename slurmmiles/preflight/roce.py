"""RoCE: the GID that a port should use, and the MTU that all must share. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmmiles.findings import about, fail
from slurmmiles.nics import NicFacts, NicKind
from slurmmiles.report import Finding

GID_INDEX = "NCCL_IB_GID_INDEX"


def judge_gids(
    nodes: Mapping[str, Sequence[NicFacts]], indexes: Mapping[str, str | None]
) -> list[Finding]:
    """roce_no_routable_gid, roce_gid_index_mismatch; `indexes`: NCCL_IB_GID_INDEX of each node.

    A value below 0 lets NCCL choose (since 2.21), as leaving it out does.
    """
    findings: list[Finding] = []
    for node, nics in nodes.items():
        value = (indexes.get(node) or "").strip()
        for nic in nics:
            if nic.kind is NicKind.ROCE:
                findings += _judge_port(nic, value, about(node=node, nic=nic.name))
    return findings


def _judge_port(nic: NicFacts, value: str, subject: str) -> list[Finding]:
    right = nic.gid_index
    if right is None:
        return [
            fail(
                "roce_no_routable_gid",
                subject,
                "it has no RoCE v2 address that can be routed, only link-local ones or none",
                f"give its interface {nic.netdev or '(none seen)'} an IP address; no index helps",
                gids=len(nic.gids),
            )
        ]
    if not value or value.startswith("-"):
        return []
    chosen = next((g for g in nic.gids if str(g.index) == value), None)
    if chosen is not None and chosen.is_routable_v2:
        return []
    seen = f"{chosen.type} {chosen.value}" if chosen else "empty"
    return [
        fail(
            "roce_gid_index_mismatch",
            subject,
            f"{GID_INDEX}={value} is {seen} here, and the right index is {right}",
            f"leave {GID_INDEX} unset with NCCL 2.21 or newer, or set it on each node",
            value=value,
            right=right,
        )
    ]


@dataclass(frozen=True, slots=True)
class PortMtu:
    """The active MTU of a verbs port (ibv_devinfo) and the MTU of its interface, bytes."""

    node: str
    dev: str
    link_layer: str
    active_mtu: int
    netdev_mtu: int | None = None


def judge_mtu(ports: Sequence[PortMtu]) -> list[Finding]:
    """mtu_mismatch for nodes whose port differs from most ports of the same link layer.

    The verbs MTU is compared: the interface's says nothing on InfiniBand, where IPoIB has 2044. Of
    two values that are equally common the larger is taken for the right one.
    """
    findings = []
    for layer in sorted({p.link_layer.lower() for p in ports}):
        alike = [p for p in ports if p.link_layer.lower() == layer]
        counts = Counter(p.active_mtu for p in alike)
        usual = max(counts, key=lambda mtu: (counts[mtu], mtu))
        for port in alike:
            if port.active_mtu == usual:
                continue
            findings.append(
                fail(
                    "mtu_mismatch",
                    about(node=port.node, nic=port.dev),
                    f"its active MTU is {port.active_mtu} where the others have {usual}",
                    "set the MTU of its interface to 4200 or more, the same everywhere"
                    if layer == "ethernet"
                    else "ask for the MTU of the subnet manager's partition",
                    active_mtu=port.active_mtu,
                    netdev_mtu=port.netdev_mtu,
                    usual=usual,
                )
            )
    return findings
