"""OpenRecipes files (schema_version 1): what a plan reads of one, and the recipe it stands for.

The run block decides: the recipe describes what its flags will do, with `layout` where a flag is
not given, so that layout, memory and cost are planned for what runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from slurmmiles.economics import usd_per_gpu_hour
from slurmmiles.errors import BadInput
from slurmmiles.recipe import MAX_GPUS_PER_NODE, MAX_RANKS
from slurmmiles.runblock import FlagText, flags_of

VERSION_KEY = "schema_version"  # tells such a file from a recipe of our own
# The sections that a person may change: all else is the run block's own.
CHANGEABLE = frozenset(
    {"name", "description", "env", "slurm", "preflight", "driver", "usd_per_gpu_hour"}
)
Positive = Annotated[int, Field(ge=1, le=1_000_000_000)]


class Part(BaseModel):
    """A part of the file: frozen; keys that a plan does not need are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class Gpu(Part):
    """Which GPUs, how many, and how many a node."""

    type: str
    memory_gb: float | None = None
    count: Annotated[int, Field(ge=1, le=MAX_RANKS)]
    per_node: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)]
    instance: str | None = None


class LayerSplit(Part):
    """Layers of the first and the last pipeline stage."""

    first: Positive | None = None
    last: Positive | None = None


class Offload(Part):
    """The optimizer's states on the host."""

    optimizer_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    overlap_d2h_h2d: bool | None = None


class Layout(Part):
    """The layout as the file states it; None is not stated."""

    summary: str = ""
    tp: Positive | None = None
    pp: Positive | None = None
    vpp: Positive | None = None
    cp: Positive | None = None
    ep: Positive | None = None
    etp: Positive | None = None
    dp: Positive | None = None
    sequence_parallel: bool | None = None
    layer_split: LayerSplit | None = None
    max_tokens_per_gpu: Positive | None = None
    rows_per_microbatch: Positive | None = None
    recompute: Any = None
    offload: Offload | None = None
    dispatcher: str | None = None


class Workload(Part):
    """Rows, batch and precision."""

    row_tokens: Positive | None = None
    global_batch: Positive | None = None
    precision: str | None = None


class Stack(Part):
    """Versions of the measured run, in words."""

    framework: str = ""
    network: str = ""


class ActiveParams(Part):
    """How many parameters work on a token: the N of the result's MFU."""

    count: Positive | Annotated[int, Field(ge=1)]


class Result(Part):
    """What was measured."""

    tokens_per_s_per_gpu: float | None = None
    usd_per_million_tokens: float | None = None
    mfu: float | None = None
    active_params: ActiveParams | None = None
    steps_per_run: Positive | None = None
    window: tuple[int, int] | None = Field(default=None, strict=False)
    window_tokens: int | None = None


class OpenRecipe(Part):
    """One file, as far as a plan needs it."""

    schema_version: Literal[1]
    model: str
    gpu: Gpu
    layout: Layout = Layout()
    workload: Workload = Workload()
    stack: Stack = Stack()
    result: Result = Result()
    env: dict[str, str | int | float | bool] = Field(default_factory=dict)
    run: Annotated[str, Field(min_length=1)]
    notes: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The env table as text: what its exports would set."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.env.items()
        }


def recipe_of(file: OpenRecipe, stem: str, facts: str | None) -> dict[str, Any]:
    """The keys of the recipe that the file stands for; `facts` names its model's file."""
    flags = flags_of(file.run)
    layout, gpu = file.layout, file.gpu
    if gpu.count % gpu.per_node:
        raise BadInput(
            f"{gpu.count} GPUs do not divide into nodes of {gpu.per_node}",
            where="gpu.count, gpu.per_node",
            fix="give whole nodes",
        )
    is_sft = flags.get("--loss-type") == "sft_loss" or "--debug-train-only" in flags
    price = usd_per_gpu_hour(file.result.usd_per_million_tokens, file.result.tokens_per_s_per_gpu)
    return {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:64] or "openrecipe",
        "description": f"{file.model} on {gpu.count} x {gpu.type}, an OpenRecipes file",
        "model": {"facts": facts} if facts else {},
        "parallel": _parallel(layout, flags),
        "rollout": _rollout(flags),
        "optimizer": {
            "cpu_offload": offload_fraction(flags),
            "precision_aware": "--use-precision-aware-optimizer" in flags,
        },
        "algorithm": {"kind": "sft" if is_sft else "grpo", **_algorithm(file, flags)},
        "resume": "off",
        "env": file.environment,
        "driver": {"entry": "openrecipes"},
        "slurm": {"nodes": gpu.count // gpu.per_node, "gpus_per_node": gpu.per_node},
        **({} if price is None else {"usd_per_gpu_hour": round(price, 2)}),
    }


