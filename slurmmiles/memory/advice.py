"""What to change: the largest term named, and alternatives that were worked out, not guessed."""

from __future__ import annotations

from typing import NamedTuple

from slurmmiles.errors import BadInput
from slurmmiles.gpus import GpuFacts
from slurmmiles.memory.host import GB
from slurmmiles.memory.serving import EngineShape
from slurmmiles.memory.terms import (
    MIN_POOL_GB,
    TIGHT,
    GpuTerms,
    beside_static_gb,
    rollout_terms,
)
from slurmmiles.memory.training import Recompute, TrainingBytes
from slurmmiles.models import ModelFacts
from slurmmiles.topology import Rollout, make_rollout

FORMULAS = (
    "formulas: weights, gradients and states as Megatron's theoretical_memory_usage (bf16, fp32, "
    "12 bytes of Adam over the data parallelism); activations from the blocks' shapes after "
    "Korthikanti et al. 2022, an estimate for hybrid models; overhead 8 GB, paused engine 1.7 GB"
)


class Advice(NamedTuple):
    """Why something does not fit, with what to change, and what is told in any case."""

    short: list[str]
    told: list[str]


_CURES = {
    "weights": "raise parallel.pp, parallel.tp or parallel.ep",
    "grads": "raise parallel.pp, parallel.tp or parallel.ep",
    "optimizer": "raise optimizer.cpu_offload",
    "activations": "set algorithm.recompute to full, or lower algorithm.max_tokens_per_gpu",
    "logits": "set algorithm.log_probs_chunk_size, or lower algorithm.max_tokens_per_gpu",
    "calibration": "raise optimizer.cpu_offload or the parallelism: this term is measured",
}


def gpu_notes(
    model: ModelFacts,
    trained: TrainingBytes,
    terms: GpuTerms,
    offload: float,
    recompute: Recompute,
    gpu: GpuFacts,
) -> Advice:
    """The largest term of training, what to change when it is too much, and the calibration."""
    found = Advice([], [])
    named = terms.as_dict()
    largest = max(_CURES, key=lambda name: named[name])
    share = f"largest term in training: {largest} {named[largest]:.1f} GB of {terms.total:.1f} GB"
    margin = gpu.memory_gb - terms.total
    where = f"on a {gpu.name} of {gpu.memory_gb:.1f} GB, pipeline stage {trained.stage}"
    if margin < 0:
        cure = _cure(largest, recompute)
        found.short.append(f"{share} {where}, {-margin:.1f} GB too much: {cure}")
        found.short.extend(_offload_note(trained, terms, offload, gpu))
    else:
        found.told.append(f"{share} {where}, {margin:.1f} GB left")
    if model.calibration and terms.calibration > 0:
        found.told.append(
            f"calibration, not a derivation: {terms.calibration:.1f} GB make up a reserve of "
            f"{model.calibration.train_reserve_gb:.1f} GB beyond weights, gradients and states "
            f"({model.calibration.source})"
        )
    return found


def _cure(largest: str, recompute: Recompute) -> str:
    if largest == "activations" and recompute == "full":
        return "lower algorithm.max_tokens_per_gpu or raise parallel.tp"
    return _CURES[largest]


def _offload_note(
    trained: TrainingBytes, terms: GpuTerms, offload: float, gpu: GpuFacts
) -> list[str]:
    """The smallest offload fraction, in tenths, at which training fits."""
    rest = terms.total - terms.optimizer
    for tenths in range(1, 11):
        fraction = tenths / 10
        total = rest + (1 - fraction) * trained.states / GB
        if fraction > offload and total <= gpu.memory_gb:
            return [f"optimizer.cpu_offload {fraction} fits: {total:.1f} GB in training"]
    return [f"no optimizer.cpu_offload fits: {rest:.1f} GB remain at 1.0"]


