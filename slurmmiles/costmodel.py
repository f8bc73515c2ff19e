"""Seconds of one optimizer step by layout: a model for comparing layouts, not a prediction; pure.

What each term counts and what it leaves out is said in `MODEL`, which `plan --explore` prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from slurmmiles.gpus import GpuFacts
from slurmmiles.layouts import Shape, micro_batch_tokens, row_tokens, traffic_of
from slurmmiles.memory.training import stage_parameters
from slurmmiles.models import ModelFacts
from slurmmiles.parameters import layer_parameters
from slurmmiles.recipe import Recipe
from slurmmiles.topology import Reach, Topology

EFFICIENCY = 0.4
"""Share of the dense bf16 peak that large matrix products reach in training. An estimate."""
NETWORK_GB_S = 50.0
"""Each GPU's own 400 Gb/s port, the usual node of 8 GPUs and 8 NICs."""
BF16 = 2
MODEL = (
    f"compute: 6 N tokens at {EFFICIENCY:.0%} of the dense bf16 peak, a third more for full"
    " recompute, as slow as the stage with the most active parameters",
    "bubble: (pp - 1) / micro-batches of that compute (1F1B without interleaving)",
    "tp: an all-gather and a reduce-scatter of the hidden states around each of a layer's blocks,"
    " forward and backward",
    "ep: each token's top-k copies to the experts and back, forward and backward",
    "dp: the reduction of fp32 gradients and the gathering of bf16 weights, once a step",
    "offload: gradients to the host and weights back over the host link, once a step",
    f"links: half of NVLink's two directions inside a node, {NETWORK_GB_S:g} GB/s a GPU beyond it;"
    " no term overlaps another; rollout and its weight update cost all layouts the same",
)


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """One optimizer step by what takes the time; `total` is what layouts are ranked by."""

    compute: float
    bubble: float
    tp: float
    ep: float
    dp: float
    offload: float

    @property
    def total(self) -> float:
        return float(sum(asdict(self).values()))


def micro_batches(recipe: Recipe, topology: Topology) -> float:
    """Micro-batches of one data-parallel rank in a step: rows are packed, but never cut."""
    rows = max(1, micro_batch_tokens(recipe) // row_tokens(recipe))
    return max(1.0, _global_batch(recipe) / topology.dp / rows)


def step_seconds(recipe: Recipe, shape: Shape, model: ModelFacts, gpu: GpuFacts) -> StepSeconds:
    """The step of `recipe` in the layout of `shape` on this kind of GPU."""
    t, reach = shape.topology, traffic_of(shape)
    tokens = _global_batch(recipe) * row_tokens(recipe) / t.dp / t.cp  # of one model replica
    again = recipe.algorithm.recompute == "full" and model.honours_recompute
    passes = 8 if again else 6
    flops = passes * _slowest_stage(model, t) * tokens / t.tp
    compute = flops / (EFFICIENCY * gpu.bf16_tflops * 1e12)
    return StepSeconds(
        compute=compute,
        bubble=compute * (t.pp - 1) / micro_batches(recipe, t),
        tp=_tensor_bytes(model, t, tokens, again) / _link(gpu, reach["tp"]),
        ep=_expert_seconds(model, shape, gpu, tokens, again),
        dp=_gradient_seconds(shape, model, gpu, reach),
        offload=_offload_seconds(recipe, model, t, gpu),
    )


def _global_batch(recipe: Recipe) -> int:
    r, a = recipe.rollout, recipe.algorithm
    samples = 1 if a.kind == "sft" else r.n_samples_per_prompt
    return a.global_batch_size or r.rollout_batch_size * samples


def _link(gpu: GpuFacts, reach: Reach) -> float:
    """Bytes a second of one GPU, one direction."""
    inside = gpu.nvlink_gb_s / 2 or gpu.host_link_gb_s
    return (inside if reach in ("none", "in a node") else NETWORK_GB_S) * 1e9


def active_parameters(model: ModelFacts, layers: Iterable[int]) -> float:
    """Parameters of these layers that one token uses."""
    share = model.moe.router_topk / model.moe.num_experts if model.moe else 0.0
    held = (layer_parameters(model, index) for index in layers)
    return sum(p.routed * share + p.sharded + p.duplicated for p in held)


def _slowest_stage(model: ModelFacts, topology: Topology) -> float:
    """Active parameters of the stage with the most; the last one has the output layer."""
    stages = [active_parameters(model, stage) for stage in topology.stages]
    stages[-1] += model.vocab_size * model.hidden_size
    return max(stages)


def _tensor_bytes(model: ModelFacts, t: Topology, tokens: float, again: bool) -> float:
    """Hidden states that one rank sends for tensor and sequence parallelism."""
    blocks = max(sum(len(model.layers[i]) for i in stage) for stage in t.stages)
    rounds = 2 * (3 if again else 2)  # all-gather and reduce-scatter: forward, backward, again
    return rounds * blocks * tokens * model.hidden_size * BF16 * (t.tp - 1) / t.tp


def _expert_seconds(
    model: ModelFacts, shape: Shape, gpu: GpuFacts, tokens: float, again: bool
) -> float:
    """The all-to-all of one rank: over NVLink within its node, over its own NIC beyond it."""
    moe, t = model.moe, shape.topology
    if moe is None or t.ep == 1:
        return 0.0
    layers = max(sum("E" in model.layers[i] for i in stage) for stage in t.stages)
    width = moe.latent_size or model.hidden_size
    rounds = 2 * (3 if again else 2)  # dispatch and combine
    sent = rounds * layers * tokens / t.tp * moe.router_topk * width * BF16
    near = min(1.0, max(1, shape.ranks // t.etp) / t.ep)
    inside, beyond = near - 1 / t.ep, 1 - near
    return sent * (inside / _link(gpu, "in a node") + beyond / _link(gpu, "crosses blocks"))


def _fullest(model: ModelFacts, t: Topology) -> tuple[float, float]:
    """(expert, dense) parameters on one GPU of the stage with the most."""
    held = max((stage_parameters(model, t, s) for s in range(t.pp)), key=lambda p: p.total)
    return held.expert, held.dense


def _gradient_seconds(
    shape: Shape, model: ModelFacts, gpu: GpuFacts, reach: dict[str, Reach]
) -> float:
    t = shape.topology
    expert, dense = _fullest(model, t)
    per_parameter = 4 + BF16
    found = 0.0
    for held, ranks, kind in ((expert, t.edp, "edp"), (dense, t.dp * t.cp, "dp")):
        found += per_parameter * held * (ranks - 1) / ranks / _link(gpu, reach[kind])
    return found


def _offload_seconds(recipe: Recipe, model: ModelFacts, t: Topology, gpu: GpuFacts) -> float:
    expert, dense = _fullest(model, t)
    moved = recipe.optimizer.cpu_offload * (expert / t.edp + dense / t.dp) * (4 + BF16)
    return moved / (gpu.host_link_gb_s * 1e9)