def refuse_changes(settings: Mapping[tuple[str, ...], Any]) -> None:
    """BadInput for a `--set` of what the run block decides."""
    for key in settings:
        if key[0] not in CHANGEABLE:
            raise BadInput(
                f"an OpenRecipes file runs as it is, and its run block decides {'.'.join(key)}",
                where=f"--set {'.'.join(key)}",
                fix="change the run block in a copy of the file",
            )


def integer(flags: Mapping[str, FlagText], name: str, default: int | None) -> int | None:
    """A flag's whole number, or `default` when it is not given as one."""
    value = flags.get(name)
    return int(value) if isinstance(value, str) and value.isdecimal() else default


def offload_fraction(flags: Mapping[str, FlagText]) -> float:
    """Megatron's default fraction is 1; without --optimizer-cpu-offload nothing is offloaded."""
    if "--optimizer-cpu-offload" not in flags:
        return 0.0
    try:
        fraction = float(str(flags.get("--optimizer-offload-fraction", "1.0")))
    except ValueError:
        return 1.0
    return min(max(fraction, 0.0), 1.0)


def _parallel(layout: Layout, flags: Mapping[str, FlagText]) -> dict[str, Any]:
    sizes = {
        "tp": ("--tensor-model-parallel-size", layout.tp),
        "pp": ("--pipeline-model-parallel-size", layout.pp),
        "cp": ("--context-parallel-size", layout.cp),
        "ep": ("--expert-model-parallel-size", layout.ep),
        "etp": ("--expert-tensor-parallel-size", layout.etp),
    }
    found: dict[str, Any] = {
        key: integer(flags, flag, stated or 1) for key, (flag, stated) in sizes.items()
    }
    found["layers_first"] = integer(flags, "--decoder-first-pipeline-num-layers", None)
    found["layers_last"] = integer(flags, "--decoder-last-pipeline-num-layers", None)
    found["sequence_parallel"] = "--sequence-parallel" in flags
    return found


def _rollout(flags: Mapping[str, FlagText]) -> dict[str, Any]:
    sizes = {
        "gpus_per_engine": "--rollout-num-gpus-per-engine",
        "ep": "--sglang-ep-size",
        "dp": "--sglang-dp-size",
        "rollout_batch_size": "--rollout-batch-size",
        "n_samples_per_prompt": "--n-samples-per-prompt",
        "max_response_len": "--rollout-max-response-len",
        "context_length": "--sglang-context-length",
    }
    found: dict[str, Any] = {key: integer(flags, flag, None) for key, flag in sizes.items()}
    fraction = flags.get("--sglang-mem-fraction-static")
    if isinstance(fraction, str) and re.fullmatch(r"0?\.\d+", fraction):
        found["mem_fraction"] = float(fraction)
    return {key: value for key, value in found.items() if value is not None}


def _algorithm(file: OpenRecipe, flags: Mapping[str, FlagText]) -> dict[str, Any]:
    micro = integer(flags, "--micro-batch-size", file.layout.rows_per_microbatch or 1) or 1
    tokens = integer(flags, "--max-tokens-per-gpu", file.layout.max_tokens_per_gpu)
    rows = file.workload.row_tokens
    granularity = flags.get("--recompute-granularity")
    found = {
        "num_rollout": integer(flags, "--num-rollout", None),
        "global_batch_size": integer(flags, "--global-batch-size", file.workload.global_batch),
        "micro_batch_size": micro,
        "max_tokens_per_gpu": tokens or (micro * rows if rows else None),
        "log_probs_chunk_size": integer(flags, "--log-probs-chunk-size", None),
        "recompute": granularity if granularity in ("full", "selective") else None,
    }
    return {key: value for key, value in found.items() if value is not None}
