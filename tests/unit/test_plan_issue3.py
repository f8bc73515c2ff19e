"""Plans of large models: broken layouts, each with its rule; GPUs, memory, directories, scale."""

from __future__ import annotations

import pytest

from slurmmiles.asked import asked_for
from slurmmiles.errors import BadInput
from slurmmiles.plan import Request, make_plan
from slurmmiles.planfile import Plan

Broken = tuple[str, dict[str, int], tuple[str, ...], str]


def plan(
    name: str, *settings: str, gpu: str | None = "h200", site: str = "generic", **request: object
) -> Plan:
    a = asked_for({"HOME": "/nonexistent"}, name, gpu, site, settings)
    wanted = Request(gpu_assumed=a.gpu_assumed, **request)  # type: ignore[arg-type]
    return make_plan(a.recipe, a.site, wanted, model=a.model, gpu=a.gpu, run=a.run)


ULTRA = "nemotron-ultra"
BROKEN: list[Broken] = [
    (ULTRA, {"nodes": 15}, (), "120 GPUs (15 nodes x 8) do not divide by tp x pp x cp = 8 x 4 x 1"),
    (ULTRA, {"nodes": 1}, (), "8 GPUs (1 nodes x 8) do not divide by tp x pp x cp"),
    (ULTRA, {"nodes": 9000}, (), "9000 nodes were asked for"),
    (ULTRA, {"gpus_per_node": 6}, (), "tp x cp x dp = 24 ranks of a pipeline stage"),
    (ULTRA, {}, ("parallel.tp=16",), "the Mamba n_groups 8 do not divide by tp 16"),
    (ULTRA, {}, ("parallel.tp=3",), "64 attention heads do not divide by tp 3"),
    (ULTRA, {}, ("parallel.tp=0",), "parallel.tp = 0"),
    (ULTRA, {}, ("parallel.pp=5",), "108 layers do not divide into 5 pipeline stages"),
    (ULTRA, {}, ("parallel.pp=8",), "108 layers do not divide into 8 pipeline stages"),
    (ULTRA, {}, ("parallel.layers_first=20",), "with 20 in the first stage leave 88 layers for 3"),
    (ULTRA, {}, ("parallel.layers_last=107",), "with 107 in the last stage leave 1 layers for 3"),
    (ULTRA, {}, ("parallel.cp=3",), "tp x pp x cp = 8 x 4 x 3 = 96"),
    (ULTRA, {}, ("parallel.ep=48",), "512 experts do not divide by ep 48"),
    (ULTRA, {}, ("parallel.ep=64",), "= 32 ranks of a pipeline stage do not divide by ep x etp"),
    (ULTRA, {}, ("parallel.etp=3",), "the expert width 5120 does not divide by etp 3"),
    (ULTRA, {}, ("parallel.etp=2",), "ep x etp = 32 x 2 = 64"),
    (ULTRA, {}, ("parallel.sequence_parallel=false",), "experts with tp 8 need sequence"),
    (ULTRA, {}, ("rollout.gpus_per_engine=24",), "do not divide into engines of 24"),
    (ULTRA, {}, ("rollout.gpus_per_engine=12",), "an engine of 12 GPUs neither spans whole nodes"),
    (ULTRA, {}, ("rollout.gpus_per_engine=256",), "do not divide into engines of 256"),
    (ULTRA, {}, ("rollout.dp=3",), "does not divide by data-parallel attention dp 3"),
    (ULTRA, {}, ("rollout.dp=1",), "attn_tp = gpus_per_engine / dp = 32 / 1 = 32"),
    (ULTRA, {}, ("rollout.dp=2",), "the Mamba n_groups 8 do not divide by attn_tp"),
    (ULTRA, {}, ("rollout.ep=3",), "an engine of 32 GPUs does not divide by ep 3"),
    (ULTRA, {}, ("algorithm.global_batch_size=100",), "256 samples do not divide into global"),
    (ULTRA, {}, ("algorithm.global_batch_size=2",), "dp x micro_batch_size = 4 x 1"),
    (ULTRA, {}, ("rollout.rollout_batch_size=33",), "a rollout's 264 samples do not divide"),
    ("nemotron-ultra-4layer", {}, ("parallel.sequence_parallel=true",), "but tp is 1"),
    ("nemotron-super", {}, ("parallel.tp=16",), "n_groups 8 do not divide by tp 16"),
    ("inkling-small", {}, ("parallel.layers_last=6",), "with 6 in the last stage leave 36 layers"),
    ("inkling-small", {}, ("parallel.layers_last=null",), "42 layers do not divide into 8"),
    ("inkling-small", {}, ("parallel.ep=3",), "256 experts do not divide by ep 3"),
    ("tiny", {}, ("parallel.ep=2",), "tiny has no experts, so parallel.ep 2 must be 1"),
    ("tiny", {}, ("rollout.ep=2",), "tiny has no experts, so rollout.ep 2 must be 1"),
    ("tiny", {}, ("parallel.tp=8",), "4 attention heads do not divide by tp 8"),
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: f"{b[0]} {b[1] or ''} {' '.join(b[2])}")
def test_a_broken_layout_is_refused_with_its_rules_own_message(broken: Broken) -> None:
    name, request, settings, message = broken
    with pytest.raises(BadInput) as caught:
        plan(name, *settings, **request)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_messages_name_the_nearest_values_that_work() -> None:
    with pytest.raises(BadInput) as caught:
        plan(ULTRA, nodes=15)
    assert "nodes works at 16 or 32" in caught.value.fix
    with pytest.raises(BadInput) as caught:
        plan(ULTRA, "parallel.tp=16")
    assert "parallel.tp works at 4 or 8" in caught.value.fix


