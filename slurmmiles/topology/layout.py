"""Megatron's layout of a model over ranks: a request that obeys every rule becomes a `Topology`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from slurmmiles.models import ModelFacts
from slurmmiles.topology.layout_rules import (
    LayoutRequest,
    layout_violations,
    split_layers,
    suggest_layout,
)
from slurmmiles.topology.rules import refuse


class Topology(BaseModel):
    """A layout that works. `dp` is the data parallelism of dense parameters, `edp` of experts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tp: int
    pp: int
    cp: int
    ep: int
    etp: int
    dp: int
    edp: int
    world_size: int
    layers_per_stage: tuple[int, ...]
    sequence_parallel: bool = False

    @property
    def stages(self) -> tuple[range, ...]:
        """The layer indices (from 0) of each pipeline stage."""
        starts = [sum(self.layers_per_stage[:s]) for s in range(len(self.layers_per_stage))]
        return tuple(range(a, a + n) for a, n in zip(starts, self.layers_per_stage, strict=True))


def make_topology(
    *,
    model: ModelFacts,
    nodes: int,
    ranks_per_node: int,
    tp: int,
    pp: int,
    cp: int,
    ep: int,
    etp: int,
    layers_first: int | None = None,
    layers_last: int | None = None,
    layers_per_stage: tuple[int, ...] | None = None,
    sequence_parallel: bool = False,
) -> Topology:
    """The layout, or BadInput with every broken rule, its numbers and the nearest that work.

    `layers_per_stage` gives the split outright; else `layers_first` and `layers_last` as Megatron's
    `--decoder-first/last-pipeline-num-layers`; else an equal split.
    """
    stages = None if layers_per_stage is None else tuple(layers_per_stage)
    asked = LayoutRequest(
        model=model,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=etp,
        layers_first=layers_first,
        layers_last=layers_last,
        layers_per_stage=stages,
        sequence_parallel=sequence_parallel,
    )
    broken = layout_violations(asked)
    if broken:
        refuse(broken, lambda key: suggest_layout(asked, key))
    return Topology(
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=etp,
        dp=asked.world // (tp * pp * cp),
        edp=asked.world // (etp * ep * pp),
        world_size=asked.world,
        layers_per_stage=stages
        or split_layers(model.num_layers, pp, layers_first, layers_last)
        or (),
        sequence_parallel=sequence_parallel,
    )


def flat_topology(world_size: int) -> Topology:
    """The layout of a run without a model: every rank a replica of nothing."""
    return Topology(
        tp=1, pp=1, cp=1, ep=1, etp=1, dp=world_size, edp=world_size,
        world_size=world_size, layers_per_stage=(),
    )  # fmt: skip


def warnings(topology: Topology, ranks_per_node: int) -> list[str]:
    """Layouts that work but are slow, in words."""
    if topology.tp > ranks_per_node or ranks_per_node % topology.tp:
        return [
            f"tensor parallelism {topology.tp} crosses nodes of {ranks_per_node} GPUs: the "
            "all-reduces of every layer leave NVLink"
        ]
    return []
