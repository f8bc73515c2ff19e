"""The flags of miles' train.py that a recipe's sections decide, in the recipe's own groups; pure.

Names are those of miles, Megatron-LM and SGLang (miles puts `sglang-` before SGLang's own). Each
flag carries the setting that decides it, so that a contradiction can name both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from slurmmiles.layouts import Shape
from slurmmiles.models import ModelFacts
from slurmmiles.recipe import Recipe
from slurmmiles.topology import Rollout, Topology

Value = str | tuple[str, ...] | Literal[True] | None
MILES_GPUS_PER_NODE = 8
"""miles' default of --num-gpus-per-node (miles/utils/arguments.py)."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: True stands without a value; None is decided to be left out.

    `implied` is the value that leaving it out stands for, so that giving it is no contradiction.
    """

    name: str
    value: Value
    key: str
    implied: str | None = None


def number(value: int | float | str) -> str:
    """A number as people write it: 1e-6, not 1e-06."""
    if isinstance(value, float):
        return re.sub(r"e([+-])0*(\d)", r"e\1\2", repr(value)).replace("e+", "e")
    return str(value)


def coefficient(value: float) -> str:
    """With two decimals where they say it all, as miles' launchers write them: 0.00, 0.28."""
    short = f"{value:.2f}"
    return short if float(short) == value else number(value)


def plain(value: float) -> str:
    """Without a fraction where there is none: 1, 0.7."""
    return str(int(value)) if value == int(value) else number(value)


def model_flags(model: ModelFacts) -> list[Flag]:
    """What miles' model_args_utils.py prints for this model."""
    return [
        Flag(name, True if value is True else number(value), "model.facts")
        for name, value in model.miles_args.items()
    ]


def section_flags(recipe: Recipe, shape: Shape) -> list[Flag]:
    """Every flag that the sections decide, except those of the model and of checkpoints."""
    rollout = shape.rollout
    return [
        *_data(recipe),
        *_batches(recipe, rollout),
        *_parallel(recipe, shape.topology),
        *_recompute(recipe),
        *_algorithm(recipe),
        *_optimizer(recipe),
        *(_engines(recipe, rollout) if rollout else ()),
        *_job(rollout, shape.nodes, shape.gpus),
    ]


def _given(flags: Iterable[tuple[str, str | int | float | None, str]]) -> list[Flag]:
    """Flags whose value is their setting; a setting that is not given leaves the flag out."""
    return [Flag(name, None if value is None else number(value), key) for name, value, key in flags]


def _switch(name: str, on: bool, key: str) -> Flag:
    return Flag(name, True if on else None, key)


def _data(recipe: Recipe) -> list[Flag]:
    d = recipe.data
    found = _given((("--prompt-data", d.prompt_data, "data.prompt_data"),))
    if recipe.algorithm.kind == "sft":
        return found + _given((("--input-key", d.input_key, "data.input_key"),))
    return found + _given(
        (
            ("--input-key", d.input_key, "data.input_key"),
            ("--label-key", d.label_key, "data.label_key"),
            ("--rm-type", d.rm_type, "data.rm_type"),
        )
    )


def _batches(recipe: Recipe, rollout: Rollout | None) -> list[Flag]:
    r, a = recipe.rollout, recipe.algorithm
    found = _given(
        (
            ("--num-rollout", a.num_rollout, "algorithm.num_rollout"),
            ("--rollout-batch-size", r.rollout_batch_size, "rollout.rollout_batch_size"),
            ("--global-batch-size", a.global_batch_size, "algorithm.global_batch_size"),
        )
    )
    if rollout is None:
        return found
    return [
        *found,
        Flag("--n-samples-per-prompt", str(r.n_samples_per_prompt), "rollout.n_samples_per_prompt"),
        Flag("--rollout-max-response-len", str(r.max_response_len), "rollout.max_response_len"),
        Flag("--rollout-temperature", plain(r.temperature), "rollout.temperature"),
        Flag(
            "--rollout-health-check-first-wait",
            None if r.health_check_first_wait_s is None else str(r.health_check_first_wait_s),
            "rollout.health_check_first_wait_s",
        ),
    ]


def _parallel(recipe: Recipe, topology: Topology) -> list[Flag]:
    p = recipe.parallel
    return [
        *_given(
            (
                ("--tensor-model-parallel-size", topology.tp, "parallel.tp"),
                ("--pipeline-model-parallel-size", topology.pp, "parallel.pp"),
                ("--context-parallel-size", topology.cp, "parallel.cp"),
                ("--expert-model-parallel-size", topology.ep, "parallel.ep"),
                ("--expert-tensor-parallel-size", topology.etp, "parallel.etp"),
                ("--decoder-first-pipeline-num-layers", p.layers_first, "parallel.layers_first"),
                ("--decoder-last-pipeline-num-layers", p.layers_last, "parallel.layers_last"),
            )
        ),
        _switch("--sequence-parallel", topology.sequence_parallel, "parallel.sequence_parallel"),
    ]


