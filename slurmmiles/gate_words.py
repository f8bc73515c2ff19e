"""What the gate says: who is missing and why, and the error that ends the wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slurmmiles import hostlist
from slurmmiles.control import Member
from slurmmiles.errors import UnfitNodes
from slurmmiles.findings import node_of
from slurmmiles.report import Finding, Verdict


def unfit(reasons: Mapping[str, str], total: int) -> UnfitNodes:
    """The error that names every node with its reason and how to run without them."""
    names = hostlist.fold(reasons)
    lines = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    return UnfitNodes(
        f"{len(reasons)} of {total} nodes are unfit: {lines}",
        fix=(
            f"leave them out with --set slurm.exclude='{names}', or allocate spares with --spares"
            f" {len(reasons)}"
        ),
    )


def remedy(name: str) -> str:
    """Where to look when a node did not come."""
    return f"look at its log, and at `scontrol show node {name}`"


def ray_state(member: Member | None) -> str:
    """How far a node came that Ray does not know, from its own reports."""
    stage = member.report.get("stage") if member else None
    return {
        "agent": "its agent is up, and has not started ray",
        "ray": "ray has been started and is not registered",
    }.get(str(stage), "its agent is up")


def sentence(total: int, missing: Mapping[str, str]) -> str:
    """How many nodes are there, and who is missing, nodes with the same reason together."""
    if not missing:
        return f"all {total} nodes are there, measuring"
    by_reason: dict[str, list[str]] = {}
    for name, why in missing.items():
        by_reason.setdefault(why, []).append(name)
    parts = [f"{hostlist.fold(names)} ({why})" for why, names in by_reason.items()]
    return f"{total - len(missing)} of {total} nodes; missing: {', '.join(parts)}"


def condemned(findings: Iterable[Finding], nodes: Sequence[str]) -> dict[str, str]:
    """Each node that a FAIL speaks about, with the first reason; other subjects drop nobody."""
    reasons: dict[str, str] = {}
    for finding in findings:
        name = node_of(finding.subject) or finding.subject
        if finding.verdict is Verdict.FAIL and name in nodes:
            reasons.setdefault(name, finding.message)
    return reasons
