from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmmiles import shell
from slurmmiles.catalog import Catalog, shipped
from slurmmiles.planfile import Plan
from slurmmiles.sbatch import decode_plan
from slurmmiles.shell import Completed

Cli = Callable[..., Completed]
RECIPES = sorted(Catalog((shipped("configs"),)).files("recipes"))
SECRETS = {
    "WANDB_API_KEY": "0123456789abcdefsecret",
    "HF_TOKEN": "hf_0123456789secret",
    "MY_PASSWORD": "correct-horse-secret",
}
# DESIGN.md, "The command line": plan --json has at least these.
CONTRACT = [
    "recipe",
    "site",
    "nodes",
    "gpus_per_node",
    "topology.tp",
    "topology.pp",
    "topology.cp",
    "topology.ep",
    "topology.etp",
    "topology.dp",
    "topology.world_size",
    "topology.layers_per_stage",
    "rollout.engines",
    "rollout.gpus_per_engine",
    "rollout.ep",
    "rollout.dp",
    "rollout.attn_tp",
    "rollout.nodes_per_engine",
    "memory.gpu_gb.total",
    "memory.gpu_gb.limit",
    "memory.host_gb.total",
    "memory.verdict",
    "memory.notes",
    "env.GLOO_SOCKET_IFNAME.value",
    "env.GLOO_SOCKET_IFNAME.origin",
    "driver.entry",
    "driver.argv",
    "driver.env",
    "slurm.directives",
    "cost.gpu_hours",
    "cost.usd",
]


def plan_json(answer: Completed) -> dict[str, Any]:
    assert answer.stderr == "", answer.stderr
    data: dict[str, Any] = json.loads(answer.stdout)
    return data


def has(data: Any, dotted: str) -> bool:
    for key in dotted.split("."):
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


@pytest.mark.parametrize("recipe", RECIPES)
def test_plan_json_has_every_key_of_the_contract(cli: Cli, recipe: str) -> None:
    answer = cli("plan", recipe, "--json")
    data = json.loads(answer.stdout)
    keys = [k for k in CONTRACT if not (data["rollout"] is None and k.startswith("rollout."))]
    assert [key for key in keys if not has(data, key)] == []
    assert data["memory"]["verdict"] in ("fits", "tight", "does not fit")
    assert answer.returncode == (2 if data["memory"]["verdict"] == "does not fit" else 0)
    assert Plan.model_validate(data).recipe == recipe


def test_plan_and_render_touch_nothing(
    cli: Cli, home: Path, list_below: Callable[[Path], list[str]]
) -> None:
    before = list_below(home)
    for argv in (("plan", "tiny"), ("plan", "tiny", "--json"), ("render", "tiny", "--runs", "r")):
        assert cli(*argv).returncode == 0
    assert list_below(home) == before


def test_a_directory_that_cannot_be_written_is_no_hindrance_to_look(cli: Cli) -> None:
    assert cli("plan", "tiny", cwd=Path("/proc")).returncode == 0


def test_every_variable_says_who_decided_it(cli: Cli, home: Path) -> None:
    site = home / "lab.yaml"
    site.write_text("env: {A: site, B: site, C: site}\n")
    recipe = home / "r.yaml"
    recipe.write_text("driver: {entry: gate-check}\nenv: {B: recipe, C: recipe}\n")
    data = plan_json(cli("plan", str(recipe), "--site", str(site), "--json", "--set", "env.C=user"))
    found = {k: (data["env"][k]["value"], data["env"][k]["origin"]) for k in "ABC"}
    assert found == {"A": ("site", "site lab"), "B": ("recipe", "recipe r"), "C": ("user", "user")}
    assert data["env"]["GLOO_SOCKET_IFNAME"]["origin"] == "node"


def test_the_command_line_decides_over_the_recipe(cli: Cli) -> None:
    argv = ["gate-check", "--nodes", "3", "--gpus-per-node", "4", "--spares", "1"]
    data = plan_json(cli("plan", *argv, "--set", "slurm.partition=gpu", "--json"))
    assert (data["nodes"], data["gpus_per_node"], data["spares"]) == (3, 4, 1)
    assert ["partition", "gpu"] in data["slurm"]["directives"]
    assert ["nodes", "4"] in data["slurm"]["directives"]


def test_the_plan_for_a_person_names_the_same_numbers(cli: Cli) -> None:
    text = cli("plan", "tiny", "--nodes", "2").stdout
    for words in ("tiny on 2 x 1 CPU ranks", "DP 2", "--nodes=2", "GLOO_SOCKET_IFNAME", "fits"):
        assert words in text


def test_the_rendered_script_is_bash_and_carries_the_plan(cli: Cli, home: Path) -> None:
    answer = cli("render", "tiny", "--nodes", "2", "--runs", "/shared/runs")
    assert (answer.returncode, answer.stderr) == (0, "")
    (home / "job").write_text(answer.stdout)
    assert shell.run(["bash", "-n", str(home / "job")]).stderr == ""
    word = answer.stdout.partition("SLURMMILES_PLAN=")[2].split()[0]
    planned = plan_json(cli("plan", "tiny", "--nodes", "2", "--json"))
    assert decode_plan(word) == Plan.model_validate(planned)
    assert "/shared/runs/" in answer.stdout


def test_a_dry_run_prints_the_script_and_submits_nothing(
    cli: Cli, home: Path, list_below: Callable[[Path], list[str]]
) -> None:
    before = list_below(home)
    answer = cli("submit", "tiny", "--dry-run", "--runs", "/shared/runs")
    assert answer.returncode == 0
    assert answer.stdout == cli("render", "tiny", "--runs", "/shared/runs").stdout
    assert list_below(home) == before


@pytest.mark.parametrize("argv", [("plan", "tiny", "--json"), ("plan", "tiny"), ("render", "tiny")])
def test_a_secret_of_the_environment_is_in_no_output(cli: Cli, argv: tuple[str, ...]) -> None:
    answer = cli(*argv, env=SECRETS)
    assert answer.returncode == 0
    text = answer.stdout + answer.stderr
    if "SLURMMILES_PLAN=" in text:
        plan = decode_plan(text.partition("SLURMMILES_PLAN=")[2].split()[0])
        text += plan.model_dump_json()
    assert not [value for value in SECRETS.values() if value in text]
