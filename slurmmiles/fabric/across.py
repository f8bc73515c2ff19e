"""What only shows when the nodes are compared: names that differ, values that are right on one node
and wrong on the next; pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurmmiles.env_launch import PER_NODE, judge_env_on_worker
from slurmmiles.env_names import judge_hca_on_nodes, judge_ifnames_on_nodes
from slurmmiles.fabric.profiles import hca_list, usable
from slurmmiles.fabric.table import NETWORK
from slurmmiles.findings import about, fail
from slurmmiles.nics import NicKind, NodeNics
from slurmmiles.report import Finding

IFNAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME")
VERBS = ("infiniband", "roce")


def judge_nodes(
    env: Mapping[str, Mapping[str, str]],
    nics: Mapping[str, NodeNics],
    interfaces: Mapping[str, Iterable[str]],
) -> list[Finding]:
    """Findings about each node's values (node to NAME to value) against what the node has."""
    found = judge_ifnames_on_nodes(
        {n: {k: v for k, v in values.items() if k in IFNAMES} for n, values in env.items()},
        {n: tuple(interfaces[n]) for n in env},
    )
    verbs = {n: nics[n] for n in env if n in nics and nics[n].fabric in VERBS}
    values = {n: env[n].get("NCCL_IB_HCA") for n in verbs}
    if any(value is not None for value in values.values()):
        found += judge_hca_on_nodes(
            values,
            {n: tuple(dict.fromkeys(p.name for p in usable(x))) for n, x in verbs.items()},
            {n: _devices(x) for n, x in verbs.items()},
        )
    return found


def judge_read_back(
    wanted: Mapping[str, Mapping[str, str]], seen: Mapping[str, Mapping[str, str | None]]
) -> list[Finding]:
    """Findings about nodes whose Ray workers do not see the environment that was resolved there.

    `seen` has None for a variable that is not set; a node that did not answer is not judged here.
    What is set for the network on the first node only, and by nobody's decision, is missing on the
    others.
    """
    first = next(iter(wanted), "")
    common = {
        name: value
        for name, value in wanted.get(first, {}).items()
        if NETWORK.match(name) and name not in PER_NODE
    }
    found: list[Finding] = []
    for node, values in wanted.items():
        if node not in seen:
            continue
        there = seen[node]
        found += judge_env_on_worker(node, {**common, **values}, there)
        own = [n for n in PER_NODE & set(values) if there.get(n) not in (None, values[n])]
        if own:
            found.append(
                fail(
                    "env_differs_on_worker",
                    about(node=node),
                    "; ".join(f"{n} is {there[n]!r}, not {values[n]!r}" for n in sorted(own)),
                    "find what sets it there: a container image, a profile script, another node",
                    differs=",".join(sorted(own)),
                )
            )
    return found


def global_list_note(nics: Mapping[str, NodeNics]) -> str:
    """A sentence when the nodes' adapters differ by name, so that one exported list is wrong on
    some; empty when one list would do.
    """
    lists = {node: hca_list(x) for node, x in nics.items() if x.fabric in VERBS}
    first = next(iter(lists), "")
    others = [node for node, value in lists.items() if value != lists[first]]
    if not others:
        return ""
    named = ", ".join(others[:4]) + (", ..." if len(others) > 4 else "")
    return (
        f"the adapters' names differ between nodes: NCCL_IB_HCA={lists[first]} of {first} is wrong"
        f" on {len(others)} of {len(lists)} nodes ({named}): no single list works, and each node"
        " gets its own"
    )


def _devices(nics: NodeNics) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.name for n in nics.of(NicKind.IB, NicKind.ROCE)))
