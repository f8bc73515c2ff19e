"""What to change: the largest term named, and alternatives that were worked out, not guessed."""

from __future__ import annotations

from slurmmiles.errors import BadInput
from slurmmiles.gpus import GpuFacts
from slurmmiles.memory.host import GB
from slurmmiles.memory.serving import EngineShape
from slurmmiles.memory.terms import MIN_POOL_GB, TIGHT, GpuTerms, rollout_terms
from slurmmiles.memory.training import Recompute, TrainingBytes
from slurmmiles.models import ModelFacts
from slurmmiles.topology import Rollout, make_rollout

FORMULAS = (
    "formulas: weights, gradients and states as Megatron's theoretical_memory_usage (bf16, fp32, "
    "12 bytes of Adam over the data parallelism); activations from the blocks' shapes after "
    "Korthikanti et al. 2022, an estimate for hybrid models; overhead 8 GB, paused engine 1.7 GB"
)

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
) -> list[str]:
    """The largest term of training, what to change when it is too much, and the calibration."""
    found = []
    named = terms.as_dict()
    largest = max(_CURES, key=lambda name: named[name])
    share = f"largest term in training: {largest} {named[largest]:.1f} GB of {terms.total:.1f} GB"
    margin = gpu.memory_gb - terms.total
    where = f"on a {gpu.name} of {gpu.memory_gb:.1f} GB, pipeline stage {trained.stage}"
    if margin < 0:
        found.append(f"{share} {where}, {-margin:.1f} GB too much: {_cure(largest, recompute)}")
        found += _offload_note(trained, terms, offload, gpu)
    else:
        found.append(f"{share} {where}, {margin:.1f} GB left")
    if model.calibration and terms.calibration > 0:
        found.append(
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
) -> list[str]:
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
        return [f"rollout: {shown}"]
    found = [f"the rollout's KV pool is too small: {shown}"]
    engine = EngineShape(size, rollout.dp)
    for fraction in (0.75, 0.8, 0.85, 0.9):
        other = rollout_terms(model, engine, gpu, fraction)["kv_pool"]
        if fraction > mem_fraction and other >= 2 * TIGHT * gpu.memory_gb:
            found.append(f"rollout.mem_fraction {fraction} leaves a pool of {other:.1f} GB")
            break
    return found + _larger_engine(model, rollout, gpu, mem_fraction, world_size, ranks_per_node)


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


def host_notes(host: dict[str, float | None]) -> list[str]:
    """The node's host memory: its largest term, and whether the limit is known."""
    total, limit = host["total"] or 0.0, host["limit"]
    terms = {k: v for k, v in host.items() if k not in ("total", "limit", "page_cache") and v}
    largest = max(terms, key=lambda name: terms[name] or 0.0)
    shown = f"host memory of a node: {total:.0f} GB, of which {largest} {terms[largest]:.0f} GB"
    if limit is None:
        return [f"{shown}; not judged, because the site names no host memory"]
    if total > limit:
        return [
            f"{shown}, {total - limit:.0f} GB more than the node's {limit:.0f} GB: lower "
            "optimizer.cpu_offload, use more nodes, or nodes with more memory"
        ]
    return [f"{shown}, of {limit:.0f} GB"]
