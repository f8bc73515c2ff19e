"""Where an OpenRecipes file contradicts itself: each part against the others, both values named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from slurmmiles.economics import mfu, window_tokens
from slurmmiles.gpus import GpuFacts
from slurmmiles.models import ModelFacts
from slurmmiles.openrecipes import OpenRecipe, integer, offload_fraction
from slurmmiles.runblock import FlagText, exports_of, flags_of, model_type_of
from slurmmiles.topology import split_layers

NO_RECOMPUTE = re.compile(r"[^.;()]*\btakes? no recompute settings?\b", re.IGNORECASE)


def contradictions(
    file: OpenRecipe, model: ModelFacts | None, gpu: GpuFacts | None
) -> tuple[str, ...]:
    """Warnings, in the order of the file."""
    flags = flags_of(file.run)
    return (
        *_gpus(file, flags),
        *_stack(file),
        *_workload(file, flags),
        *_layout(file, flags),
        *_split(file, flags, model),
        *_recompute(file, flags, model),
        *_environment(file),
        *_model(file, model),
        *_result(file, gpu),
    )


def _differ(what: str, stated: Any, runs: str, value: Any) -> Iterator[str]:
    """A warning when a stated value is not the run block's; None is not stated."""
    if stated is not None and stated != value:
        yield f"{what} is {_word(stated)}, but {runs} {_word(value)}: the run block decides"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "nothing" if value is None else str(value)


def _flag(
    flags: Mapping[str, FlagText], name: str, stated: Any, what: str, default: int | None = 1
) -> Iterator[str]:
    given = integer(flags, name, None)
    runs = f"run has {name}" if given is not None else f"run has no {name}, which means"
    yield from _differ(what, stated, runs, default if given is None else given)


def _gpus(file: OpenRecipe, flags: Mapping[str, FlagText]) -> Iterator[str]:
    gpu = file.gpu
    per_node = gpu.per_node
    yield from _flag(flags, "--actor-num-gpus-per-node", per_node, "gpu.per_node", per_node)
    yield from _flag(flags, "--num-gpus-per-node", per_node, "gpu.per_node", 8)
    nodes = gpu.count // per_node
    yield from _flag(flags, "--actor-num-nodes", nodes, "gpu.count / gpu.per_node", nodes)


def _stack(file: OpenRecipe) -> Iterator[str]:
    stack, provider = file.stack, file.environment.get("FI_PROVIDER")
    found = re.search(r"(\d+) GPUs per node", stack.network)
    if found and int(found[1]) != file.gpu.per_node:
        yield f"stack.network says {found[0]}, but gpu.per_node is {file.gpu.per_node}"
    efa = re.search(r"\bEFA\b", stack.network) is not None
    if provider and stack.network and efa != (provider == "efa"):
        yield f"env.FI_PROVIDER is {provider}, but stack.network is {stack.network!r}"
    if stack.framework and "miles" not in stack.framework and "miles" in file.run:
        yield f"stack.framework is {stack.framework!r}, but run starts miles"


def _workload(file: OpenRecipe, flags: Mapping[str, FlagText]) -> Iterator[str]:
    work = file.workload
    yield from _flag(flags, "--global-batch-size", work.global_batch, "workload.global_batch", None)
    yield from _flag(
        flags, "--num-rollout", file.result.steps_per_run, "result.steps_per_run", None
    )
    for name in ("bf16", "fp16"):
        if f"--{name}" in flags and work.precision not in (None, name):
            yield f"workload.precision is {work.precision}, but run has --{name}"


