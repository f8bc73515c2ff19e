"""The large recipes and an OpenRecipes file on the command line, as a person types them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmmiles import shell
from slurmmiles.shell import Completed

Cli = Callable[..., Completed]
FILE = Path(__file__).parents[1] / "recorded" / "openrecipes-inkling-small.yaml"
ROOT = Path(__file__).parents[2]
VARIABLES = [
    f"--var={name}=/x/{name}"
    for name in ("HF_CKPT", "TORCH_DIST", "SFT_DATA", "KERNEL_CACHE", "miles")
]
RECIPES = ("gate-check", "inkling-small", "nemotron-super", "nemotron-ultra",
           "nemotron-ultra-4layer", "tiny")  # fmt: skip


def plan(cli: Cli, *argv: str) -> dict[str, Any]:
    answer = cli("plan", *argv, "--json")
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_the_full_model_on_sixteen_nodes(cli: Cli) -> None:
    found = plan(cli, "nemotron-ultra", "--nodes", "16", "--gpu", "H200")
    assert found["topology"]["layers_per_stage"] == [27, 27, 27, 27]
    assert found["rollout"]["engine_nodes"] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11],
                                                [12, 13, 14, 15]]  # fmt: skip
    assert found["memory"]["verdict"] == "fits"
    assert [d["flag"] for d in found["differs_from_miles"]] == [
        "--save",
        "--load",
        "--no-save-optim",
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_a_plan_loads_neither_torch_nor_ray(name: str) -> None:
    code = (
        "import sys\nfrom slurmmiles.cli import main\n"
        f"main(['plan', {name!r}, '--json'], standalone_mode=False)\n"
        "loaded = {m.partition('.')[0] for m in sys.modules}\n"
        "heavy = {'torch', 'ray', 'megatron', 'sglang', 'submitit'}\n"
        "print(sorted(loaded & heavy), file=sys.stderr)"
    )
    answer = shell.run(
        [sys.executable, "-c", code],
        env={"HOME": "/nonexistent", "PYTHONPATH": str(ROOT), "PATH": "/nonexistent"},
        timeout=120.0,
    )
    assert answer.returncode == 0 and answer.stderr.strip() == "[]", answer.stderr


def test_a_person_reads_what_differs_and_how_far_traffic_reaches(cli: Cli) -> None:
    said = cli("plan", "nemotron-ultra").stdout
    assert "differs from miles" in said and "--no-save-optim: given -> left out" in said
    assert "EP all-to-all in a block" in said
    assert "differs from miles" not in cli("plan", "nemotron-ultra", "--set", "resume=off").stdout


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--nodes", "15"), "120 GPUs (15 nodes x 8) do not divide"),
        (("--gpu", "H20"), "unknown gpu 'h20'; did you mean 'h200'?"),
        (("--gpu", "H100"), "the rollout's KV pool is too small"),
        (("--nodes", "-1"), "-1 nodes were asked for"),
        (("--set", "parallel.tp=16"), "n_groups 8 do not divide by tp 16"),
        (("--set", "flags.--lr=1"), "--lr is 1 and optimizer.lr decides 1e-6"),
        (("--set", "optimizer.lr=1", "--set", "optimizer.lr=2"), "optimizer.lr is set twice"),
        (("--var", "modles=/x"), "nothing here uses modles; did you mean 'models'?"),
        (("--var", "models"), "'models' is not of the form NAME=VALUE"),
    ],
)
def test_what_cannot_work_ends_with_one_sentence(
    refused: Callable[..., str], argv: tuple[str, ...], said: str
) -> None:
    assert said in refused("plan", "nemotron-ultra", *argv, "--json")


def test_a_script_is_rendered_with_a_warning_and_submitting_is_refused(
    cli: Cli, refused: Callable[..., str]
) -> None:
    script = cli("render", "nemotron-ultra")
    assert script.returncode == 0 and script.stdout.startswith("#!")
    assert "Warning: {models} is not known" in script.stderr
    dry = cli("submit", "nemotron-ultra", "--dry-run")
    assert dry.returncode == 0 and "Warning: {miles} is not known" in dry.stderr
    said = refused("submit", "nemotron-ultra", "--local")
    assert all(name in said for name in ("{models}", "{data}", "{miles}", "--var models=DIR"))


def test_exploring_prints_every_layout_and_the_model_that_ranks_them(cli: Cli) -> None:
    found = json.loads(cli("plan", "inkling-small", "--explore", "--json").stdout)
    rank = {(r["tp"], r["pp"], r["ep"]): r["rank"] for r in found["layouts"]}
    assert rank[(4, 4, 8)] < rank[(4, 8, 4)]
    said = cli("plan", "nemotron-ultra", "--explore", "--nodes", "16").stdout
    assert "valid layouts of nemotron-ultra on 16 x 8 H200" in said
    assert "<- the recipe's" in said and "bubble: (pp - 1) / micro-batches" in said


def test_exploring_works_where_the_recipes_own_layout_does_not(cli: Cli) -> None:
    assert cli("plan", "inkling-small", "--nodes", "8").returncode == 0
    answer = cli("plan", "inkling-small", "--explore", "--set", "parallel.layers_last=6", "--json")
    assert answer.returncode == 0 and json.loads(answer.stdout)["layouts"]


def test_an_openrecipes_file_plans_and_dry_runs(cli: Cli) -> None:
    found = plan(cli, str(FILE), *VARIABLES)
    assert (found["nodes"], found["gpus_per_node"]) == (4, 8)
    assert found["cost"]["usd"] == pytest.approx(128 * 7.9)
    assert any("takes no recompute settings" in note for note in found["notes"])
    script = cli("submit", str(FILE), "--dry-run", *VARIABLES)
    assert script.returncode == 0
    assert "#SBATCH --nodes=4" in script.stdout and "--gpus-per-node=8" in script.stdout


def test_an_openrecipes_file_without_its_variables_lists_all(
    cli: Cli, refused: Callable[..., str]
) -> None:
    for command in (("plan",), ("render",), ("submit", "--dry-run")):
        said = refused(command[0], str(FILE), *command[1:])
        assert all(f"${n}" in said for n in ("HF_CKPT", "TORCH_DIST", "SFT_DATA", "KERNEL_CACHE"))
    environ = {name: "/x" for name in ("HF_CKPT", "TORCH_DIST", "SFT_DATA", "KERNEL_CACHE")}
    assert cli("plan", str(FILE), env=environ).returncode == 0


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("model: {facts: tiny\n", "mine.yaml", "this is not YAML"),
        ("model: {facts: tiny}\nresume: auto\nresume: off\n", "mine.yaml:3", "duplicate"),
        ("parallel:\n  tp: two\n", "mine.yaml:2", "parallel.tp"),
        ("parallel:\n  tp: -1\n", "mine.yaml:2", "parallel.tp"),
        ("parallel:\n  tp: 99999999999999999999\n", "mine.yaml:2", "parallel.tp"),
        ("optimizer:\n  lr: .inf\n", "mine.yaml:2", "optimizer.lr"),
        ("description: x\nextends: mine.yaml\n", "mine.yaml:2", "extends itself"),
        ("flags: [--lr]\n", "mine.yaml:1", "flags"),
        ("schema_version: 1\nmodel: x\n", "mine.yaml", "missing"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(
    home: Path, refused: Callable[..., str], text: str, where: str, said: str
) -> None:
    path = home / "work" / "mine.yaml"
    path.write_text(text)
    sentence = refused("plan", str(path))
    assert where in sentence and said in sentence
