"""The terms of one GPU, its total at each phase of the colocated cycle, and their verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from slurmmiles.gpus import MIB, GpuFacts
from slurmmiles.memory.host import GB
from slurmmiles.memory.serving import (
    EngineShape,
    engine_weight_bytes,
    kv_bytes_per_token,
    mamba_bytes_per_request,
)
from slurmmiles.memory.training import TrainingBytes
from slurmmiles.models import ModelFacts

Verdict = Literal["fits", "tight", "does not fit"]
ORDER: tuple[Verdict, ...] = ("fits", "tight", "does not fit")

OVERHEAD_GB = 8.0
"""CUDA context, NCCL buffers, cuBLAS and cuDNN workspaces of a training process. Estimate."""
RESIDUE_GB = 1.7
"""What a paused engine keeps: 1,666 MiB after release_memory_occupation, on an H200."""
WORKSPACE_GB = 4.0
"""CUDA graphs and prefill activations of an engine, outside its static fraction. Estimate."""
BUCKET_GB = 1.0
"""Weights on their way from trainer to engine (miles' flattened buckets). Estimate."""
MIN_POOL_GB = 1.0
"""A smaller pool holds next to no request."""
TIGHT = 0.05
"""A margin below this share of a limit is smaller than the estimate's own error."""


@dataclass(frozen=True, slots=True)
class GpuTerms:
    """The fullest GPU while it trains, in GB. `calibration` is what a measured reserve adds."""

    weights: float
    grads: float
    optimizer: float
    activations: float
    logits: float
    overhead: float
    rollout_residue: float
    calibration: float

    @property
    def total(self) -> float:
        return float(sum(asdict(self).values()))

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def gpu_terms(
    model: ModelFacts, trained: TrainingBytes, on_gpu: float, has_rollout: bool
) -> GpuTerms:
    """Terms of a GPU of the given stage; `on_gpu` is the share of the states that lives there."""
    activations, logits = trained.activations / GB, trained.logits / GB
    residue = RESIDUE_GB if has_rollout else 0.0
    counted = activations + logits + OVERHEAD_GB + residue
    reserve = model.calibration.train_reserve_gb if model.calibration else 0.0
    return GpuTerms(
        weights=trained.weights / GB,
        grads=trained.grads / GB,
        optimizer=on_gpu * trained.states / GB,
        activations=activations,
        logits=logits,
        overhead=OVERHEAD_GB,
        rollout_residue=residue,
        calibration=max(0.0, reserve - counted),
    )


def rollout_terms(
    model: ModelFacts, engine: EngineShape, gpu: GpuFacts, mem_fraction: float
) -> dict[str, float]:
    """GB of one GPU of an engine: worst and best weights, and the pool that each leaves."""
    worst, best = (b / GB for b in engine_weight_bytes(model, engine))
    static = mem_fraction * gpu.memory_gb
    return {
        "static": static,
        "weights": worst,
        "weights_best": best,
        "kv_pool": max(0.0, static - worst),
        "kv_pool_best": max(0.0, static - best),
        "kv_per_1k_tokens": 1000 * kv_bytes_per_token(model, engine.attn_tp) / GB,
        "mamba_per_request": mamba_bytes_per_request(model, engine.attn_tp) / GB,
    }


def beside_static_gb(gpu: GpuFacts, engine_gpus: int, dp: int) -> float:
    """What SGLang would leave beside its static share: prefill activations and CUDA graphs, which
    data-parallel attention pads. Its own rule of thumb (0.5.20, `memory_hook`), in GB.
    """
    mib = gpu.memory_mib
    prefill = 16384 if mib >= 160 * 1024 else 8192 if mib >= 60 * 1024 else 4096
    large = engine_gpus >= 4
    batch = 160 if large else 32
    if mib >= 60 * 1024:
        batch = 512 if large or mib >= 160 * 1024 else 256
    padded = batch * dp * (4.5 if batch > 300 else 3) if dp > 1 else 0
    reserved = 512 + 1.5 * prefill + 128 * engine_gpus + 2 * batch + padded
    return reserved * MIB / GB


def phase_totals(terms: GpuTerms, serving: dict[str, float]) -> dict[str, float]:
    """One GPU's total in each phase, in the order of miles' train.py.

    Trainer and engine sleep in turn; for the update the trainer's weights and the engine's are both
    awake, while gradients, states and the KV pool sleep.
    """
    both_asleep = terms.overhead + terms.rollout_residue
    found = {"train": terms.total, "offloaded": both_asleep}
    if serving:
        found["rollout"] = serving["static"] + WORKSPACE_GB + RESIDUE_GB
        found["update_weights"] = terms.weights + serving["weights"] + BUCKET_GB + both_asleep
    return found


def judge(total: float, limit: float, tight: float = TIGHT) -> Verdict:
    """`total` against `limit`, both in GB."""
    if total > limit:
        return "does not fit"
    return "tight" if limit - total < tight * limit else "fits"


def judge_pool(serving: dict[str, float], gpu: GpuFacts) -> Verdict:
    """Whether the engine's caches have room, in the worse count of its weights."""
    pool = serving["kv_pool"]
    if pool < MIN_POOL_GB:
        return "does not fit"
    return "tight" if pool < TIGHT * gpu.memory_gb else "fits"


def worst(verdicts: list[Verdict]) -> Verdict:
    """The worst of several verdicts."""
    return max(verdicts, key=ORDER.index)
