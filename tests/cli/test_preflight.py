"""`preflight replay` as a person types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmmiles.shell import Completed

Cli = Callable[..., Completed]
RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "preflight"


@pytest.mark.parametrize(
    ("folder", "code"),
    [("h200-healthy", 0), ("h200-gpu5-lost-two-links", 3), ("h200-two-gpus-real", 0)],
)
def test_the_exit_code_and_the_json_tell_the_verdict(cli: Cli, folder: str, code: int) -> None:
    expected = json.loads((RECORDED / folder / "expected.json").read_text())
    done = cli("preflight", "replay", str(RECORDED / folder), "--json")
    assert done.returncode == code, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == expected["verdict"]
    at = {f["code"] for f in report["findings"] if f["verdict"] == report["verdict"]}
    assert at == set(expected["codes"])
    fields = {"code", "verdict", "subject", "message", "remedy", "evidence"}
    assert all(set(f) == fields for f in report["findings"])


def test_a_person_reads_the_culprit_and_what_to_do(cli: Cli) -> None:
    done = cli("preflight", "replay", str(RECORDED / "ib-port-waits-for-subnet-manager"))
    assert done.returncode == 3
    assert "nic=mlx5_1" in done.stdout and "subnet manager" in done.stdout


def test_unreadable_evidence_is_no_failure_and_no_pass(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text("")
    done = cli("preflight", "replay", str(tmp_path), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"] == "UNKNOWN"


def test_a_folder_without_evidence_is_said_in_one_sentence(cli: Cli, tmp_path: Path) -> None:
    done = cli("preflight", "replay", str(tmp_path))
    assert done.returncode == 2
    assert "no evidence to judge" in done.stderr and "Traceback" not in done.stderr


def test_help_shows_an_example(cli: Cli) -> None:
    assert "slurmmiles preflight replay" in cli("preflight", "--help").stdout
