"""What the kind of GPU changes: refusals, and hints with the memory figure; pure.

Sources: miles' platform page (A100 has no fp8 GEMM; a card with more memory than the 80 GB that
recipes are tuned for often allows a smaller TP), and the GPU's own facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurmmiles.errors import BadInput
from slurmmiles.flagmerge import as_value, shown
from slurmmiles.gpus import GpuFacts
from slurmmiles.layouts import Shape, memory_of, shape_of
from slurmmiles.memory import MemoryFit
from slurmmiles.planfile import EnvValue
from slurmmiles.recipe import Recipe

TUNED_FOR_GB = 90.0
"""Recipes are tuned for cards of 80 GB (85.5 of 1e9 bytes); above this is a larger card."""
MARGIN = 0.95
"""A hint must leave more than the estimate's own error (memory.terms.TIGHT)."""


def fp8_settings(recipe: Recipe) -> list[str]:
    """What makes a recipe an fp8 one: a flag of Megatron's fp8 family, an SGLang flag or value that
    names fp8, or an fp8 checkpoint.
    """
    found = []
    for name, raw in recipe.flags.items():
        value = as_value(raw)
        if value is None:
            continue
        text = shown(value).lower()
        trains = name.startswith("--fp8") and text not in ("none", "false")
        if trains or (name.startswith("--sglang-") and "fp8" in f"{name} {text}"):
            found.append(f"flags.{name}={shown(value)}")
    checkpoint = recipe.model.hf_checkpoint or ""
    if "fp8" in checkpoint.rpartition("/")[2].lower():
        found.append(f"model.hf_checkpoint={checkpoint}")
    return found


def refuse_fp8(recipe: Recipe, gpu: GpuFacts) -> None:
    """BadInput for an fp8 recipe on a GPU without fp8 tensor cores."""
    settings = [] if gpu.supports_fp8 else fp8_settings(recipe)
    if settings:
        raise BadInput(
            f"a {gpu.name} has no fp8 tensor cores, so only bf16 runs on it",
            where=", ".join(settings),
            fix="leave these out, or use H100, H200 or Blackwell",
        )


def refuse_expandable(env: Mapping[str, EnvValue]) -> None:
    """BadInput for expandable segments where trainer and engines take turns on one GPU.

    They break torch_memory_saver's pause and the CUDA IPC of the weight update
    (torch_memory_saver issue 24, PyTorch issue 130330).
    """
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        entry = env.get(name)
        if entry and "expandable_segments:true" in entry.value.replace(" ", "").lower():
            raise BadInput(
                f"{name}={entry.value} breaks the memory saver of a colocated run",
                where=f"{entry.origin}, env",
                fix="remove expandable_segments",
            )


def gpu_notes(gpu: GpuFacts, gpus_per_node: int, *, assumed: bool) -> Iterable[str]:
    """What is only assumed about the card or its node."""
    if assumed:
        yield f"no kind of GPU is given (--gpu, or `gpu` in the site file): {gpu.name} is assumed"
    if gpus_per_node > gpu.gpus_per_node:
        yield (
            f"a node of {gpu.name} has {gpu.gpus_per_node} GPUs and {gpus_per_node} are asked for:"
            f" give --gpus-per-node {gpu.gpus_per_node} and more nodes"
        )


def smaller_tp(recipe: Recipe, shape: Shape, memory: MemoryFit) -> str | None:
    """A hint where half the tensor parallelism obeys every rule and fits, with its memory."""
    gpu, tp = shape.gpu, shape.topology.tp
    if gpu is None or gpu.memory_gb < TUNED_FOR_GB or tp == 1 or shape.model is None:
        return None
    parallel = recipe.parallel.model_copy(update={"tp": tp // 2, "sequence_parallel": None})
    smaller = recipe.model_copy(update={"parallel": parallel})
    try:
        other = shape_of(
            smaller, shape.model, gpu, nodes=shape.nodes, gpus=shape.gpus, ranks=shape.ranks
        )
    except BadInput:
        return None
    train, limit = memory_of(smaller, other).gpu_phases_gb["train"], memory.gpu_gb["limit"]
    if train > MARGIN * limit:
        return None
    return (
        f"a {gpu.name} has room for parallel.tp={tp // 2} (now {tp}): training would take"
        f" {train:.1f} of {limit:.1f} GB instead of {memory.gpu_phases_gb['train']:.1f}, with"
        f" data parallelism {other.topology.dp} instead of {shape.topology.dp}"
    )
