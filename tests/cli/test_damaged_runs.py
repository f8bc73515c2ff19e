"""A run directory with damaged files is told apart from its neighbours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmmiles.commands.submit import _missing_parts
from slurmmiles.errors import BadInput
from slurmmiles.job import Job
from slurmmiles.rundir import RunDir
from slurmmiles.runlist import all_runs
from slurmmiles.shell import Completed

Cli = Callable[..., Completed]
SUBMISSION = {"job_id": "17", "mode": "local", "submitted_at": 1.0, "agents": []}


def a_run(runs: Path, name: str, submission: object = SUBMISSION) -> RunDir:
    run = RunDir(runs / name)
    run.path.mkdir(parents=True)
    run.plan.write_text("{}")
    run.submission.write_text(submission if isinstance(submission, str) else json.dumps(submission))
    return run


def test_one_unreadable_run_does_not_hide_the_others(cli: Cli, tmp_path: Path) -> None:
    a_run(tmp_path, "good")
    a_run(tmp_path, "bad", "{not")
    a_run(tmp_path, "odd", {**SUBMISSION, "job_id": "/etc"})
    done = cli("runs", "--runs", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    states = {row["run_id"]: row["state"] for row in json.loads(done.stdout)}
    assert states == {"good": "ENDED", "bad": "UNREADABLE", "odd": "UNREADABLE"}


@pytest.mark.parametrize(
    "agents", [[{"pid": -1, "started": 1.0}], [{"pid": 0, "started": 1.0}], "none"]
)
def test_impossible_agents_are_bad_input_that_names_the_file(
    tmp_path: Path, agents: object
) -> None:
    run = a_run(tmp_path, "run", {**SUBMISSION, "agents": agents})
    with pytest.raises(BadInput, match="not what this version") as told:
        Job(run)
    assert told.value.where == str(run.submission)


def test_strange_attempts_and_progress_do_not_stop_status(tmp_path: Path) -> None:
    run = a_run(tmp_path, "run")
    for name in ("17.x", "17.0.bak", "18.5", "17.2", "17.10"):
        (run.attempts / name).mkdir(parents=True)
    (run.attempts / "17.10" / "progress.json").write_text('{"phase": 3}')
    attempt = Job(run).attempt()
    assert attempt is not None and attempt.path.name == "17.10"
    assert Job(run).status().state == "ENDED"


def test_a_damaged_result_is_not_called_a_missing_one(tmp_path: Path) -> None:
    run = a_run(tmp_path, "run")
    assert "no result" in Job(run).status().sentence
    run.result.write_text('{"x": 1}')
    assert "cannot be read" in Job(run).status().sentence


def test_a_file_in_place_of_the_runs_is_not_an_empty_list(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="not a directory"):
        all_runs(tmp_path / "file")
    assert all_runs(tmp_path / "nowhere") == []


def test_what_a_refused_submit_must_remove_is_what_was_not_there(tmp_path: Path) -> None:
    assert _missing_parts(tmp_path / "a" / "b") == [tmp_path / "a" / "b", tmp_path / "a"]
    assert _missing_parts(tmp_path) == []
