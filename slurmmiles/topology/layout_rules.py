"""The rules of Megatron's layout, each a small function from a request to what it breaks.

Sources: Megatron-core's `parallel_state`, `transformer_config`, `model_parallel_config` and
`ssm/mamba_mixer`; miles' launcher of Nemotron-3-Ultra for the Mamba groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from slurmmiles.models import ModelFacts
from slurmmiles.topology.rules import (
    Violation,
    candidates,
    divides,
    nearest,
    too_large,
    too_small,
)


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """What was asked for, before it is known to work."""

    model: ModelFacts
    nodes: int
    ranks_per_node: int
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int
    layers_first: int | None
    layers_last: int | None
    layers_per_stage: tuple[int, ...] | None
    sequence_parallel: bool

    @property
    def world(self) -> int:
        return self.nodes * self.ranks_per_node


# The setting of `--set` (or the option) for each field that a suggestion can vary.
FIELDS = {
    "nodes": "nodes",
    "slurm.ranks_per_node": "ranks_per_node",
    "parallel.tp": "tp",
    "parallel.pp": "pp",
    "parallel.cp": "cp",
    "parallel.ep": "ep",
    "parallel.etp": "etp",
    "parallel.layers_first": "layers_first",
    "parallel.layers_last": "layers_last",
}


def split_layers(
    num_layers: int, pp: int, first: int | None = None, last: int | None = None
) -> tuple[int, ...] | None:
    """Layers of each pipeline stage as Megatron splits them; None when they do not divide.

    With `first` or `last` (`--decoder-first/last-pipeline-num-layers`), the others share the rest
    equally.
    """
    others = pp - (first is not None) - (last is not None)
    rest = num_layers - (first or 0) - (last or 0)
    if others < 0 or rest < others or (rest % others if others else rest):
        return None
    middle = (rest // others,) * others if others else ()
    head = () if first is None else (first,)
    return head + middle + (() if last is None else (last,))


def layout_violations(asked: LayoutRequest) -> list[Violation]:
    """Every broken rule; those that need a whole number of replicas come only when there is one."""
    given = {key: getattr(asked, field) for key, field in FIELDS.items()}
    broken = too_small({key: value for key, value in given.items() if value is not None})
    broken = broken or too_large(asked.nodes, asked.ranks_per_node)
    if broken:
        return broken
    return [
        *_replica_rules(asked),
        *_pipeline_rules(asked),
        *_attention_rules(asked),
        *_width_rules(asked),
        *_expert_rules(asked),
    ]


def _replica_rules(asked: LayoutRequest) -> list[Violation]:
    """GPUs divide into model replicas."""
    product = asked.tp * asked.pp * asked.cp
    return divides(
        "nodes",
        asked.world,
        product,
        f"{asked.world} GPUs ({asked.nodes} nodes x {asked.ranks_per_node}) do not divide by "
        f"tp x pp x cp = {asked.tp} x {asked.pp} x {asked.cp} = {product}",
        also=("parallel.tp", "parallel.pp", "parallel.cp"),
    )


def _pipeline_rules(asked: LayoutRequest) -> list[Violation]:
    """Layers divide over the stages, or the given split is whole."""
    layers, pp, stages = asked.model.num_layers, asked.pp, asked.layers_per_stage
    if stages is not None:
        if len(stages) == pp and sum(stages) == layers and min(stages) > 0:
            return []
        what = (
            f"the layer split {'/'.join(map(str, stages))} has {len(stages)} stages and "
            f"{sum(stages)} layers, but pp is {pp} and the model has {layers} layers"
        )
        return [Violation("parallel.pp", what)]
    first, last = asked.layers_first, asked.layers_last
    if split_layers(layers, pp, first, last) is not None:
        return []
    if first is None and last is None:
        what = (
            f"{layers} layers do not divide into {pp} pipeline stages, and neither layers_first "
            "nor layers_last is given"
        )
        return [Violation("parallel.pp", what)]
    key = "parallel.layers_first" if first is not None else "parallel.layers_last"
    given = [f"{n} in the {name} stage" for n, name in ((first, "first"), (last, "last")) if n]
    others = max(pp - len(given), 0)
    rest = layers - (first or 0) - (last or 0)
    what = (
        f"{layers} layers with {' and '.join(given)} leave {rest} layers for {others} other "
        f"pipeline stages of {pp}: they must divide equally, with none left"
    )
    return [Violation(key, what)]


def _attention_rules(asked: LayoutRequest) -> list[Violation]:
    """Attention's and Mamba's heads and groups divide by tp."""
    model, tp, found = asked.model, asked.tp, list[Violation]()
    if model.attention:
        heads, groups = model.attention.num_attention_heads, model.attention.num_query_groups
        what = f"{heads} attention heads do not divide by tp {tp}"
        found += divides("parallel.tp", heads, tp, what)
        if groups % tp and tp % groups:
            what = f"{groups} query groups are neither a multiple nor a divisor of tp {tp}"
            found.append(Violation("parallel.tp", what))
    if model.mamba:
        groups, heads = model.mamba.num_groups, model.mamba.num_heads
        what = f"the Mamba n_groups {groups} do not divide by tp {tp} (n_groups % tp must be 0)"
        found += divides("parallel.tp", groups, tp, what)
        found += divides("parallel.tp", heads, tp, f"{heads} Mamba heads do not divide by tp {tp}")
    return found


def _width_rules(asked: LayoutRequest) -> list[Violation]:
    """MLP widths divide by tp, and sequence parallelism has tensor-parallel ranks to split over."""
    model, tp, found = asked.model, asked.tp, list[Violation]()
    widths = {"MLP width": model.ffn_hidden_size if model.count_blocks("-") else None}
    if model.moe and model.moe.shared_experts:
        widths["shared expert's width"] = model.moe.shared_ffn_hidden_size
    for name, width in widths.items():
        if width:
            what = f"the {name} {width} does not divide by tp {tp}"
            found += divides("parallel.tp", width, tp, what)
    if asked.sequence_parallel and tp == 1:
        what = "sequence parallelism splits the sequence over tensor-parallel ranks, but tp is 1"
        found.append(Violation("parallel.sequence_parallel", what))
    if model.moe and tp > 1 and not asked.sequence_parallel:
        what = f"experts with tp {tp} need sequence parallelism, which is off"
        found.append(Violation("parallel.sequence_parallel", what))
    return found


def _expert_rules(asked: LayoutRequest) -> list[Violation]:
    """Experts divide over ep, and ep x etp divides the ranks of one pipeline stage."""
    moe, ep, etp = asked.model.moe, asked.ep, asked.etp
    if moe is None:
        dense = {"parallel.ep": ep, "parallel.etp": etp}
        return [
            Violation(key, f"{asked.model.name} has no experts, so {key} {value} must be 1")
            for key, value in dense.items()
            if value > 1
        ]
    experts, width = moe.num_experts, moe.ffn_hidden_size
    found = divides("parallel.ep", experts, ep, f"{experts} experts do not divide by ep {ep}")
    what = f"the expert width {width} does not divide by etp {etp}"
    found += divides("parallel.etp", width, etp, what)
    if asked.world % (asked.tp * asked.pp * asked.cp) == 0:
        stage = asked.world // asked.pp
        what = (
            f"the tp x cp x dp = {stage} ranks of a pipeline stage do not divide by "
            f"ep x etp = {ep} x {etp} = {ep * etp}"
        )
        found += divides("parallel.ep", stage, ep * etp, what, also=("nodes",))
    return found


def suggest_layout(asked: LayoutRequest, key: str) -> tuple[object, list[int] | str]:
    """The value of `key` now, and the nearest values with which every rule holds."""
    if key == "parallel.sequence_parallel":
        return asked.sequence_parallel, f"set it to {str(asked.tp > 1).lower()}"
    field = FIELDS[key]
    value: int = getattr(asked, field)

    def works(candidate: int) -> bool:
        changes: dict[str, Any] = {field: candidate}
        if field == "tp":
            changes["sequence_parallel"] = candidate > 1
        return not layout_violations(replace(asked, **changes))

    if field in ("layers_first", "layers_last"):
        return value, nearest(value, range(1, asked.model.num_layers + 1), works)
    return value, nearest(value, candidates(field, asked.nodes, asked.ranks_per_node), works)
