"""Megatron's rank grid: a rank's node, GPU and groups, and how far each group reaches.

Order `tp-cp-ep-dp-pp`, fastest first, as megatron-core's `parallel_state` builds it: dense groups
with ep 1, expert groups with `etp` for tp, cp 1 and the expert data parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurmmiles.topology.layout import Topology

Reach = Literal["none", "in a node", "in a block", "crosses blocks"]

# Each kind of group: the grid it belongs to and the dimensions that vary within it.
_KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tp": ("dense", ("tp",)),
    "cp": ("dense", ("cp",)),
    "dp": ("dense", ("dp",)),
    "pp": ("dense", ("pp",)),
    "tp-cp": ("dense", ("tp", "cp")),
    "dp-cp": ("dense", ("cp", "dp")),
    "tp-pp": ("dense", ("tp", "pp")),
    "tp-dp": ("dense", ("tp", "dp")),
    "tp-dp-cp": ("dense", ("tp", "cp", "dp")),
    "ep": ("expert", ("ep",)),
    "etp": ("expert", ("etp",)),
    "edp": ("expert", ("edp",)),
    "etp-ep": ("expert", ("etp", "ep")),
    "etp-ep-pp": ("expert", ("etp", "ep", "pp")),
}


@dataclass(frozen=True, slots=True)
class RankPlace:
    """One rank: where it runs, and its coordinate in each dimension."""

    rank: int
    node: int
    local_gpu: int
    tp: int
    cp: int
    dp: int
    pp: int
    etp: int
    ep: int
    edp: int


def _grids(topology: Topology) -> dict[str, dict[str, int]]:
    """Dimension sizes of the two grids, fastest-varying first."""
    t = topology
    return {
        "dense": {"tp": t.tp, "cp": t.cp, "dp": t.dp, "pp": t.pp},
        "expert": {"etp": t.etp, "ep": t.ep, "edp": t.edp, "pp": t.pp},
    }


def _strides(sizes: dict[str, int]) -> dict[str, int]:
    """How far apart two ranks are that are neighbours in a dimension."""
    strides, step = {}, 1
    for name, size in sizes.items():
        strides[name] = step
        step *= size
    return strides


def rank_grid(topology: Topology, ranks_per_node: int) -> tuple[RankPlace, ...]:
    """Every rank in order; ranks fill node after node, `ranks_per_node` each."""
    grids = _grids(topology)
    strides = {name: _strides(sizes) for name, sizes in grids.items()}

    def at(rank: int, grid: str, dim: str) -> int:
        return rank // strides[grid][dim] % grids[grid][dim]

    return tuple(
        RankPlace(
            rank=rank,
            node=rank // ranks_per_node,
            local_gpu=rank % ranks_per_node,
            tp=at(rank, "dense", "tp"),
            cp=at(rank, "dense", "cp"),
            dp=at(rank, "dense", "dp"),
            pp=at(rank, "dense", "pp"),
            etp=at(rank, "expert", "etp"),
            ep=at(rank, "expert", "ep"),
            edp=at(rank, "expert", "edp"),
        )
        for rank in range(topology.world_size)
    )


def groups(topology: Topology, kind: str) -> tuple[tuple[int, ...], ...]:
    """The rank groups of a kind (`tp`, `dp-cp`, `ep`, `etp-ep-pp`, ...), in Megatron's order.

    Raises KeyError for a kind that is not in the table above.
    """
    grid, varying = _KINDS[kind]
    sizes = _grids(topology)[grid]
    strides = _strides(sizes)
    members, starts = [0], [0]
    for name, size in sizes.items():
        offsets = [i * strides[name] for i in range(size)]
        if name in varying:
            members = [base + offset for offset in offsets for base in members]
        else:
            starts = [base + offset for offset in offsets for base in starts]
    return tuple(tuple(start + member for member in members) for start in starts)


def traffic(topology: Topology, ranks_per_node: int, nodes_per_engine: int) -> dict[str, Reach]:
    """How far each kind of communication reaches; a block is the nodes of one rollout engine.

    `weights` is the update of the rollout engines, which gathers a tensor over tp, ep and pp. A
    group of one rank reaches nowhere: "none".
    """
    block = ranks_per_node * max(nodes_per_engine, 1)
    found = {
        kind: _reach(groups(topology, kind), ranks_per_node, block)
        for kind in ("tp", "cp", "ep", "etp", "dp", "edp", "pp")
    }
    order: tuple[Reach, ...] = ("none", "in a node", "in a block", "crosses blocks")
    found["weights"] = max((found[kind] for kind in ("tp", "ep", "pp")), key=order.index)
    return found


def _reach(found: tuple[tuple[int, ...], ...], per_node: int, per_block: int) -> Reach:
    if all(len(group) == 1 for group in found):
        return "none"
    for size, name in ((per_node, "in a node"), (per_block, "in a block")):
        if all(len({rank // size for rank in group}) == 1 for group in found):
            return name  # type: ignore[return-value]
    return "crosses blocks"
