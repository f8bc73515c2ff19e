"""The verdict: every term at each phase of the colocated cycle, against the card and the host."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from slurmmiles.gpus import GpuFacts
from slurmmiles.memory.advice import (
    FORMULAS,
    Advice,
    gpu_notes,
    host_notes,
    phase_notes,
    rollout_notes,
)
from slurmmiles.memory.host import cpu_node_host_gb, gpu_node_host_gb
from slurmmiles.memory.serving import EngineShape, engine_weight_bytes
from slurmmiles.memory.terms import (
    GpuTerms,
    Verdict,
    gpu_terms,
    judge,
    judge_pool,
    phase_totals,
    rollout_terms,
    worst,
)
from slurmmiles.memory.training import OptimizerMemory, Recompute, TrainingBytes, training_bytes
from slurmmiles.models import ModelFacts
from slurmmiles.parameters import count_parameters
from slurmmiles.topology import Rollout, Topology

HOST_TIGHT = 0.1
"""The page cache, and what a site runs besides, want some of the host."""
NO_RECOMPUTE = "{} takes no recompute settings, whatever the flags say"
PHASES = ("train", "offloaded", "rollout", "update_weights")


class MemoryFit(BaseModel):
    """All terms in GB of 1e9 bytes; `gpu_gb` is the fullest GPU in training, with `calibration`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_gb: dict[str, float]
    gpu_phases_gb: dict[str, float]
    """The GPU's total in each phase: train, offloaded, rollout, update_weights."""
    rollout_gb: dict[str, float]
    host_gb: dict[str, float | None]
    """One node; `page_cache` is wanted and not in `total`; `limit` None: not known."""
    verdict: Verdict
    notes: tuple[str, ...]
    shortfalls: tuple[str, ...] = ()
    """The notes that say why it does not fit, each with what to change."""


def fit(
    *,
    model: ModelFacts | None,
    topology: Topology,
    rollout: Rollout | None,
    gpu: GpuFacts | None,
    gpus_per_node: int,
    host_memory_gb: float | None = None,
    optimizer: OptimizerMemory,
    recompute: Recompute = "none",
    max_tokens_per_gpu: int = 4096,
    log_probs_chunk_size: int | None = None,
    mem_fraction: float = 0.7,
    param_bytes: int = 2,
    grad_bytes: int = 4,
) -> MemoryFit:
    """Whether the run fits. `gpu` None: CPUs only, `gpus_per_node` then the ranks of a node.

    `max_tokens_per_gpu` is a micro-batch's length: miles' flag, or the row length. `rollout` None:
    no engines (supervised fine-tuning). `model` None: nothing is trained, so everything fits.
    """
    if model is None:
        return _nothing_to_fit(gpu, host_memory_gb)
    effective: Recompute = recompute if model.honours_recompute else "none"
    stages = [
        training_bytes(
            model,
            topology,
            stage,
            optimizer=optimizer,
            recompute=effective,
            tokens=max_tokens_per_gpu,
            log_probs_chunk=log_probs_chunk_size,
            param_bytes=param_bytes,
            grad_bytes=grad_bytes,
        )
        for stage in range(topology.pp)
    ]
    on_gpu = 1.0 - optimizer.cpu_offload_fraction if gpu else 1.0
    fullest = max(stages, key=lambda held: held.on_device(on_gpu))
    if gpu is None:
        host = _cpu_host(model, rollout, fullest, gpus_per_node, host_memory_gb, param_bytes)
        return _on_cpus(host)
    host = _gpu_host(model, rollout, fullest, optimizer, gpus_per_node, host_memory_gb)
    terms = gpu_terms(model, fullest, on_gpu, has_rollout=rollout is not None)
    serving = _serving(model, rollout, gpu, mem_fraction)
    advice = gpu_notes(model, fullest, terms, optimizer.cpu_offload_fraction, effective, gpu)
    if recompute != effective:
        advice.told.insert(0, NO_RECOMPUTE.format(model.name))
    if rollout is not None:
        ranks = (topology.world_size, gpus_per_node)
        pool = rollout_notes(model, rollout, serving, gpu, mem_fraction, *ranks)
        advice = Advice(advice.short + pool.short, advice.told + pool.told)
    return _on_gpus(gpu, terms, serving, host, advice)


