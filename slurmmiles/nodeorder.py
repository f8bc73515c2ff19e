"""Which node comes first: an order that puts each engine and EP block under one leaf switch.

Read from what Slurm knows: `scontrol show topology`, the text of topology.conf (both for the tree
and the block plugin), or each node's SLURM_TOPOLOGY_ADDR. A node's `path` names what contains it,
from the top to the leaf switch (or block): `("spine0", "leaf2")`. Unknown means Slurm's own order.
Pure: asking Slurm is `slurm`'s work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurmmiles.errors import BadInput
from slurmmiles.hostlist import expand

Paths = Mapping[str, tuple[str, ...]]
_PAIR = re.compile(r"(\w+)=(\S*)")
_NAMES = ("switchname", "blockname", "aggregatedblock")
_LEAF = "one leaf switch or block"


@dataclass(slots=True)
class _Container:
    """A switch or block: the nodes named on its line, and its child switches."""

    nodes: set[str] = field(default_factory=set)
    children: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Ordered:
    """`nodes` in the order to use them, why, and how many blocks lie under one leaf."""

    nodes: tuple[str, ...]
    reason: str
    blocks: int = 0
    whole: int = 0


def parse_topology(text: str) -> dict[str, tuple[str, ...]]:
    """Each node's path, from `scontrol show topology` or topology.conf; empty when there is none.

    A switch contains its `Nodes=` and those of its `Switches=`; aggregated blocks contain blocks.
    Raises BadInput on a line that names a switch or block with a malformed node list.
    """
    containers = _read(text)
    found: dict[str, list[str]] = {}
    whole = {name: _nodes_below(name, containers) for name in containers}
    # The largest first: whatever contains a node is then listed from the top down.
    for name in sorted(whole, key=lambda name: (-len(whole[name]), name)):
        for node in whole[name]:
            found.setdefault(node, []).append(name)
    return {node: tuple(names) for node, names in found.items()}


def parse_topology_addr(addr: str, pattern: str = "") -> tuple[str, tuple[str, ...]]:
    """(node, path) of one node's SLURM_TOPOLOGY_ADDR: `s0.s1.node` or `block.node`.

    SLURM_TOPOLOGY_ADDR_PATTERN (`switch.switch.node`) says how many names precede the node, whose
    own name may have dots; without it, the last name is the node. Raises BadInput on empty parts.
    """
    above = pattern.count(".") if pattern else addr.count(".")
    parts = addr.strip().split(".", above)
    if not all(parts) or len(parts) != above + 1:
        raise BadInput(
            f"{addr!r} is not of the form {pattern or 'switch.node'!r}",
            where="SLURM_TOPOLOGY_ADDR",
            fix="report this; Slurm's order is used until then",
        )
    return parts[-1], tuple(parts[:-1])


def order_nodes(nodes: Sequence[str], paths: Paths | None, block: int) -> Ordered:
    """`nodes` so that as many blocks of `block` as possible lie under one leaf; spares come last.

    Whole blocks of one leaf come first, then those that share the next switch, and so on; within a
    leaf Slurm's order is kept, and Slurm's whole order where it is as good.
    """
    given = tuple(nodes)
    known = {node: paths[node] for node in given if paths and paths.get(node)}
    if not known:
        return Ordered(given, "Slurm's order: the switch topology is not known")
    if block <= 1:
        return Ordered(given, "Slurm's order: an engine does not span nodes")
    chunks, rest = _chunks(given, known, block)
    best = tuple(node for chunk in chunks for node in chunk) + rest
    count, whole = len(chunks), _whole_blocks(best, known, block)
    if _whole_blocks(given, known, block) == whole:
        return Ordered(given, f"Slurm's order: {_told(count, whole, block)}", count, whole)
    unknown = len(given) - len(known)
    reason = f"by switch topology: {_told(count, whole, block)}"
    if unknown:
        reason += f"; {unknown} nodes are not in the topology"
    return Ordered(best, reason, count, whole)


def _told(count: int, whole: int, block: int) -> str:
    if whole == count:
        return f"each block of {block} nodes is under {_LEAF}"
    return f"{whole} of {count} blocks of {block} nodes are each under {_LEAF}, the others cross"


def _whole_blocks(nodes: Sequence[str], known: Paths, block: int) -> int:
    """How many of the consecutive full blocks lie under one leaf."""
    starts = range(0, len(nodes) - len(nodes) % block, block)
    paths = [{known.get(node) for node in nodes[s : s + block]} for s in starts]
    return sum(len(found) == 1 and None not in found for found in paths)


def _chunks(
    given: tuple[str, ...], known: Paths, block: int
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Full blocks, leaf by leaf and then switch by switch upwards, and the nodes left over."""
    place = {node: i for i, node in enumerate(given)}
    left = given
    chunks: list[tuple[str, ...]] = []
    depths = range(max(len(path) for path in known.values()), -1, -1)
    for depth in depths:
        groups: dict[tuple[str, ...], list[str]] = {}
        for node in left:
            # A node outside the topology is a leaf of its own until the last level.
            groups.setdefault(known.get(node, (node,))[:depth], []).append(node)
        level: list[tuple[str, ...]] = []
        remaining: list[str] = []
        for members in groups.values():
            full = len(members) - len(members) % block
            level += [tuple(members[i : i + block]) for i in range(0, full, block)]
            remaining += members[full:]
        chunks += sorted(level, key=lambda chunk: place[chunk[0]])
        # Leftovers of one leaf stay together, so that they share a block one level up.
        left = tuple(remaining)
    return chunks, tuple(sorted(left, key=lambda node: place[node]))


def _read(text: str) -> dict[str, _Container]:
    """The switches and blocks of the text by name; lines of one name are joined."""
    containers: dict[str, _Container] = {}
    joined = re.sub(r"\\\r?\n", " ", text)
    for line in joined.splitlines():
        pairs = {key.lower(): value for key, value in _PAIR.findall(line.partition("#")[0])}
        name = next((pairs[key] for key in _NAMES if pairs.get(key)), None)
        if name is None:
            continue
        container = containers.setdefault(name, _Container())
        container.children.update(_names(pairs.get("switches", "")))
        if pairs.get("nodes", "(null)") != "(null)":
            container.nodes.update(expand(pairs["nodes"]))
    return containers


def _names(expression: str) -> Iterable[str]:
    """Switch names of a list; names that are no host names (`a/b:c`) are only split at commas."""
    if not expression or expression == "(null)":
        return ()
    return expand(expression) if "[" in expression else expression.split(",")


def _nodes_below(name: str, containers: Mapping[str, _Container]) -> set[str]:
    """All nodes of a switch and of those below it; a loop of switches ends where it closes."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen or current not in containers:
            continue
        seen.add(current)
        found |= containers[current].nodes
        waiting += containers[current].children
    return found