def test_the_full_model_is_planned_as_its_launcher_runs_it() -> None:
    found = plan(ULTRA)
    t, r = found.topology, found.rollout
    assert (t.tp, t.pp, t.cp, t.ep, t.etp, t.dp, t.world_size) == (8, 4, 1, 32, 1, 4, 128)
    assert t.layers_per_stage == (27, 27, 27, 27) and t.sequence_parallel
    assert r is not None
    assert (r.engines, r.gpus_per_engine, r.ep, r.dp) == (4, 32, 32, 4)
    assert (r.attn_tp, r.nodes_per_engine) == (8, 4)
    assert found.env["SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK"].value == "1"
    assert found.env["CUDA_DEVICE_MAX_CONNECTIONS"].value == "1"
    assert found.traffic["tp"] == "in a node" and found.traffic["ep"] == "in a block"


def test_attention_with_dp_16_breaks_no_rule_and_is_told_what_sglang_would_leave_free() -> None:
    """attn_tp 2 divides every head and group; SGLang's own sizing asks for a lower fraction."""
    found = plan(ULTRA, "rollout.dp=16")
    assert found.rollout is not None and found.rollout.attn_tp == 2
    assert any("SGLang's own sizing leaves" in note for note in found.memory.notes)
    assert not any("SGLang's own sizing" in note for note in plan(ULTRA).memory.notes)


def test_on_h100_the_kv_pool_is_the_shortfall_and_what_helps_is_named() -> None:
    memory = plan(ULTRA, gpu="h100").memory
    assert memory.verdict == "does not fit"
    assert memory.shortfalls[0].startswith("the rollout's KV pool is too small")
    assert any("rollout.mem_fraction 0.8" in s for s in memory.shortfalls)
    assert any("engines of 64 GPUs" in s for s in memory.shortfalls)
    assert memory.notes[: len(memory.shortfalls)] == memory.shortfalls


@pytest.mark.parametrize(
    "setting",
    [
        "flags.--fp8-format=e4m3",
        "flags.--fp8-recipe=blockwise",
        "flags.--sglang-quantization=fp8",
        "flags.--sglang-fp8-gemm-backend=triton",
        "flags.--sglang-kv-cache-dtype=fp8_e4m3",
        "model.hf_checkpoint='{models}/Nemotron-FP8'",
    ],
)
def test_an_fp8_recipe_is_refused_on_a100_only(setting: str) -> None:
    with pytest.raises(BadInput, match="has no fp8 tensor cores"):
        plan(ULTRA, setting, gpu="a100-80")
    assert plan(ULTRA, setting, gpu="h200").gpu == "H200"


