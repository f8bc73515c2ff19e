"""`plan --explore`: every valid layout of a model on the given GPUs, ranked, with why; pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from slurmmiles.costmodel import MODEL, StepSeconds, micro_batches, step_seconds
from slurmmiles.errors import BadInput
from slurmmiles.gpus import GpuFacts
from slurmmiles.layouts import Shape, batches_of, memory_of, rollout_of, traffic_of
from slurmmiles.memory import MemoryFit, Verdict
from slurmmiles.models import ModelFacts
from slurmmiles.planfile import Part
from slurmmiles.recipe import Parallel, Recipe
from slurmmiles.topology import Reach, Topology, make_topology, split_layers
from slurmmiles.topology.layout_rules import LayoutRequest, layout_violations
from slurmmiles.topology.rules import divisors

MAX_TP = 64
ORDER: tuple[Verdict, ...] = ("fits", "tight", "does not fit")


class RankedLayout(Part):
    """One layout: its place, what it costs in the cost model, whether it fits, and why."""

    rank: int
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int
    dp: int
    layers_per_stage: tuple[int, ...]
    verdict: Verdict
    train_gb: float
    host_gb: float
    step_s: float
    seconds: dict[str, float]
    all_to_all: Reach
    is_recipe: bool
    """The recipe's own layout."""
    why: str


class Exploration(Part):
    """All valid layouts, best first, and the model that ranks them."""

    recipe: str
    gpu: str
    nodes: int
    gpus_per_node: int
    cost_model: tuple[str, ...]
    layouts: tuple[RankedLayout, ...]


def explore(
    recipe: Recipe,
    model: ModelFacts | None,
    gpu: GpuFacts,
    *,
    nodes: int,
    gpus: int,
    host_gb: float | None = None,
) -> Exploration:
    """Layouts that break no rule: those that fit first, then by seconds of a step.

    Context and expert tensor parallelism, batches and rollout engines stay the recipe's.
    """
    if model is None or not gpus:
        raise BadInput(
            f"recipe {recipe.name!r} has no model on GPUs whose layouts could be compared",
            where="--explore",
            fix="give a recipe that trains on GPUs",
        )
    is_sft = recipe.algorithm.kind == "sft"
    rollout = None if is_sft else rollout_of(recipe, model, nodes, gpus)
    shapes = (
        Shape(model, gpu, nodes, gpus, gpus, topology, rollout)
        for topology in valid_layouts(recipe, model, nodes, gpus)
        if _divides(recipe, topology)
    )
    found = [_judged(recipe, shape, model, gpu, host_gb) for shape in shapes]
    if not found:
        raise BadInput(
            f"no layout of {model.name} on {nodes} x {gpus} GPUs obeys every rule",
            where="--explore",
            fix="ask for another number of nodes",
        )
    found.sort(key=lambda r: (ORDER.index(r.verdict), r.step_s))
    return Exploration(
        recipe=recipe.name,
        gpu=gpu.name,
        nodes=nodes,
        gpus_per_node=gpus,
        cost_model=MODEL,
        layouts=tuple(r.model_copy(update={"rank": i}) for i, r in enumerate(found, 1)),
    )


def valid_layouts(recipe: Recipe, model: ModelFacts, nodes: int, gpus: int) -> Iterator[Topology]:
    """One topology for each tp, pp and ep that breaks no rule of Megatron's."""
    own, world = recipe.parallel, nodes * gpus
    experts = divisors(model.moe.num_experts) if model.moe else [1]
    for tp, pp in product(divisors(world), divisors(world)):
        if tp > MAX_TP or pp > model.num_layers or world % (tp * pp * own.cp):
            continue
        split = _split(own, model.num_layers, pp)
        if split is None:
            continue
        for ep in experts:
            asked = LayoutRequest(
                model, nodes, gpus, tp, pp, own.cp, ep, own.etp, *split, None, tp > 1
            )
            if not layout_violations(asked):
                yield make_topology(
                    model=model, nodes=nodes, ranks_per_node=gpus, tp=tp, pp=pp, cp=own.cp, ep=ep,
                    etp=own.etp, layers_first=split[0], layers_last=split[1],
                    sequence_parallel=tp > 1,
                )  # fmt: skip


def _split(own: Parallel, layers: int, pp: int) -> tuple[int | None, int | None] | None:
    """(first, last) stage layers: the recipe's own at its pp, else none, else the most even."""
    given = own.layers_first, own.layers_last
    if pp == own.pp and any(given):
        return given
    if layers % pp == 0:
        return None, None
    sizes = [None, *range(1, 2 * layers // pp + 2)]
    even: list[tuple[int, int, tuple[int | None, int | None]]] = []
    for first, last in product(sizes, sizes):
        stages = split_layers(layers, pp, first, last)
        if stages:
            even.append((max(stages), (first is not None) + (last is not None), (first, last)))
    return min(even, key=lambda e: e[:2])[2] if even else None


def _divides(recipe: Recipe, topology: Topology) -> bool:
    """Whether the recipe's batches divide over the layout's data parallelism."""
    try:
        batches_of(recipe, topology)
    except BadInput:
        return False
    return True


def _judged(
    recipe: Recipe, shape: Shape, model: ModelFacts, gpu: GpuFacts, host_gb: float | None
) -> RankedLayout:
    t, own = shape.topology, recipe.parallel
    fit = memory_of(recipe, shape, host_gb)
    seconds = step_seconds(recipe, shape, model, gpu)
    reach = traffic_of(shape)["ep"]
    parts = {name: round(getattr(seconds, name), 3) for name in StepSeconds.__slots__}
    return RankedLayout(
        rank=0,
        tp=t.tp,
        pp=t.pp,
        cp=t.cp,
        ep=t.ep,
        etp=t.etp,
        dp=t.dp,
        layers_per_stage=t.layers_per_stage,
        verdict=fit.verdict,
        train_gb=fit.gpu_phases_gb["train"],
        host_gb=fit.host_gb["total"] or 0.0,
        step_s=round(seconds.total, 3),
        seconds=parts,
        all_to_all=reach,
        is_recipe=(t.tp, t.pp, t.ep) == (own.tp, own.pp, own.ep),
        why=_why(recipe, model, t, seconds, fit, reach),
    )


def _why(
    recipe: Recipe,
    model: ModelFacts,
    t: Topology,
    seconds: StepSeconds,
    fit: MemoryFit,
    reach: Reach,
) -> str:
    """What decides the place, in words."""
    bubble = (t.pp - 1) / micro_batches(recipe, t)
    parts = [f"training {fit.gpu_phases_gb['train']:.0f} of {fit.gpu_gb['limit']:.0f} GB"]
    if model.moe and t.ep > 1:
        where = {"in a node": "inside a node", "in a block": "inside an engine's nodes"}
        parts.append(f"all-to-all of {t.ep} {where.get(reach, 'across nodes')}")
    if t.pp > 1:
        fullest = max(t.layers_per_stage)
        parts.append(f"bubble {bubble:.1%}")
        parts.append(f"fullest stage {fullest} of {model.num_layers} layers")
    rest = {name: getattr(seconds, name) for name in StepSeconds.__slots__ if name != "compute"}
    slow = max(rest, key=lambda name: rest[name])
    parts.append(f"after compute most goes to {slow} ({rest[slow] / seconds.total:.0%})")
    return ", ".join(parts)
