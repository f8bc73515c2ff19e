"""The host memory of one node: what training keeps there, the rollout, Ray, the page cache."""

from __future__ import annotations

from slurmmiles.memory.training import OptimizerMemory, TrainingBytes

GB = 1e9
OBJECT_STORE_GB = 10.0
"""Samples in Ray's object store, which may grow to 30 % of the host. Estimate."""
SYSTEM_GB = 10.0
"""Operating system, Slurm, raylets and Python processes of a GPU node. Estimate."""
CPU_OBJECT_STORE_GB = 0.5
"""Samples of a small model. Estimate."""
TRAINER_PROCESS_GB = 1.0
"""A Python process with torch and megatron-core, resident. Estimate."""
ENGINE_PROCESS_GB = 3.4
"""SGLang server, scheduler and detokenizer on CPU, resident: 3.4 GB measured with SGLang 0.5.23."""


def gpu_node_host_gb(
    trained: TrainingBytes,
    optimizer: OptimizerMemory,
    *,
    gpus_per_node: int,
    on_gpu_bytes: float,
    checkpoint_bytes: float,
    nodes_per_engine: int,
) -> dict[str, float]:
    """Host GB of a node of GPUs that train and sleep in turn.

    States and pinned fp32 gradients of the offloaded share (Megatron's HybridDeviceOptimizer), the
    memory saver's copy of all that sleeps, and a bf16 copy of the weights for the update. The page
    cache of the checkpoint is wanted and not in `total`: the kernel gives it back under pressure.
    """
    offloaded = optimizer.cpu_offload_fraction * trained.states * gpus_per_node
    terms = {
        "optimizer_states": offloaded / GB,
        "pinned_grads": offloaded / 3 / GB,
        "backup": gpus_per_node * on_gpu_bytes / GB,
        "bf16_copy": gpus_per_node * trained.weights / GB,
        "object_store": OBJECT_STORE_GB,
        "system": SYSTEM_GB,
    }
    total = sum(terms.values())
    return {**terms, "page_cache": checkpoint_bytes / nodes_per_engine / GB, "total": total}


def cpu_node_host_gb(
    trained: TrainingBytes, *, ranks_per_node: int, engine_bytes: float, engines_per_node: float
) -> dict[str, float]:
    """Host GB of a node without GPUs: everything of every rank, and the engines, lives here."""
    training = trained.weights + trained.grads + trained.activations + trained.logits
    terms = {
        "optimizer_states": ranks_per_node * trained.states / GB,
        "pinned_grads": 0.0,
        "backup": 0.0,
        "bf16_copy": 0.0,
        "training": ranks_per_node * training / GB,
        "rollout": engines_per_node * engine_bytes / GB,
        "processes": ranks_per_node * TRAINER_PROCESS_GB + engines_per_node * ENGINE_PROCESS_GB,
        "object_store": CPU_OBJECT_STORE_GB,
    }
    return {**terms, "page_cache": 0.0, "total": sum(terms.values())}
