"""The driver command of a plan: what is started on the Ray cluster, and the native trainer's
configuration; pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurmmiles.errors import BadInput
from slurmmiles.layouts import Shape
from slurmmiles.miles import Ask, miles_env, script_command, train_command
from slurmmiles.models import ModelFacts
from slurmmiles.paths import expanded
from slurmmiles.planfile import Difference, DriverPlan, EnvValue
from slurmmiles.recipe import Recipe

MILES = ("train", "script")  # the entries that run miles from its own directory

NATIVE_ALGORITHM = {
    "num_rollout",
    "eps_clip",
    "eps_clip_high",
    "sft_steps",
    "max_logprob_diff",
    "target_reward",
}


def driver_plan(recipe: Recipe, *, nodes: int, gpus_per_node: int) -> DriverPlan:
    """The argv of an entry that is not miles', with placeholders; BadInput when it cannot be
    built.
    """
    entry = recipe.driver.entry
    _refuse_argv(recipe)
    if entry == "native":
        argv = ("{python}", "-m", "trainer", "--config", "{attempt_dir}/trainer.json")
        return DriverPlan(entry=entry, argv=argv)
    if entry == "gate-check":
        gpus = str(nodes * gpus_per_node)
        words = ("-m", "slurmmiles.gate_check", "--nodes", str(nodes), "--gpus", gpus)
        return DriverPlan(entry=entry, argv=("{python}", *words))
    if entry == "command":
        return DriverPlan(entry=entry, argv=tuple(recipe.driver.argv))
    raise BadInput(
        f"the entry {entry!r} has no run block here",
        where="driver.entry",
        fix="give the OpenRecipes file itself as RECIPE",
    )


def _refuse_argv(recipe: Recipe) -> None:
    """`driver.argv` is the command of entry command, and of no other."""
    entry, argv = recipe.driver.entry, recipe.driver.argv
    if argv and entry != "command":
        raise BadInput(
            f"driver.argv is given, but the entry is {entry!r}",
            where="driver.argv",
            fix="set driver.entry to command",
        )
    if not argv and entry == "command":
        raise BadInput(
            "the entry is 'command' and no argv is given",
            where="driver.argv",
            fix="give the command",
        )


def miles_driver(
    ask: Ask, known: Mapping[str, str], env: Mapping[str, EnvValue]
) -> tuple[DriverPlan, tuple[Difference, ...]]:
    """miles' train.py or its launcher, and where the command is not miles' own.

    `known` has the directories that are known; `env` is the table around `ray start`.
    """
    _refuse_argv(ask.recipe)
    script = ask.recipe.driver.entry == "script"
    megatron = "megatron" in known
    command = script_command(ask, megatron=megatron) if script else train_command(ask)
    job = miles_env(megatron=megatron)
    if script:
        job |= _launcher_env()
    elif ask.shape.gpu and "NCCL_NVLS_ENABLE" not in env:
        job["NCCL_NVLS_ENABLE"] = EnvValue(
            value=str(int(ask.shape.gpu.nvlink_gb_s > 0)),
            origin="default",
            why="as miles' launcher sets it: 1 where the GPUs have NVLink",
        )
    plan = DriverPlan(
        entry=ask.recipe.driver.entry,
        argv=expanded(command.argv, known),
        env={
            name: entry.model_copy(update={"value": expanded(entry.value, known)})
            for name, entry in job.items()
        },
    )
    return plan, tuple(d.model_copy(update=expanded(dict(d), known)) for d in command.differs)


def _launcher_env() -> dict[str, EnvValue]:
    def default(value: str, why: str) -> EnvValue:
        return EnvValue(value=value, origin="default", why=why)

    return {
        "MILES_SCRIPT_EXTERNAL_RAY": default("1", "else it stops Ray and starts its own head"),
        "WANDB_API_KEY": default("", "the launcher would write the key into its command line"),
    }


def trainer_config(recipe: Recipe, shape: Shape) -> dict[str, Any] | None:
    """The native trainer's trainer.json, with placeholders; None for any other driver."""
    model, rollout = shape.model, shape.rollout
    if recipe.driver.entry != "native" or model is None:
        return None
    r, a = recipe.rollout, recipe.algorithm
    return {
        "run_id": recipe.name,
        "metrics": "{attempt_dir}/metrics.jsonl",
        "seed": a.seed,
        "device": "cuda" if shape.gpus else "cpu",
        "nodes": shape.nodes,
        "ranks_per_node": shape.ranks,
        "model": {
            **_native_model(model),
            **_given("init_method_std", recipe.model.init_method_std),
        },
        "parallel": (
            recipe.parallel.model_dump(include={"tp", "pp", "cp", "ep", "etp"})
            | {"sequence_parallel": shape.topology.sequence_parallel}
        ),
        "rollout": {
            "engines": rollout.engines if rollout else 0,
            "gpus_per_engine": rollout.gpus_per_engine if rollout else 0,
            "mem_fraction": r.mem_fraction,
            **_given("context_length", r.context_length),
            "max_response_len": r.max_response_len,
            "temperature": r.temperature,
            "rollout_batch_size": r.rollout_batch_size,
            "n_samples_per_prompt": r.n_samples_per_prompt,
        },
        "optimizer": recipe.optimizer.model_dump(
            include={"lr", "weight_decay", "adam_beta1", "adam_beta2", "clip_grad"}
        ),
        "algorithm": {
            **a.model_dump(include=NATIVE_ALGORITHM),
            "num_steps_per_rollout": _steps_per_rollout(recipe),
            "kl_loss_coef": a.kl_loss_coef or 0.0,
        },
        "data": {"task": recipe.data.task, **recipe.data.options},
        "checkpoint": {
            "dir": "{checkpoints}",
            "interval": recipe.checkpoint.interval or 0,
            "resume": recipe.resume,
        },
        "work_dir": "{scratch}",
    }


def _given(key: str, value: Any) -> dict[str, Any]:
    """The key only when the recipe gives it: the trainer has defaults of its own."""
    return {} if value is None else {key: value}


def _steps_per_rollout(recipe: Recipe) -> int:
    """Optimizer steps on a rollout's samples; the division was checked with the layout."""
    batch = recipe.algorithm.global_batch_size
    samples = recipe.rollout.rollout_batch_size * recipe.rollout.n_samples_per_prompt
    return samples // batch if batch else 1


def _native_model(model: ModelFacts) -> dict[str, Any]:
    """The shape of a dense transformer; BadInput for what the native trainer cannot build."""
    attention = model.attention
    if (
        attention is None
        or model.ffn_hidden_size is None
        or {"M", "E"} & set("".join(model.layers))
    ):
        raise BadInput(
            f"the native trainer builds dense transformers, and {model.name} is none",
            where="driver.entry",
            fix="use entry: train (miles) for it",
        )
    return {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.ffn_hidden_size,
        "num_attention_heads": attention.num_attention_heads,
        "num_query_groups": attention.num_query_groups,
        "kv_channels": attention.kv_channels,
        "tie_word_embeddings": model.tied_embeddings,
    }