def _recompute(recipe: Recipe) -> list[Flag]:
    a = recipe.algorithm
    full, key = a.recompute == "full", "algorithm.recompute"
    dynamic = a.max_tokens_per_gpu is not None
    return [
        Flag("--recompute-granularity", None if a.recompute == "none" else a.recompute, key),
        Flag("--recompute-method", "uniform" if full else None, key),
        Flag("--recompute-num-layers", "1" if full else None, key),
        _switch("--use-dynamic-batch-size", dynamic, "algorithm.max_tokens_per_gpu"),
        *_given((("--max-tokens-per-gpu", a.max_tokens_per_gpu, "algorithm.max_tokens_per_gpu"),)),
        Flag(
            "--micro-batch-size",
            None if dynamic else str(a.micro_batch_size),
            "algorithm.micro_batch_size",
        ),
        *_given(
            (("--log-probs-chunk-size", a.log_probs_chunk_size, "algorithm.log_probs_chunk_size"),)
        ),
    ]


def _algorithm(recipe: Recipe) -> list[Flag]:
    a, key = recipe.algorithm, "algorithm.kind"
    if a.kind == "sft":
        switches = (
            "--calculate-per-token-loss",
            "--disable-compute-advantages-and-returns",
            "--debug-train-only",
        )
        return [Flag("--loss-type", "sft_loss", key), *(Flag(name, True, key) for name in switches)]
    optional = (
        ("--kl-loss-coef", a.kl_loss_coef, "algorithm.kl_loss_coef"),
        ("--entropy-coef", a.entropy_coef, "algorithm.entropy_coef"),
    )
    return [
        Flag("--advantage-estimator", a.kind, key),
        *(Flag(n, coefficient(v), k) for n, v, k in optional if v is not None),
        Flag("--eps-clip", number(a.eps_clip), "algorithm.eps_clip"),
        Flag("--eps-clip-high", number(a.eps_clip_high), "algorithm.eps_clip_high"),
    ]


def _optimizer(recipe: Recipe) -> list[Flag]:
    o = recipe.optimizer
    offload, key = o.cpu_offload, "optimizer.cpu_offload"
    found = [
        Flag("--optimizer", "adam", "optimizer"),
        Flag("--lr", number(o.lr), "optimizer.lr"),
        Flag("--weight-decay", number(o.weight_decay), "optimizer.weight_decay"),
        Flag("--adam-beta1", number(o.adam_beta1), "optimizer.adam_beta1"),
        Flag("--adam-beta2", number(o.adam_beta2), "optimizer.adam_beta2"),
        _switch("--optimizer-cpu-offload", offload > 0, key),
        Flag(
            "--optimizer-offload-fraction",
            number(offload) if 0 < offload < 1 else None,
            key,
            implied="1.0" if offload == 1 else None,
        ),
        _switch("--use-precision-aware-optimizer", o.precision_aware, "optimizer.precision_aware"),
    ]
    if "clip_grad" in o.model_fields_set:  # else Megatron's own default, which is ours too
        found.append(Flag("--clip-grad", number(o.clip_grad), "optimizer.clip_grad"))
    return found


def _engines(recipe: Recipe, rollout: Rollout) -> list[Flag]:
    r = recipe.rollout
    parallel_attention = rollout.dp > 1
    return [
        Flag(
            "--rollout-num-gpus-per-engine",
            str(rollout.gpus_per_engine),
            "rollout.gpus_per_engine",
        ),
        Flag("--sglang-ep-size", str(rollout.ep) if rollout.ep > 1 else None, "rollout.ep", "1"),
        Flag(
            "--sglang-dp-size", str(rollout.dp) if parallel_attention else None, "rollout.dp", "1"
        ),
        _switch("--sglang-enable-dp-attention", parallel_attention, "rollout.dp"),
        Flag("--sglang-mem-fraction-static", number(r.mem_fraction), "rollout.mem_fraction"),
        *_given((("--sglang-context-length", r.context_length, "rollout.context_length"),)),
    ]


def _job(rollout: Rollout | None, nodes: int, gpus_per_node: int) -> list[Flag]:
    unusual = gpus_per_node != MILES_GPUS_PER_NODE
    world = str(nodes * gpus_per_node)
    return [
        _switch("--colocate", rollout is not None, "algorithm.kind"),
        Flag("--actor-num-nodes", str(nodes), "--nodes"),
        Flag("--actor-num-gpus-per-node", str(gpus_per_node), "--gpus-per-node"),
        Flag("--rollout-num-gpus", world if rollout else None, "--nodes x --gpus-per-node"),
        Flag(
            "--num-gpus-per-node",
            str(gpus_per_node) if unusual else None,
            "--gpus-per-node",
            implied=str(gpus_per_node),
        ),
    ]