def rollout_notes(
    model: ModelFacts,
    rollout: Rollout,
    serving: dict[str, float],
    gpu: GpuFacts,
    mem_fraction: float,
    world_size: int,
    ranks_per_node: int,
) -> Advice:
    """The engine's pool, and which other fraction or engine size gives it room."""
    pool, best = serving["kv_pool"], serving["kv_pool_best"]
    size = rollout.gpus_per_engine
    shown = (
        f"an engine of {size} GPUs has {serving['weights']:.1f} GB of weights on each "
        f"({serving['weights_best']:.1f} if SGLang splits shared experts and embeddings), which "
        f"leaves {pool:.1f} ({best:.1f}) of {serving['static']:.1f} GB at mem_fraction "
        f"{mem_fraction}"
    )
    if pool >= max(MIN_POOL_GB, TIGHT * gpu.memory_gb):
        return Advice([], [f"rollout: {shown}", *_sizing_note(rollout, gpu, mem_fraction)])
    found = [f"the rollout's KV pool is too small: {shown}"]
    engine = EngineShape(size, rollout.dp)
    for fraction in (0.75, 0.8, 0.85, 0.9):
        other = rollout_terms(model, engine, gpu, fraction)["kv_pool"]
        if fraction > mem_fraction and other >= 2 * TIGHT * gpu.memory_gb:
            found.append(f"rollout.mem_fraction {fraction} leaves a pool of {other:.1f} GB")
            break
    found += _larger_engine(model, rollout, gpu, mem_fraction, world_size, ranks_per_node)
    sizing = _sizing_note(rollout, gpu, mem_fraction)
    return Advice(found, sizing) if pool < MIN_POOL_GB else Advice([], found + sizing)


def _sizing_note(rollout: Rollout, gpu: GpuFacts, mem_fraction: float) -> list[str]:
    """Where SGLang's own sizing would leave more than the fraction does beside its static share."""
    wanted = beside_static_gb(gpu, rollout.gpus_per_engine, rollout.dp)
    left = (1 - mem_fraction) * gpu.memory_gb
    if rollout.dp == 1 or wanted <= left:
        return []
    return [
        f"SGLang's own sizing leaves {wanted:.1f} GB beside the static share for attention with"
        f" dp {rollout.dp} and CUDA graphs, and mem_fraction {mem_fraction} leaves {left:.1f}:"
        f" lower rollout.mem_fraction to {1 - wanted / gpu.memory_gb:.2f} or set"
        " flags.--sglang-cuda-graph-max-bs if it runs out"
    ]


def phase_notes(phases: dict[str, float], gpu: GpuFacts) -> list[str]:
    """Phases of the rollout that are too much for the card; training has its own note."""
    cures = {
        "rollout": "lower rollout.mem_fraction",
        "update_weights": "raise rollout.gpus_per_engine, or the training parallelism",
    }
    return [
        f"phase {phase}: {phases[phase]:.1f} GB are more than the {gpu.memory_gb:.1f} GB of a"
        f" {gpu.name}: {cure}"
        for phase, cure in cures.items()
        if phases.get(phase, 0.0) > gpu.memory_gb
    ]


def _larger_engine(
    model: ModelFacts,
    rollout: Rollout,
    gpu: GpuFacts,
    mem_fraction: float,
    world_size: int,
    ranks_per_node: int,
) -> list[str]:
    """The next larger engine that obeys every rule and has room, with attn_tp as it is."""
    for factor in (2, 4, 8):
        size, dp, ep = (factor * n for n in (rollout.gpus_per_engine, rollout.dp, rollout.ep))
        try:
            make_rollout(
                model=model,
                nodes=world_size // ranks_per_node,
                ranks_per_node=ranks_per_node,
                gpus_per_engine=size,
                ep=ep if model.moe else 1,
                dp=dp,
            )
        except BadInput:
            return []
        pool = rollout_terms(model, EngineShape(size, dp), gpu, mem_fraction)["kv_pool"]
        if pool >= TIGHT * gpu.memory_gb:
            return [
                f"engines of {size} GPUs (rollout.ep {ep}, rollout.dp {dp}) leave a pool of "
                f"{pool:.1f} GB at mem_fraction {mem_fraction}"
            ]
    return []


def host_notes(host: dict[str, float | None]) -> Advice:
    """The node's host memory: its largest term, and whether the limit is known."""
    total, limit = host["total"] or 0.0, host["limit"]
    terms = {k: v for k, v in host.items() if k not in ("total", "limit", "page_cache") and v}
    largest = max(terms, key=lambda name: terms[name] or 0.0)
    shown = f"host memory of a node: {total:.0f} GB, of which {largest} {terms[largest]:.0f} GB"
    if limit is None:
        return Advice([], [f"{shown}; not judged, because the site names no host memory"])
    if total > limit:
        over = (
            f"{shown}, {total - limit:.0f} GB more than the node's {limit:.0f} GB: lower "
            "optimizer.cpu_offload, use more nodes, or nodes with more memory"
        )
        return Advice([over], [])
    return Advice([], [f"{shown}, of {limit:.0f} GB"])
