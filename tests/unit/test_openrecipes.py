"""An OpenRecipes file: the recipe it stands for, its contradictions, its variables, its driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurmmiles import shell
from slurmmiles.asked import Asked, asked_for
from slurmmiles.errors import BadInput
from slurmmiles.layouts import memory_of, shape_of
from slurmmiles.openrun import open_driver
from slurmmiles.plan import Request, make_plan
from slurmmiles.planfile import EnvValue, Plan

FILE = Path(__file__).parents[1] / "recorded" / "openrecipes-inkling-small.yaml"
VARIABLES = {
    "HF_CKPT": "/m/Inkling-Small",
    "TORCH_DIST": "/m/Inkling-Small_torch_dist",
    "SFT_DATA": "/d/tulu3.parquet",
    "KERNEL_CACHE": "/fast/kernels",
    "miles": "/opt/miles",
}
Edit = Callable[..., Path]


def asked(path: Path = FILE, *settings: str, gpu: str | None = None) -> Asked:
    return asked_for({"HOME": "/nonexistent"}, str(path), gpu, "generic", settings)


def plan(path: Path = FILE, *, settings: tuple[str, ...] = (), **request: object) -> Plan:
    a = asked(path, *settings)
    wanted = Request(**{"variables": VARIABLES, **request})  # type: ignore[arg-type]
    return make_plan(a.recipe, a.site, wanted, model=a.model, gpu=a.gpu, run=a.run)


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """A copy of the file with parts of its text replaced."""

    def write(*changes: tuple[str, str]) -> Path:
        text = FILE.read_text()
        for old, new in changes:
            assert text.count(old) >= 1, old
            text = text.replace(old, new)
        path = tmp_path / "edited.yaml"
        path.write_text(text)
        return path

    return write


def test_the_file_plans_as_four_nodes_of_eight_with_the_measured_layout() -> None:
    found = plan()
    t = found.topology
    assert (found.nodes, found.gpus_per_node, found.gpu) == (4, 8, "H200")
    assert (t.tp, t.pp, t.cp, t.ep, t.etp, t.dp) == (4, 4, 1, 8, 1, 2)
    assert t.layers_per_stage == (12, 10, 10, 10)
    assert found.rollout is None and found.memory.verdict == "fits"
    assert found.missing == ()


def test_the_driver_is_the_block_itself_in_miles_directory() -> None:
    found = plan().driver
    assert found.entry == "openrecipes"
    assert found.argv[:-1] == ("bash", "-euo", "pipefail", "-c")
    block = FILE.read_text().partition("run: |\n")[2].partition("\nnotes:")[0]
    wanted = "\n".join(line[2:] for line in block.splitlines())
    assert found.argv[-1].rstrip("\n") == f"cd /opt/miles\n{wanted}"
    assert found.env["PYTHONPATH"].value == "/opt/miles:${PYTHONPATH}"


def test_bash_finds_no_fault_in_the_drivers_text() -> None:
    done = shell.run(["bash", "-n", "-c", plan().driver.argv[-1]], timeout=60.0)
    assert done.returncode == 0, done.stderr


def test_the_variables_of_the_block_reach_the_driver_and_the_nodes() -> None:
    found = plan()
    assert found.driver.env["HF_CKPT"].value == "/m/Inkling-Small"
    assert found.driver.env["HF_CKPT"].origin == "user"
    assert found.env["TRITON_CACHE_DIR"].value == "/fast/kernels/triton"


def test_a_variable_may_come_from_the_environment() -> None:
    environ = {name: value for name, value in VARIABLES.items() if name != "miles"}
    found = plan(variables={"miles": "/opt/miles"}, environ=environ)
    assert found.missing == ()
    assert found.driver.env["SFT_DATA"].origin == "environment"


def test_all_that_is_missing_is_listed_at_once() -> None:
    names = {part.name for part in plan(variables={}).missing}
    assert names == {"$HF_CKPT", "$TORCH_DIST", "$SFT_DATA", "$KERNEL_CACHE", "{miles}"}


def test_its_contradiction_over_recomputation_is_shown_with_both_sides() -> None:
    told = "\n".join(plan().notes)
    assert "takes no recompute settings" in told
    assert "--recompute-granularity full" in told


def test_nothing_else_of_the_file_contradicts_itself() -> None:
    run = asked().run
    assert run is not None and len(run.checks) == 2
    assert all("recompute" in check for check in run.checks)


def test_the_price_is_the_one_that_the_result_implies() -> None:
    found = plan()
    assert asked().recipe.usd_per_gpu_hour == 7.90
    assert found.cost.usd == pytest.approx(found.cost.gpu_hours * 7.90)


def test_the_offload_fraction_decides_whether_it_fits(edit: Edit) -> None:
    path = edit(
        ("fraction 0.7", "fraction 0.6"), ("optimizer_fraction: 0.7", "optimizer_fraction: 0.6")
    )
    found = plan(path).memory
    assert found.verdict == "does not fit"
    assert "optimizer.cpu_offload 0.7 fits" in "\n".join(found.shortfalls)


def test_slurms_part_can_be_changed_and_the_run_blocks_part_cannot() -> None:
    found = plan(settings=("slurm.partition=gpu", "slurm.time=02:00:00"))
    assert ("partition", "gpu") in found.slurm.directives
    assert found.cost.gpu_hours == 64
    with pytest.raises(BadInput, match="its run block decides parallel.tp"):
        asked(FILE, "parallel.tp=8")


def test_another_number_of_nodes_is_refused() -> None:
    with pytest.raises(BadInput, match="written for 4 nodes of 8 GPUs, and 8 of 8"):
        plan(nodes=8)


def test_ray_commands_of_the_block_are_left_out_and_named(edit: Edit) -> None:
    path = edit(("  MODEL_ARGS_LINE", "  ray stop --force; pkill -9 python\n  MODEL_ARGS_LINE"))
    found = plan(path)
    assert "\n: # left out by slurmmiles: ray stop" in found.driver.argv[-1]
    assert any("ray stop --force" in note and "is left out" in note for note in found.notes)


def test_ray_commands_that_do_more_are_refused(edit: Edit) -> None:
    path = edit(("  python3 train.py", "  ray start --head && python3 train.py"))
    with pytest.raises(BadInput, match="does more") as caught:
        asked(path)
    assert "edited.yaml, run" in caught.value.where


def test_a_secret_of_the_block_is_inherited_and_never_written(edit: Edit) -> None:
    path = edit(('"$SFT_DATA"', '"$SFT_DATA" --x "$HF_TOKEN"'))
    found = plan(path, environ={"HF_TOKEN": "hf_secret"})
    assert found.missing == () and "hf_secret" not in found.model_dump_json()
    with pytest.raises(BadInput, match="HF_TOKEN holds a secret"):
        plan(path, variables={**VARIABLES, "HF_TOKEN": "hf_secret"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("schema_version: 1", "schema_version: 2"), "schema_version"),
        (("  count: 32", "  count: 31"), "31 GPUs do not divide into nodes of 8"),
        (("  count: 32", "  count: -32"), "gpu.count"),
        (("  count: 32", "  count: many"), "gpu.count"),
        (("  type: H200", "  type: H20"), "unknown gpu 'H20'; did you mean 'h200'?"),
        (("run: |", "steps: |"), "'run' is missing"),
        (("model: Inkling-Small", "model: 5"), "model"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(
    edit: Edit, change: tuple[str, str], said: str
) -> None:
    with pytest.raises(BadInput) as caught:
        asked(edit(change))
    assert said in str(caught.value) and "edited.yaml" in str(caught.value) or "31" in said


def test_the_files_kind_of_gpu_is_taken_and_the_command_lines_wins() -> None:
    assert asked().gpu.name == "H200" and not asked().gpu_assumed
    assert asked(gpu="b200").gpu.name == "B200"


def test_a_model_without_facts_runs_unchecked(edit: Edit) -> None:
    path = edit(("model: Inkling-Small", "model: Other"), ("utils.py inkling-small", "utils.py x"))
    found = plan(path)
    assert found.topology.world_size == 32 and found.memory.verdict == "fits"


def test_a_brace_word_of_the_shell_is_not_a_placeholder() -> None:
    a = asked()
    assert a.run is not None
    env = {"X": EnvValue(value="${run_dir}/x", origin="recipe")}
    _, filled_env, _ = open_driver(a.run, {"miles": "/m"}, VARIABLES, {}, env)
    assert filled_env["X"].value == "${run_dir}/x"


def test_memory_is_that_of_the_measured_rows() -> None:
    a = asked()
    shape = shape_of(a.recipe, a.model, a.gpu, nodes=4, gpus=8, ranks=8)
    fit = memory_of(a.recipe, shape)
    assert fit.gpu_gb["total"] == pytest.approx(141.8, abs=0.1)
    assert any("calibration, not a derivation" in note for note in fit.notes)