def _layout(file: OpenRecipe, flags: Mapping[str, FlagText]) -> Iterator[str]:
    layout = file.layout
    sizes = {
        "tp": "--tensor-model-parallel-size",
        "pp": "--pipeline-model-parallel-size",
        "cp": "--context-parallel-size",
        "ep": "--expert-model-parallel-size",
        "vpp": "--virtual-pipeline-model-parallel-size",
    }
    for key, flag in sizes.items():
        yield from _flag(flags, flag, getattr(layout, key), f"layout.{key}")
    tp = integer(flags, sizes["tp"], 1) or 1
    yield from _flag(flags, "--expert-tensor-parallel-size", layout.etp, "layout.etp", tp)
    replicas = tp * (integer(flags, sizes["pp"], 1) or 1) * (integer(flags, sizes["cp"], 1) or 1)
    runs = "GPUs / (tp x pp x cp) of run is"
    yield from _differ("layout.dp", layout.dp, runs, file.gpu.count // replicas)
    parallel = "--sequence-parallel" in flags
    runs = "run has --sequence-parallel" if parallel else "run has it"
    yield from _differ("layout.sequence_parallel", layout.sequence_parallel, runs, parallel)
    rows = layout.rows_per_microbatch
    yield from _flag(flags, "--micro-batch-size", rows, "layout.rows_per_microbatch")
    tokens = layout.max_tokens_per_gpu
    yield from _flag(flags, "--max-tokens-per-gpu", tokens, "layout.max_tokens_per_gpu", None)
    yield from _offload(file, flags)
    dispatcher = flags.get("--moe-token-dispatcher-type")
    if dispatcher is not None:
        runs = "run has --moe-token-dispatcher-type"
        yield from _differ("layout.dispatcher", layout.dispatcher, runs, dispatcher)


def _offload(file: OpenRecipe, flags: Mapping[str, FlagText]) -> Iterator[str]:
    offload = file.layout.offload
    if offload is None:
        return
    runs = "run offloads the fraction"
    fraction = offload.optimizer_fraction
    yield from _differ("layout.offload.optimizer_fraction", fraction, runs, offload_fraction(flags))
    overlap = "--overlap-cpu-optimizer-d2h-h2d" in flags
    runs = "in run --overlap-cpu-optimizer-d2h-h2d is"
    stated = offload.overlap_d2h_h2d
    yield from _differ("layout.offload.overlap_d2h_h2d", stated, runs, overlap)


def _split(
    file: OpenRecipe, flags: Mapping[str, FlagText], model: ModelFacts | None
) -> Iterator[str]:
    split = file.layout.layer_split
    if split is None:
        return
    first = integer(flags, "--decoder-first-pipeline-num-layers", None)
    last = integer(flags, "--decoder-last-pipeline-num-layers", None)
    pp = integer(flags, "--pipeline-model-parallel-size", 1) or 1
    stages = split_layers(model.num_layers, pp, first, last) if model else None
    ends = (stages[0], stages[-1]) if stages else (first, last)
    for key, stated, value in (("first", split.first, ends[0]), ("last", split.last, ends[1])):
        if value is not None:
            runs = f"the {key} stage of run has"
            yield from _differ(f"layout.layer_split.{key}", stated, runs, value)


def _recompute(
    file: OpenRecipe, flags: Mapping[str, FlagText], model: ModelFacts | None
) -> Iterator[str]:
    """Flags of recomputation against what layout, notes and the model's facts say of them."""
    asked = [f"{name} {value}" for name, value in flags.items() if name.startswith("--recompute-")]
    stated = file.layout.recompute
    said = NO_RECOMPUTE.search(file.layout.summary) or NO_RECOMPUTE.search(file.notes)
    if not asked:
        if stated is not None:
            yield f"layout.recompute is {stated}, but run has no --recompute-granularity"
        return
    has = f"run has {' '.join(asked)}"
    if stated is None:
        yield f"layout.recompute is nothing, but {has}: the flags are passed as they stand"
    if said:
        yield f"the file says {said[0].strip()!r}, but {has}: the flags are passed as they stand"
    elif model and not model.honours_recompute:
        yield f"{model.name} takes no recompute settings, but {has}"


def _environment(file: OpenRecipe) -> Iterator[str]:
    exported, table = exports_of(file.run), file.environment
    for name, value in table.items():
        if name in exported and exported[name] != value:
            yield (
                f"env.{name} is {value!r}, but run exports {exported[name]!r}: Ray's workers get"
                " the first and the driver the second"
            )
    for name in exported:
        if name not in table:
            yield (
                f"run exports {name}={exported[name]!r}, which env does not have: only the driver"
                " gets it"
            )


def _model(file: OpenRecipe, model: ModelFacts | None) -> Iterator[str]:
    printed = model_type_of(file.run)
    if model is None:
        yield (
            f"there are no facts of {file.model!r} in configs/models: its layout and memory are not"
            " checked"
        )
    elif printed and model.miles_type and printed != model.miles_type:
        yield f"model is {file.model}, but run has the model arguments of {printed}"


def _result(file: OpenRecipe, gpu: GpuFacts | None) -> Iterator[str]:
    """The result's own arithmetic."""
    result, work = file.result, file.workload
    if result.window and result.window_tokens and work.global_batch and work.row_tokens:
        tokens = window_tokens(*result.window, work.global_batch, work.row_tokens)
        if tokens != result.window_tokens:
            yield f"result.window_tokens is {result.window_tokens}, but its window has {tokens}"
    speed, active = result.tokens_per_s_per_gpu, result.active_params
    if gpu and result.mfu and speed and active:
        value = mfu(active.count, speed, gpu.bf16_tflops)
        if abs(value - result.mfu) > 0.02 * result.mfu:
            yield (
                f"result.mfu is {result.mfu}, but 6 x {active.count} x {speed} tokens/s are"
                f" {value:.4f} of {gpu.bf16_tflops:g} TFLOP/s"
            )
