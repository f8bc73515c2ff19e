"""The environment of each node: what speaks against it there, what only shows between nodes, and
whether Ray's workers see it. Judges are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurmmiles.fabric.across import judge_nodes, judge_read_back
from slurmmiles.findings import info
from slurmmiles.nodefacts import NodeFacts
from slurmmiles.planfile import filled
from slurmmiles.report import Finding

LOOPBACK = "lo"  # psutil lists it only where it has an address


def judge_environment(facts: Iterable[NodeFacts]) -> list[Finding]:
    """Findings of the nodes about themselves, then those of the nodes compared."""
    nodes = list(facts)
    compared = judge_nodes(
        {node.node: known_env(node) for node in nodes},
        {node.node: node.nics for node in nodes if node.nics is not None},
        {node.node: (*node.addresses, LOOPBACK) for node in nodes},
    )
    return [finding for node in nodes for finding in node.findings] + _named(compared)


def judge_seen(
    facts: Iterable[NodeFacts], seen: Mapping[str, Mapping[str, str | None]]
) -> list[Finding]:
    """Findings about workers that do not see what was resolved for their node; `seen` is the read
    back of each node (env.json).
    """
    wanted = {node.node: known_env(node) for node in facts}
    found = _named(judge_read_back(wanted, seen))
    faulty = {finding.subject for finding in found}
    as_resolved = [
        info("env_read_back_info", name, f"Ray's workers see {len(values)} variables as resolved")
        for name, values in wanted.items()
        if name in seen and name not in faulty
    ]
    return [*found, *as_resolved]


def _named(findings: Iterable[Finding]) -> list[Finding]:
    """With the node's bare name as subject, by which the gate leaves a node out."""
    return [
        f.model_copy(update={"subject": f.subject.removeprefix("node=").partition(",")[0]})
        for f in findings
    ]


def known_env(node: NodeFacts) -> dict[str, str]:
    """NAME to value, without those that hold what only the agent knows (a path, the head)."""
    there = {"interface": node.interface, "node_address": node.address}
    values = {name: str(filled(entry.value, there)) for name, entry in node.env.items()}
    return {name: value for name, value in values.items() if "{" not in value}
