"""The environment of each node: what speaks against it there, what only shows between nodes, and
whether Ray's workers see it. Judges are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurmmiles.fabric.across import judge_nodes, judge_read_back
from slurmmiles.nodefacts import NodeFacts
from slurmmiles.planfile import filled
from slurmmiles.report import Finding

LOOPBACK = "lo"  # psutil lists it only where it has an address


def judge_environment(facts: Iterable[NodeFacts]) -> list[Finding]:
    """Findings of the nodes about themselves, then those of the nodes compared."""
    nodes = list(facts)
    found = [finding for node in nodes for finding in node.findings]
    return found + judge_nodes(
        {node.node: known_env(node) for node in nodes},
        {node.node: node.nics for node in nodes if node.nics is not None},
        {node.node: (*node.addresses, LOOPBACK) for node in nodes},
    )


def judge_seen(
    facts: Iterable[NodeFacts], seen: Mapping[str, Mapping[str, str | None]]
) -> list[Finding]:
    """Findings about workers that do not see what was resolved for their node; `seen` is the read
    back of each node (env.json).
    """
    wanted = {node.node: known_env(node) for node in facts}
    return judge_read_back(
        {
            name: {k: v for k, v in values.items() if k in seen.get(name, {})}
            for name, values in wanted.items()
        },
        seen,
    )


def known_env(node: NodeFacts) -> dict[str, str]:
    """NAME to value, without those that hold what only the agent knows (a path, the head)."""
    there = {"interface": node.interface, "node_address": node.address}
    values = {name: str(filled(entry.value, there)) for name, entry in node.env.items()}
    return {name: value for name, value in values.items() if "{" not in value}
