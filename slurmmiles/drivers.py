"""The driver command of a plan: what is started on the Ray cluster, and the native trainer's
configuration; pure.
"""

from __future__ import annotations

from typing import Any

from slurmmiles.errors import BadInput
from slurmmiles.models import ModelFacts
from slurmmiles.planfile import DriverPlan
from slurmmiles.recipe import Recipe
from slurmmiles.topology import Rollout, Topology

TRAINED = ("native", "train", "script")  # the entries that train a model, and so need its facts


def driver_plan(recipe: Recipe, *, nodes: int, gpus_per_node: int) -> DriverPlan:
    """The argv of the recipe's entry, with placeholders; BadInput when it cannot be built."""
    entry = recipe.driver.entry
    if recipe.driver.argv and entry != "command":
        raise BadInput(
            f"driver.argv is given, but the entry is {entry!r}",
            where="driver.argv",
            fix="set driver.entry to command",
        )
    if entry == "native":
        return DriverPlan(
            entry=entry,
            argv=("{python}", "-m", "trainer", "--config", "{attempt_dir}/trainer.json"),
        )
    if entry == "gate-check":
        gpus = nodes * gpus_per_node
        argv = (
            "{python}",
            "-m",
            "slurmmiles.gate_check",
            "--nodes",
            str(nodes),
            "--gpus",
            str(gpus),
        )
        return DriverPlan(entry=entry, argv=argv)
    if entry == "command":
        if not recipe.driver.argv:
            raise BadInput(
                "the entry is 'command' and no argv is given",
                where="driver.argv",
                fix="give the command",
            )
        return DriverPlan(entry=entry, argv=tuple(recipe.driver.argv))
    raise BadInput(
        f"the entry {entry!r} cannot be built yet",
        where="driver.entry",
        fix="use native or command",
    )


def trainer_config(
    recipe: Recipe,
    model: ModelFacts | None,
    topology: Topology,
    rollout: Rollout | None,
    *,
    nodes: int,
    ranks: int,
    device: str,
) -> dict[str, Any] | None:
    """The native trainer's trainer.json, with placeholders; None for any other driver."""
    if recipe.driver.entry != "native" or model is None:
        return None
    r, a = recipe.rollout, recipe.algorithm
    return {
        "run_id": recipe.name,
        "metrics": "{attempt_dir}/metrics.jsonl",
        "seed": a.seed,
        "device": "cuda" if device == "gpu" else "cpu",
        "nodes": nodes,
        "ranks_per_node": ranks,
        "model": _native_model(model),
        "parallel": (
            recipe.parallel.model_dump(include={"tp", "pp", "cp", "ep", "etp"})
            | {"sequence_parallel": topology.sequence_parallel}
        ),
        "rollout": {
            "engines": rollout.engines if rollout else 0,
            "gpus_per_engine": rollout.gpus_per_engine if rollout else 0,
            "mem_fraction": r.mem_fraction,
            **({} if r.context_length is None else {"context_length": r.context_length}),
            "max_response_len": r.max_response_len,
            "temperature": r.temperature,
            "rollout_batch_size": r.rollout_batch_size,
            "n_samples_per_prompt": r.n_samples_per_prompt,
        },
        "optimizer": recipe.optimizer.model_dump(
            include={"lr", "weight_decay", "adam_beta1", "adam_beta2", "clip_grad"}
        ),
        "algorithm": a.model_dump(
            include={
                "num_rollout",
                "eps_clip",
                "eps_clip_high",
                "sft_steps",
                "max_logprob_diff",
                "target_reward",
            }
        ),
        "data": {"task": recipe.data.task, **recipe.data.options},
        "checkpoint": {
            "dir": "{checkpoints}",
            "interval": recipe.checkpoint.interval or 0,
            "resume": recipe.resume,
        },
        "work_dir": "{scratch}",
    }


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
