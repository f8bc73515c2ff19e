from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmmiles.catalog import Catalog
from slurmmiles.shell import Completed

Cli = Callable[..., Completed]


def parsed(answer: Completed) -> Any:
    """Its one JSON value; nothing else may be on either output."""
    assert answer.stderr == "", answer.stderr
    return json.loads(answer.stdout, parse_constant=lambda word: pytest.fail(word))


def test_recipes_and_sites_are_listed_a_line_each(cli: Cli, catalog: Catalog) -> None:
    for kind in ("recipes", "sites"):
        names = list(catalog.files(kind))
        lines = cli(kind).stdout.splitlines()
        assert [line.split()[0] for line in lines] == names
        rows = parsed(cli(kind, "--json"))
        assert [row["name"] for row in rows] == names
        assert all(Path(row["file"]).is_file() and row["description"] for row in rows)


def test_a_recipe_is_shown_with_every_key_and_setting(cli: Cli, catalog: Catalog) -> None:
    shown = parsed(cli("recipes", "show", "tiny", "--json", "--set", "optimizer.lr=0.5"))
    assert shown == catalog.recipe("tiny", ["optimizer.lr=0.5"]).model_dump(mode="json")
    assert "lr: 0.5\n" in cli("recipes", "show", "tiny", "--set", "optimizer.lr=0.5").stdout


def test_what_is_shown_can_be_used_as_a_file(cli: Cli, home: Path) -> None:
    for kind, name in (("recipes", "tiny"), ("sites", "sandbox")):
        text = cli(kind, "show", name).stdout
        path = home / f"{kind}.yaml"
        path.write_text(text)
        assert cli(kind, "show", str(path)).stdout == text


def test_a_site_is_shown_and_detected_with_the_reason(cli: Cli, catalog: Catalog) -> None:
    shown = parsed(cli("sites", "show", "generic", "--json"))
    assert shown == catalog.site("generic").model_dump(mode="json")
    found = parsed(cli("sites", "detect", "--json"))
    assert found["site"] == "generic" and found["why"]
    assert cli("sites", "detect").stdout.startswith("generic: ")


def test_the_users_own_recipe_is_listed_and_planned(cli: Cli, home: Path) -> None:
    folder = home / "xdg" / "slurmmiles" / "recipes"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("description: my own check\ndriver: {entry: gate-check}\n")
    env = {"XDG_CONFIG_HOME": str(home / "xdg")}
    assert "mine" in cli("recipes", env=env).stdout
    assert parsed(cli("plan", "mine", "--json", env=env))["recipe"] == "mine"


def test_no_runs_is_an_empty_list(cli: Cli) -> None:
    assert parsed(cli("runs", "--json")) == []
    assert cli("runs").returncode == 0


def test_doctor_answers_with_findings(cli: Cli) -> None:
    answer = cli("doctor", "--json")
    report = parsed(answer)
    assert answer.returncode == (2 if report["verdict"] == "FAIL" else 0)
    codes = {finding["code"] for finding in report["findings"]}
    assert {"slurm_tools", "container_runtime", "python", "package"} <= codes
    keys = {"code", "verdict", "subject", "message", "remedy", "evidence"}
    assert all(set(finding) == keys for finding in report["findings"])


def test_doctor_fails_where_runs_cannot_be_written(cli: Cli) -> None:
    answer = cli("doctor", "--json", "--runs", "/proc/nowhere")
    found = {f["code"]: f["verdict"] for f in parsed(answer)["findings"]}
    assert found.get("runs_writable") == "FAIL" and answer.returncode == 2