def test_a_bf16_recipe_is_not_refused_on_a100() -> None:
    assert plan(ULTRA, "flags.--fp8-format=none", gpu="a100-80").gpu == "A100-80"


def test_a_larger_card_suggests_a_smaller_tp_with_the_memory() -> None:
    note = next(n for n in plan(ULTRA).notes if "has room for parallel.tp=4" in n)
    assert "50.1 of 150.8 GB instead of 43.4" in note and "parallelism 8 instead of 4" in note
    assert not any("has room for" in n for n in plan(ULTRA, gpu="h100").notes)


def test_a_smaller_tp_that_breaks_a_rule_is_not_suggested() -> None:
    # With 64 samples a step, eight replicas of 16 samples each have no whole micro-batch.
    found = plan(ULTRA, "algorithm.global_batch_size=64", "algorithm.micro_batch_size=16")
    assert not any("has room for" in n for n in found.notes)


def test_the_kind_of_gpu_is_assumed_only_when_nobody_names_it() -> None:
    assert any("H200 is assumed" in n for n in plan(ULTRA, gpu=None).notes)
    assert not any("assumed" in n for n in plan(ULTRA).notes)


def test_a_node_with_more_gpus_than_its_kind_has_is_noted() -> None:
    assert any("a node of GB300 has 4 GPUs" in n for n in plan(ULTRA, gpu="gb300").notes)


def test_expandable_segments_are_refused_where_trainer_and_engines_take_turns() -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        with pytest.raises(BadInput, match="expandable_segments"):
            plan(ULTRA, f"env.{name}=expandable_segments:True")


def test_directories_come_from_options_and_what_nobody_gives_is_missing() -> None:
    names = {part.name for part in plan(ULTRA).missing}
    assert names == {"{models}", "{data}", "{miles}"}
    given = {"models": "/m/", "data": "/d"}
    found = plan(ULTRA, variables=given, environ={"MILES_DIR": "/opt/miles"})
    assert found.missing == ()
    assert "/m/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16" in found.driver.argv
    assert found.driver.argv[1] == "/opt/miles/train.py"


def test_the_recipes_directory_wins_over_the_environments_and_var_over_both() -> None:
    environ = {"MILES_DIR": "/env"}
    here = plan(ULTRA, "driver.miles_dir=/recipe", environ=environ)
    assert here.driver.argv[1] == "/recipe/train.py"
    asked = plan(ULTRA, "driver.miles_dir=/recipe", environ=environ, variables={"miles": "/var"})
    assert asked.driver.argv[1] == "/var/train.py"


def test_a_wandb_key_switches_it_on_and_is_nowhere_in_the_plan() -> None:
    found = plan(ULTRA, environ={"WANDB_API_KEY": "secret-key-1"})
    assert "--use-wandb" in found.driver.argv
    assert "secret-key-1" not in found.model_dump_json()


def test_cost_is_the_sites_price_else_the_recipes() -> None:
    assert plan(ULTRA).cost.gpu_hours == 128 * 24
    assert plan(ULTRA).cost.usd is None
    assert plan(ULTRA, "usd_per_gpu_hour=2.5").cost.usd == 128 * 24 * 2.5


def test_a_thousand_gpus_are_planned() -> None:
    found = plan(ULTRA, nodes=128)
    assert found.topology.world_size == 1024 and found.topology.dp == 32
    assert found.rollout is not None and found.rollout.engines == 32


@pytest.mark.parametrize("entry", ["train", "script"])
def test_a_plan_of_miles_survives_its_file(entry: str) -> None:
    found = plan(ULTRA, f"driver.entry={entry}")
    assert Plan.model_validate_json(found.model_dump_json()) == found


def test_a_recipe_cannot_name_the_entry_of_an_openrecipes_file() -> None:
    with pytest.raises(BadInput, match="has no run block"):
        plan("tiny", "driver.entry=openrecipes")
