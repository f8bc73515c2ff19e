"""SGLang's rollout engines on the same GPUs: how many, on which nodes, and their rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from slurmmiles.models import ModelFacts
from slurmmiles.topology.rules import (
    Violation,
    candidates,
    divides,
    nearest,
    refuse,
    too_large,
    too_small,
)


class Rollout(BaseModel):
    """Engines that work; `attn_tp` = gpus_per_engine / dp splits attention and Mamba."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engines: int
    gpus_per_engine: int
    ep: int
    dp: int
    attn_tp: int
    nodes_per_engine: int
    """1 also where several engines share a node."""
    engine_nodes: tuple[tuple[int, ...], ...]
    """The node indices of each engine."""


@dataclass(frozen=True, slots=True)
class _Request:
    model: ModelFacts
    nodes: int
    ranks_per_node: int
    gpus_per_engine: int
    ep: int
    dp: int

    @property
    def world(self) -> int:
        return self.nodes * self.ranks_per_node


_FIELDS = {
    "nodes": "nodes",
    "slurm.ranks_per_node": "ranks_per_node",
    "rollout.gpus_per_engine": "gpus_per_engine",
    "rollout.ep": "ep",
    "rollout.dp": "dp",
}


def make_rollout(
    *,
    model: ModelFacts,
    nodes: int,
    ranks_per_node: int,
    gpus_per_engine: int,
    ep: int = 1,
    dp: int = 1,
) -> Rollout:
    """The engines, or BadInput with every broken rule, its numbers and the nearest that work.

    Sources of the rules: miles' launcher of Nemotron-3-Ultra and its `server_group` (one actor a
    node for an engine); SGLang's `nemotron_h` (heads and groups) and its expert parallelism, which
    lies within the engine's tensor parallelism.
    """
    asked = _Request(model, nodes, ranks_per_node, gpus_per_engine, ep, dp)
    broken = _violations(asked)
    if broken:
        refuse(broken, lambda key: _suggest(asked, key))
    engines = asked.world // gpus_per_engine
    spans = [(e * gpus_per_engine, (e + 1) * gpus_per_engine - 1) for e in range(engines)]
    return Rollout(
        engines=engines,
        gpus_per_engine=gpus_per_engine,
        ep=ep,
        dp=dp,
        attn_tp=gpus_per_engine // dp,
        nodes_per_engine=max(1, gpus_per_engine // ranks_per_node),
        engine_nodes=tuple(
            tuple(range(first // ranks_per_node, last // ranks_per_node + 1))
            for first, last in spans
        ),
    )


def _violations(asked: _Request) -> list[Violation]:
    broken = too_small({key: getattr(asked, field) for key, field in _FIELDS.items()})
    broken = broken or too_large(asked.nodes, asked.ranks_per_node)
    if broken:
        return broken
    return [*_placement_rules(asked), *_attention_rules(asked), *_expert_rules(asked)]


def _placement_rules(asked: _Request) -> list[Violation]:
    """Engines fill the GPUs, and each spans whole nodes or divides one."""
    size, per_node, key = asked.gpus_per_engine, asked.ranks_per_node, "rollout.gpus_per_engine"
    what = (
        f"{asked.world} GPUs ({asked.nodes} nodes x {per_node}) do not divide into engines of "
        f"{size}"
    )
    found = divides(key, asked.world, size, what, also=("nodes",))
    if size % per_node and per_node % size:
        what = f"an engine of {size} GPUs neither spans whole nodes of {per_node} nor divides one"
        found.append(Violation(key, what))
    return found


def _attention_rules(asked: _Request) -> list[Violation]:
    """Data-parallel attention divides the engine; heads and groups divide by what is left."""
    size, dp, model = asked.gpus_per_engine, asked.dp, asked.model
    key, found = "rollout.dp", list[Violation]()
    if size % dp:
        what = f"an engine of {size} GPUs does not divide by data-parallel attention dp {dp}"
        return [Violation(key, what)]
    tp = size // dp
    shown = f"attn_tp = gpus_per_engine / dp = {size} / {dp} = {tp}"
    if model.mamba:
        groups, heads = model.mamba.num_groups, model.mamba.num_heads
        found += divides(key, groups, tp, f"the Mamba n_groups {groups} do not divide by {shown}")
        found += divides(key, heads, tp, f"{heads} Mamba heads do not divide by {shown}")
    if model.attention:
        heads, groups = model.attention.num_attention_heads, model.attention.num_query_groups
        found += divides(key, heads, tp, f"{heads} attention heads do not divide by {shown}")
        if groups % tp and tp % groups:
            what = f"{groups} KV heads are neither a multiple nor a divisor of {shown}"
            found.append(Violation(key, what))
    return found


def _expert_rules(asked: _Request) -> list[Violation]:
    """Expert parallelism lies within the engine, and divides the experts."""
    moe, ep, size, key = asked.model.moe, asked.ep, asked.gpus_per_engine, "rollout.ep"
    if moe is None:
        what = f"{asked.model.name} has no experts, so {key} {ep} must be 1"
        return [Violation(key, what)] if ep > 1 else []
    found = divides(key, size, ep, f"an engine of {size} GPUs does not divide by ep {ep}")
    what = f"{moe.num_experts} experts do not divide by ep {ep}"
    found += divides(key, moe.num_experts, ep, what)
    if not found:
        width, rest = moe.ffn_hidden_size, size // ep
        what = f"the expert width {width} does not divide by gpus_per_engine / ep = {rest}"
        found += divides(key, width, rest, what)
    return found


def _suggest(asked: _Request, key: str) -> tuple[int, list[int]]:
    """The value of `key` now, and the nearest values with which every rule holds."""
    field = _FIELDS[key]
    value: int = getattr(asked, field)

    def works(candidate: int) -> bool:
        changes: dict[str, Any] = {field: candidate}
        return not _violations(replace(asked, **changes))

    return value, nearest(value, candidates(field, asked.nodes, asked.ranks_per_node), works)
