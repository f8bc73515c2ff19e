"""One owner for each flag of miles: what `flags:` may repeat, reach, replace and leave out."""

from __future__ import annotations

from collections import Counter

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput
from slurmmiles.layouts import shape_of
from slurmmiles.miles import Ask, Command, train_command

CATALOG = Catalog((shipped("configs"),))


def pairs(words: tuple[str, ...]) -> Counter[tuple[str, tuple[str, ...]]]:
    """The command as a multiset of flag and values."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--"):
            found.append((word, []))
        elif found:
            found[-1][1].append(word)
    return Counter((flag, tuple(values)) for flag, values in found)


def ask(name: str, *settings: str) -> Ask:
    recipe = CATALOG.recipe(name, settings)
    model = CATALOG.model(recipe.model.facts or "")
    shape = shape_of(recipe, model, CATALOG.gpu("h200"), nodes=recipe.slurm.nodes, gpus=8, ranks=8)
    return Ask(recipe, model, shape, "{run_dir}/checkpoints")


def train(name: str, *settings: str) -> Command:
    return train_command(ask(name, *settings))


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("--tensor-model-parallel-size=4", "parallel.tp"),
        ("--sequence-parallel=false", "parallel.sequence_parallel"),
        ("--decoder-first-pipeline-num-layers=12", "parallel.layers_first"),
        ("--actor-num-nodes=2", "--nodes"),
        ("--rollout-num-gpus-per-engine=8", "rollout.gpus_per_engine"),
        ("--sglang-dp-size=1", "rollout.dp"),
        ("--sglang-data-parallel-size=2", "rollout.dp"),
        ("--sglang-ep=8", "rollout.ep"),
        ("--sglang-mem-fraction-static=0.9", "rollout.mem_fraction"),
        ("--global-batch-size=64", "algorithm.global_batch_size"),
        ("--max-tokens-per-gpu=2048", "algorithm.max_tokens_per_gpu"),
        ("--micro-batch-size=2", "algorithm.micro_batch_size"),
        ("--recompute-granularity=selective", "algorithm.recompute"),
        ("--optimizer-cpu-offload=null", "optimizer.cpu_offload"),
        ("--optimizer-offload-fraction=0.5", "optimizer.cpu_offload"),
        ("--lr=2e-6", "optimizer.lr"),
        ("--colocate=", "algorithm.kind"),
        ("--save=/elsewhere", "checkpoint.dir"),
        ("--num-gpus-per-node=4", "--gpus-per-node"),
    ],
)
def test_a_flag_that_contradicts_a_section_names_both(flag: str, key: str) -> None:
    name = flag.partition("=")[0]
    with pytest.raises(BadInput) as caught:
        train("nemotron-ultra", f"flags.{flag}")
    assert caught.value.where == f"flags.{name}"
    assert key in caught.value.what and name in caught.value.what


@pytest.mark.parametrize(
    "setting",
    [
        "flags.--tensor-model-parallel-size=8",
        "flags.--lr=0.000001",
        "flags.--sglang-expert-parallel-size=32",
        "flags.--kl-loss-coef=0",
        "flags.--num-layers=108",
    ],
)
def test_the_same_value_twice_is_no_contradiction_and_is_passed_once(setting: str) -> None:
    assert pairs(train("nemotron-ultra", setting).argv) == pairs(train("nemotron-ultra").argv)


@pytest.mark.parametrize(
    "setting", ["flags.--optimizer-offload-fraction=1.0", "flags.--num-gpus-per-node=8"]
)
def test_a_default_that_the_plan_implies_may_be_written_out(setting: str) -> None:
    name, _, value = setting.removeprefix("flags.").partition("=")
    assert pairs(train("nemotron-ultra", setting).argv)[(name, (value,))] == 1


def test_flags_reach_what_no_section_decides() -> None:
    found = pairs(
        train(
            "nemotron-ultra",
            "flags.--eval-interval=20",
            "flags.--eval-prompt-data=[aime, '{data}/aime-2024.jsonl']",
            "flags.--check-weight-update-equal=true",
        ).argv
    )
    assert found[("--eval-interval", ("20",))] == 1
    assert found[("--eval-prompt-data", ("aime", "{data}/aime-2024.jsonl"))] == 1
    assert found[("--check-weight-update-equal", ())] == 1


@pytest.mark.parametrize("nothing", ["null", "false", ""])
def test_null_false_and_empty_leave_a_flag_of_the_recipe_out(nothing: str) -> None:
    assert "--balance-data" not in train("nemotron-ultra", f"flags.--balance-data={nothing}").argv


def test_a_model_fact_that_no_arithmetic_rests_on_can_be_replaced_and_is_listed() -> None:
    found = train("nemotron-ultra", "resume=off", "flags.--moe-aux-loss-coeff=0.001")
    assert pairs(found.argv)[("--moe-aux-loss-coeff", ("0.001",))] == 1
    assert [(d.flag, d.miles, d.ours) for d in found.differs] == [
        ("--moe-aux-loss-coeff", "0", "0.001")
    ]


def test_a_model_fact_that_the_plan_counts_with_cannot_be_replaced() -> None:
    with pytest.raises(BadInput, match="--num-layers is 50 and the model's facts say 108"):
        train("nemotron-ultra", "flags.--num-layers=50")


def test_a_flag_cut_short_is_not_a_second_spelling() -> None:
    with pytest.raises(BadInput, match="short for --tensor-model-parallel-size"):
        train("nemotron-ultra", "flags.--tensor-model-parallel=4")


@pytest.mark.parametrize("flag", ["lr", "-x", "--a b", "--"])
def test_what_is_not_a_flag_is_refused(flag: str) -> None:
    recipe = CATALOG.recipe("nemotron-ultra").model_copy(update={"flags": {flag: "1"}})
    asked = ask("nemotron-ultra")
    with pytest.raises(BadInput, match="is not a flag"):
        train_command(Ask(recipe, asked.model, asked.shape, "x"))


@pytest.mark.parametrize("flag", ["--wandb-key", "--judge-api-key", "--hf-token"])
def test_a_secret_cannot_be_a_flag(flag: str) -> None:
    with pytest.raises(BadInput, match="a secret in a flag"):
        train("nemotron-ultra", f"flags.{flag}=abc")
