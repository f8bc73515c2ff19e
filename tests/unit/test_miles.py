"""miles' command: the table of its launchers flag by flag, one owner a flag, and resuming."""

from __future__ import annotations

import json
import shlex
from collections import Counter

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.drivers import miles_driver
from slurmmiles.errors import BadInput
from slurmmiles.layouts import shape_of
from slurmmiles.miles import Ask, Command, script_command, train_command
from slurmmiles.recipe import Recipe

CATALOG = Catalog((shipped("configs"),))

# What miles' launcher of Nemotron-3-Ultra passes to train.py; DIR, DATA and OUT are directories.
ULTRA = """
--disable-bias-linear --group-query-attention --num-attention-heads 64 --num-query-groups 2
--kv-channels 128 --num-layers 108 --hidden-size 8192 --ffn-hidden-size 5120
--normalization RMSNorm --position-embedding-type none --vocab-size 131072
--make-vocab-size-divisible-by 128 --untie-embeddings-and-output-weights --num-experts 512
--moe-router-topk 22 --moe-ffn-hidden-size 5120 --moe-shared-expert-intermediate-size 10240
--moe-latent-size 2048 --moe-router-score-function sigmoid --moe-router-enable-expert-bias
--moe-grouped-gemm --moe-router-dtype fp32 --moe-router-num-groups 1 --moe-router-group-topk 1
--moe-router-topk-scaling-factor 5.0 --moe-router-pre-softmax
--moe-router-load-balancing-type seq_aux_loss --moe-router-bias-update-rate 0
--moe-aux-loss-coeff 0
--hf-checkpoint DIR --ref-load DIR --megatron-to-hf-mode bridge --save OUT/checkpoints
--save-interval 50 --no-save-optim
--prompt-data DATA/dapo-math-17k/dapo-math-17k.jsonl --input-key prompt --label-key label
--apply-chat-template --rollout-shuffle --rm-type deepscaler --num-rollout 30
--rollout-batch-size 32 --n-samples-per-prompt 8 --rollout-max-response-len 8192
--rollout-temperature 1 --global-batch-size 128 --balance-data
--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --context-parallel-size 1
--expert-model-parallel-size 32 --expert-tensor-parallel-size 1 --sequence-parallel
--recompute-granularity full --recompute-method uniform --recompute-num-layers 1
--use-dynamic-batch-size --max-tokens-per-gpu 1024 --log-probs-chunk-size 128
--advantage-estimator grpo --kl-loss-coef 0.00 --kl-loss-type low_var_kl --entropy-coef 0.00
--eps-clip 0.2 --eps-clip-high 0.28
--optimizer adam --lr 1e-6 --lr-decay-style constant --weight-decay 0.1 --adam-beta1 0.9
--adam-beta2 0.98 --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d
--use-precision-aware-optimizer
--rollout-num-gpus-per-engine 32 --sglang-ep-size 32 --sglang-dp-size 4
--sglang-enable-dp-attention --sglang-mem-fraction-static 0.7
--attention-dropout 0.0 --hidden-dropout 0.0 --accumulate-allreduce-grads-in-fp32
--attention-softmax-in-fp32 --attention-backend auto --colocate --actor-num-nodes 16
--actor-num-gpus-per-node 8 --rollout-num-gpus 128 --dump-details OUT/dump_details
"""
# What the 4-layer slice has instead.
SLICE = {
    "--num-layers": "4",
    "--tensor-model-parallel-size": "1",
    "--pipeline-model-parallel-size": "1",
    "--expert-model-parallel-size": "8",
    "--rollout-num-gpus-per-engine": "8",
    "--sglang-ep-size": "8",
    "--sglang-dp-size": "2",
    "--sglang-mem-fraction-static": "0.6",
    "--actor-num-nodes": "1",
    "--rollout-num-gpus": "8",
}


