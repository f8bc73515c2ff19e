from __future__ import annotations

from pathlib import Path

import pytest

from slurmmiles.rundir import RUN_ID, Attempt, RunDir


def test_no_two_files_of_a_run_have_one_path() -> None:
    run = RunDir(Path("/runs/tiny-1"))
    attempt = run.attempt("12", 0)
    names = [n for n in dir(RunDir) if isinstance(getattr(RunDir, n), property) and n != "run_id"]
    paths = [getattr(run, n) for n in names]
    inner = [n for n in dir(Attempt) if isinstance(getattr(Attempt, n), property)]
    paths += [getattr(attempt, n) for n in inner]
    paths += [attempt.agent_log("n"), attempt.ray_log("n"), attempt.node("n")]
    assert len(set(paths)) == len(paths)
    assert all(p.is_relative_to(run.path) for p in paths)


def test_each_restart_of_each_job_has_its_own_directory() -> None:
    run = RunDir(Path("/runs/tiny-1"))
    assert run.run_id == "tiny-1"
    assert run.attempt("12", 1).path == Path("/runs/tiny-1/attempts/12.1")
    assert len({run.attempt(j, r).path for j in ("1", "12") for r in (0, 1, 2)}) == 6


def test_a_node_has_its_own_logs() -> None:
    attempt = Attempt(Path("/a"))
    logs = {attempt.agent_log("n1"), attempt.agent_log("n2"), attempt.ray_log("n1")}
    assert {str(p) for p in logs} == {
        "/a/logs/n1.agent.log",
        "/a/logs/n2.agent.log",
        "/a/logs/n1.ray.log",
    }


@pytest.mark.parametrize("name", ["tiny", "tiny-20260101-120000-ab12", "a" * 100, "9.b_c"])
def test_a_run_id_is_a_plain_word(name: str) -> None:
    assert RUN_ID.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-x", ".x", "a/b", "../a", "a b", "a\n", "$(id)", "é", "a" * 101, "a'b"]
)
def test_what_a_shell_or_a_path_would_read_otherwise_is_no_run_id(name: str) -> None:
    assert not RUN_ID.fullmatch(name)
