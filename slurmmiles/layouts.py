"""A recipe's layout and its memory: from sections to topology, rollout engines and fit; pure."""

from __future__ import annotations

from dataclasses import dataclass

from slurmmiles import topology as layout
from slurmmiles.errors import BadInput
from slurmmiles.gpus import GpuFacts
from slurmmiles.memory import MemoryFit, OptimizerMemory, fit
from slurmmiles.models import ModelFacts
from slurmmiles.recipe import Recipe
from slurmmiles.topology import Reach, Rollout, Topology, traffic

TRAINED = ("native", "train", "script")  # the entries that train a model, and so need its facts


@dataclass(frozen=True, slots=True)
class Shape:
    """What runs on how many of which GPUs; `ranks` are those of one node, `gpus` 0 on CPUs."""

    model: ModelFacts | None
    gpu: GpuFacts | None
    nodes: int
    gpus: int
    ranks: int
    topology: Topology
    rollout: Rollout | None


def shape_of(
    recipe: Recipe,
    model: ModelFacts | None,
    gpu: GpuFacts | None,
    *,
    nodes: int,
    gpus: int,
    ranks: int,
) -> Shape:
    """The layout that the recipe asks for on CPUs or on `gpus` a node; BadInput with every broken
    rule.
    """
    topology, rollout = layout_of(recipe, model, nodes, ranks, on_gpus=gpus > 0)
    return Shape(model, gpu if gpus else None, nodes, gpus, ranks, topology, rollout)


def layout_of(
    recipe: Recipe, model: ModelFacts | None, nodes: int, ranks: int, *, on_gpus: bool
) -> tuple[Topology, Rollout | None]:
    """Trainer and rollout; a recipe without a model has one rank a GPU and no rollout.

    On CPUs an engine is one process a node, whatever the number of ranks.
    """
    if model is None:
        if recipe.driver.entry in TRAINED:
            raise BadInput(
                f"recipe {recipe.name!r} trains a model but names none",
                where="model.facts",
                fix="name one",
            )
        return layout.flat_topology(nodes * ranks), None
    topology = trainer_of(recipe, model, nodes, ranks, on_gpus=on_gpus)
    sft = recipe.algorithm.kind == "sft"
    rollout = None if sft else rollout_of(recipe, model, nodes, ranks if on_gpus else 1)
    batches_of(recipe, topology)
    return topology, rollout


def trainer_of(
    recipe: Recipe, model: ModelFacts, nodes: int, ranks: int, *, on_gpus: bool = True
) -> Topology:
    """Megatron's layout; BadInput with every broken rule.

    Sequence parallelism follows TP, except on CPUs: Megatron refuses it with torch's own norms.
    """
    p = recipe.parallel
    split = p.tp > 1 and on_gpus if p.sequence_parallel is None else p.sequence_parallel
    return layout.make_topology(
        model=model,
        nodes=nodes,
        ranks_per_node=ranks,
        tp=p.tp,
        pp=p.pp,
        cp=p.cp,
        ep=p.ep,
        etp=p.etp,
        layers_first=p.layers_first,
        layers_last=p.layers_last,
        sequence_parallel=split,
    )


def rollout_of(recipe: Recipe, model: ModelFacts, nodes: int, ranks: int) -> Rollout:
    """SGLang's engines; without a size, one engine a node."""
    r = recipe.rollout
    return layout.make_rollout(
        model=model,
        nodes=nodes,
        ranks_per_node=ranks,
        gpus_per_engine=r.gpus_per_engine or ranks,
        ep=r.ep,
        dp=r.dp,
    )


def batches_of(recipe: Recipe, topology: Topology) -> None:
    """BadInput when a rollout's samples do not divide into steps and ranks."""
    r, a = recipe.rollout, recipe.algorithm
    if a.global_batch_size is not None:
        layout.check_batches(
            rollout_batch_size=r.rollout_batch_size,
            n_samples_per_prompt=1 if a.kind == "sft" else r.n_samples_per_prompt,
            global_batch_size=a.global_batch_size,
            dp=topology.dp,
            micro_batch_size=a.micro_batch_size,
        )


def row_tokens(recipe: Recipe) -> int:
    """Tokens of the longest sample: the context when it is given, else the response."""
    return recipe.rollout.context_length or recipe.rollout.max_response_len


def micro_batch_tokens(recipe: Recipe) -> int:
    """Tokens that one micro-batch is planned for."""
    a = recipe.algorithm
    return a.max_tokens_per_gpu or a.micro_batch_size * row_tokens(recipe)


def memory_of(recipe: Recipe, shape: Shape, host_memory_gb: float | None = None) -> MemoryFit:
    """Whether trainer and rollout fit on the GPU and in the host's memory."""
    o, a = recipe.optimizer, recipe.algorithm
    return fit(
        model=shape.model,
        topology=shape.topology,
        rollout=shape.rollout,
        gpu=shape.gpu,
        gpus_per_node=shape.ranks,
        host_memory_gb=host_memory_gb,
        optimizer=OptimizerMemory(
            cpu_offload_fraction=o.cpu_offload, precision_aware=o.precision_aware
        ),
        recompute=a.recompute,
        max_tokens_per_gpu=micro_batch_tokens(recipe),
        log_probs_chunk_size=a.log_probs_chunk_size,
        mem_fraction=recipe.rollout.mem_fraction,
        param_bytes=2 if shape.gpus else 4,  # the CPU path of the native trainer is fp32
    )


def traffic_of(shape: Shape) -> dict[str, Reach]:
    """How far each kind of communication reaches; a block is the nodes of one engine."""
    block = shape.rollout.nodes_per_engine if shape.rollout else 1
    return traffic(shape.topology, shape.ranks, block)