def _on_gpus(
    gpu: GpuFacts,
    terms: GpuTerms,
    serving: dict[str, float],
    host: dict[str, float | None],
    advice: Advice,
) -> MemoryFit:
    """Every phase against the card, the pool, and the host."""
    phases = phase_totals(terms, serving)
    verdicts = [judge(total, gpu.memory_gb) for total in phases.values()]
    verdicts += [judge_pool(serving, gpu)] if serving else []
    on_host = host_notes(host)
    short = [*advice.short, *phase_notes(phases, gpu), *on_host.short]
    return MemoryFit(
        gpu_gb=_with_total(terms, gpu),
        gpu_phases_gb=_rounded(phases),
        rollout_gb=_rounded(serving),
        host_gb=host,
        verdict=worst([*verdicts, _judge_host(host)]),
        notes=(*short, *advice.told, *on_host.told, FORMULAS),
        shortfalls=tuple(short),
    )


def _on_cpus(host: dict[str, float | None]) -> MemoryFit:
    """No card: only the host is judged."""
    short, told = host_notes(host)
    return MemoryFit(
        gpu_gb=_with_total(None, None),
        gpu_phases_gb=dict.fromkeys(PHASES, 0.0),
        rollout_gb={},
        host_gb=host,
        verdict=_judge_host(host),
        notes=(*short, *told, FORMULAS),
        shortfalls=tuple(short),
    )


def _judge_host(host: dict[str, float | None]) -> Verdict:
    limit = host["limit"]
    return "fits" if limit is None else judge(host["total"] or 0.0, limit, HOST_TIGHT)


def _nothing_to_fit(gpu: GpuFacts | None, limit: float | None) -> MemoryFit:
    return MemoryFit(
        gpu_gb=_with_total(None, gpu),
        gpu_phases_gb=dict.fromkeys(PHASES, 0.0),
        rollout_gb={},
        host_gb={"object_store": 0.0, "total": 0.0, "limit": limit},
        verdict="fits",
        notes=("no model: nothing to fit",),
    )


def _serving(
    model: ModelFacts, rollout: Rollout | None, gpu: GpuFacts, mem_fraction: float
) -> dict[str, float]:
    if rollout is None:
        return {}
    engine = EngineShape(rollout.gpus_per_engine, rollout.dp)
    return rollout_terms(model, engine, gpu, mem_fraction)


def _gpu_host(
    model: ModelFacts,
    rollout: Rollout | None,
    trained: TrainingBytes,
    optimizer: OptimizerMemory,
    gpus_per_node: int,
    limit: float | None,
) -> dict[str, float | None]:
    on_gpu = 1.0 - optimizer.cpu_offload_fraction
    terms = gpu_node_host_gb(
        trained,
        optimizer,
        gpus_per_node=gpus_per_node,
        on_gpu_bytes=trained.weights + trained.grads + on_gpu * trained.states,
        checkpoint_bytes=2.0 * count_parameters(model).total,
        nodes_per_engine=rollout.nodes_per_engine if rollout else 1,
    )
    return {**_rounded(terms), "limit": limit}


def _cpu_host(
    model: ModelFacts,
    rollout: Rollout | None,
    trained: TrainingBytes,
    ranks_per_node: int,
    limit: float | None,
    param_bytes: int,
) -> dict[str, float | None]:
    engines, weights = 0.0, 0.0
    if rollout is not None:
        engines = max(1.0, ranks_per_node / rollout.gpus_per_engine)
        shape = EngineShape(rollout.gpus_per_engine, rollout.dp)
        weights = engine_weight_bytes(model, shape, param_bytes)[0] * rollout.gpus_per_engine
    terms = cpu_node_host_gb(
        trained, ranks_per_node=ranks_per_node, engine_bytes=weights, engines_per_node=engines
    )
    return {**_rounded(terms), "limit": limit}


def _with_total(terms: GpuTerms | None, gpu: GpuFacts | None) -> dict[str, float]:
    """All terms with `total` and `limit`; zeros where nothing is on a GPU."""
    found = terms or GpuTerms(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    limit = gpu.memory_gb if gpu else 0.0
    return _rounded({**found.as_dict(), "total": found.total, "limit": limit})


def _rounded(terms: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in terms.items()}