def pairs(words: list[str] | tuple[str, ...]) -> Counter[tuple[str, tuple[str, ...]]]:
    """The command as a multiset of flag and values."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--"):
            found.append((word, []))
        elif found:
            found[-1][1].append(word)
    return Counter((flag, tuple(values)) for flag, values in found)


def ask(name: str, *settings: str, gpu: str = "h200", wandb: bool = False) -> Ask:
    recipe: Recipe = CATALOG.recipe(name, settings)
    model = CATALOG.model(recipe.model.facts or "")
    s = recipe.slurm
    shape = shape_of(
        recipe, model, CATALOG.gpu(gpu), nodes=s.nodes, gpus=s.gpus_per_node, ranks=s.gpus_per_node
    )
    return Ask(recipe, model, shape, "{run_dir}/checkpoints", wandb)


def train(name: str, *settings: str, gpu: str = "h200", wandb: bool = False) -> Command:
    return train_command(ask(name, *settings, gpu=gpu, wandb=wandb))


def table(text: str, model: str) -> list[str]:
    named = text.replace("DIR", f"{{models}}/{model}").replace("OUT", "{run_dir}")
    return named.replace("DATA", "{data}").split()


def test_without_resuming_the_full_models_command_is_miles_own_to_the_letter() -> None:
    found = train("nemotron-ultra", "resume=off")
    assert found.argv[:2] == ("{python}", "{miles}/train.py")
    assert pairs(found.argv[2:]) == pairs(table(ULTRA, "NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"))
    assert found.differs == ()


def test_without_resuming_the_slices_command_is_miles_own_to_the_letter() -> None:
    wanted = pairs(table(ULTRA, "NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16-4layer"))
    wanted = Counter({(f, (SLICE[f],) if f in SLICE else v): n for (f, v), n in wanted.items()})
    del wanted[("--sequence-parallel", ())]
    found = train("nemotron-ultra-4layer", "resume=off")
    assert pairs(found.argv[2:]) == wanted
    assert found.differs == ()


@pytest.mark.parametrize("name", ["nemotron-ultra", "inkling-small", "nemotron-super"])
def test_no_flag_is_given_twice(name: str) -> None:
    flags = [word for word in train(name).argv if word.startswith("--")]
    assert sorted(flags) == sorted(set(flags))


def test_a_resumable_run_saves_loads_and_keeps_adams_states_and_says_so() -> None:
    found = train("nemotron-ultra")
    flags = dict(pairs(found.argv[2:]))
    assert ("--save", ("{run_dir}/checkpoints",)) in flags
    assert ("--load", ("{run_dir}/checkpoints",)) in flags
    assert "--no-save-optim" not in found.argv
    assert [d.flag for d in found.differs] == ["--save", "--load", "--no-save-optim"]
    assert all(d.why for d in found.differs)
    assert found.differs[2].ours is None and "7.69 TB" in found.differs[2].why


def test_only_what_is_listed_differs_from_miles_in_a_resumable_run() -> None:
    ours, theirs = train("nemotron-ultra"), train("nemotron-ultra", "resume=off")
    changed = (pairs(ours.argv[2:]) - pairs(theirs.argv[2:])) + (
        pairs(theirs.argv[2:]) - pairs(ours.argv[2:])
    )
    assert {flag for flag, _ in changed} <= {d.flag for d in ours.differs}


def test_a_checkpoint_that_was_loaded_becomes_the_first_start_of_a_resumable_run() -> None:
    found = train("inkling-small")
    flags = {flag: values for flag, values in pairs(found.argv[2:])}
    assert flags["--ref-load"] == ("{models}/Inkling-Small_torch_dist",)
    assert flags["--load"] == ("{run_dir}/checkpoints",)
    assert not {"--finetune", "--no-load-optim", "--no-load-rng"} & set(flags)
    off = {flag: values for flag, values in pairs(train("inkling-small", "resume=off").argv[2:])}
    assert off["--load"] == ("{models}/Inkling-Small_torch_dist",)
    assert "--ref-load" not in off
    assert {"--finetune", "--no-load-optim", "--no-load-rng"} <= set(off)


def test_without_a_save_interval_nothing_is_saved_and_nothing_is_loaded() -> None:
    found = train("nemotron-ultra", "checkpoint.interval=null")
    assert not {"--save", "--save-interval", "--load"} & set(found.argv)


def test_weights_and_biases_is_on_with_a_key_and_the_key_stays_out_of_the_command() -> None:
    found = train("nemotron-ultra", wandb=True)
    assert "--use-wandb" in found.argv and "--wandb-key" not in found.argv
    assert found.differs[-1].flag == "--wandb-key"
    assert "--use-wandb" not in train("nemotron-ultra").argv


@pytest.mark.parametrize("gpu", ["b100", "b200", "gb200", "gb300"])
def test_blackwell_waits_600_s_before_the_first_health_check_and_says_so(gpu: str) -> None:
    found = train("nemotron-ultra", gpu=gpu)
    assert pairs(found.argv)[("--rollout-health-check-first-wait", ("600",))] == 1
    assert found.differs[-1].flag == "--rollout-health-check-first-wait"


@pytest.mark.parametrize("gpu", ["a100-80", "h100", "h200"])
def test_older_gpus_keep_miles_default_of_the_first_health_check(gpu: str) -> None:
    assert "--rollout-health-check-first-wait" not in train("nemotron-ultra", gpu=gpu).argv


def test_a_wait_that_the_recipe_names_is_kept_on_blackwell() -> None:
    found = train("nemotron-ultra", "rollout.health_check_first_wait_s=30", gpu="b200")
    assert pairs(found.argv)[("--rollout-health-check-first-wait", ("30",))] == 1


def test_the_launcher_gets_the_same_flags_after_its_own() -> None:
    asked = ask("nemotron-ultra", "driver.entry=script")
    found = script_command(asked, megatron=True)
    words = dict(zip(found.argv[3::2], found.argv[4::2], strict=False))
    assert found.argv[1:3] == ("{miles}/scripts/run_nemotron_3_ultra_550b_a55b.py", "train")
    assert words["--model-dir"] == "{models}"
    assert words["--model-name"] == "NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"
    assert words["--num-nodes"] == "16" and words["--megatron-path"] == "{megatron}"
    assert found.argv[-1] == "--skip-saving"
    ours = pairs(train("nemotron-ultra").argv[2:])
    passed = pairs(shlex.split(words["--extra-args"]))
    assert passed == Counter(p for p in ours if p[0] not in asked.model.miles_args)


def test_the_launchers_environment_is_json_and_covers_every_node() -> None:
    found = script_command(ask("nemotron-ultra", "driver.entry=script"), megatron=False)
    text = found.argv[found.argv.index("--extra-env-vars") + 1]
    assert json.loads(text)["no_proxy"] == "{no_proxy}"
    assert "--megatron-path" not in found.argv


def test_the_launcher_must_not_start_ray_nor_see_the_key() -> None:
    plan, _ = miles_driver(ask("nemotron-ultra", "driver.entry=script"), {"miles": "/opt/m"}, {})
    assert plan.env["MILES_SCRIPT_EXTERNAL_RAY"].value == "1"
    assert plan.env["WANDB_API_KEY"].value == ""
    assert plan.argv[1].startswith("/opt/m/scripts/")


def test_a_launcher_that_forgets_cannot_be_resumed() -> None:
    asked = ask("inkling-small", "driver.entry=script")
    with pytest.raises(BadInput, match="cannot resume"):
        script_command(asked, megatron=False)
    off = ask("inkling-small", "driver.entry=script", "resume=off")
    assert "--finetune" in script_command(off, megatron=False).argv[-1]


def test_a_model_flag_that_the_launcher_passes_cannot_be_left_out() -> None:
    asked = ask("nemotron-ultra", "driver.entry=script", "flags.--moe-router-pre-softmax=null")
    with pytest.raises(BadInput, match="passes --moe-router-pre-softmax itself"):
        script_command(asked, megatron=False)


def test_entry_script_needs_the_launchers_name() -> None:
    with pytest.raises(BadInput, match="needs miles' launcher"):
        script_command(
            ask("nemotron-ultra", "driver.entry=script", "driver.script=null"), megatron=False
        )


@pytest.mark.parametrize("key", ["model.hf_checkpoint", "data.prompt_data"])
def test_a_miles_run_needs_a_model_and_prompts(key: str) -> None:
    with pytest.raises(BadInput) as caught:
        train("nemotron-ultra", f"{key}=null")
    assert caught.value.where == key


def test_supervised_fine_tuning_has_no_engines_and_its_own_loss() -> None:
    settings = ("algorithm.kind=sft", "rollout.rollout_batch_size=128")
    found = pairs(train("inkling-small", *settings).argv)
    flags = {flag for flag, _ in found}
    assert {"--debug-train-only", "--calculate-per-token-loss"} <= flags
    assert not {"--colocate", "--rollout-num-gpus-per-engine", "--eps-clip"} & flags


def test_directories_that_are_known_are_filled_in_everywhere() -> None:
    known = {"models": "/m", "data": "/d", "miles": "/miles", "megatron": "/mega"}
    plan, differs = miles_driver(ask("inkling-small"), known, {})
    assert not [word for word in plan.argv if "{models}" in word or "{data}" in word]
    assert plan.env["PYTHONPATH"].value == "/miles:/mega:${PYTHONPATH}"
    assert plan.env["NCCL_NVLS_ENABLE"].value == "1"
    assert any(d.miles == "/m/Inkling-Small_torch_dist" for d in differs)
