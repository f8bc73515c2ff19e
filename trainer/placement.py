"""Which node runs what: nodes in order of address, ranks in order of node, one engine per node."""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainer.errors import TrainerError


@dataclass(frozen=True, slots=True)
class Node:
    """One Ray node."""

    node_id: str
    address: str
    cpus: int

    @property
    def pin(self) -> NodeAffinitySchedulingStrategy:
        """Schedules an actor on exactly this node."""
        return NodeAffinitySchedulingStrategy(self.node_id, soft=False)


def choose_nodes(count: int, *, wait_s: float = 60.0) -> list[Node]:
    """The first `count` living nodes with CPUs by address: rank order is the same in every run.

    Waits up to `wait_s` for nodes that are still joining; raises TrainerError with the numbers.
    """
    deadline = time.monotonic() + wait_s
    while len(found := _living_nodes()) < count:
        if time.monotonic() > deadline:
            raise TrainerError(
                f"placement: {count} nodes are needed, the Ray cluster has {len(found)} with CPUs"
            )
        time.sleep(0.5)
    return found[:count]


def _living_nodes() -> list[Node]:
    nodes = [
        Node(n["NodeID"], n["NodeManagerAddress"], int(n["Resources"]["CPU"]))
        for n in ray.nodes()
        if n["Alive"] and n["Resources"].get("CPU", 0) >= 1
    ]
    return sorted(nodes, key=lambda node: (ipaddress.ip_address(node.address), node.node_id))
