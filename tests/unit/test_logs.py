from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import psutil
import pytest

from slurmmiles.errors import BadInput
from slurmmiles.job import Job
from slurmmiles.jsonfile import write_json
from slurmmiles.logs import CHUNK, follow, log_files
from slurmmiles.rundir import Attempt, RunDir
from slurmmiles.submit import LocalAgent, Submission


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "tiny-1")


def job_of(run: RunDir, *pids: int, mode: str = "local") -> Job:
    """The run's job 7; its agents are the processes `pids`, and it runs while they live."""
    run.path.mkdir(exist_ok=True)
    agents = [LocalAgent(pid=p, started=psutil.Process(p).create_time()) for p in pids]
    values = {"job_id": "7", "mode": mode, "submitted_at": 1.0, "agents": agents}
    write_json(run.submission, Submission.model_validate(values))
    return Job(run)


def attempt_of(run: RunDir, restart: int = 0) -> Attempt:
    attempt = run.attempt("7", restart)
    attempt.logs.mkdir(parents=True)
    return attempt


def test_the_driver_of_the_newest_attempt_is_shown(run: RunDir) -> None:
    job = job_of(run)
    for restart in (0, 2, 10):
        attempt_of(run, restart).driver_log.write_text(f"attempt {restart}\n")
    assert "".join(follow(lambda: log_files(job, None), job, False)) == "attempt 10\n"


def test_without_a_driver_the_jobs_own_log_is_shown(run: RunDir) -> None:
    job = job_of(run)
    (run.path / "local").mkdir()
    for rank in (0, 1):
        (run.path / "local" / f"7.{rank}.log").write_text(f"agent {rank}\n")
    (run.path / "local" / "6.0.log").write_text("another job\n")
    assert "".join(follow(lambda: log_files(job, None), job, False)) == "agent 0\nagent 1\n"
    assert log_files(job_of(run, mode="slurm"), None) == [run.submitit / "7_0_log.out"]


def test_a_nodes_own_logs_are_shown_and_an_unknown_node_is_named(run: RunDir) -> None:
    job = job_of(run)
    with pytest.raises(BadInput, match="node 'node01' has no logs in run tiny-1"):
        log_files(job, "node01")
    attempt = attempt_of(run)
    attempt.agent_log("node01").write_text("agent\n")
    attempt.ray_log("node01").write_text("ray\n")
    assert "".join(follow(lambda: log_files(job, "node01"), job, False)) == "agent\nray\n"
    with pytest.raises(BadInput, match="did you mean 'node01'"):
        log_files(job, "node02")


def test_a_log_of_any_size_and_of_any_bytes_is_shown_whole(run: RunDir) -> None:
    job = job_of(run)
    text = "é" * CHUNK + "last"
    attempt_of(run).driver_log.write_bytes(text.encode() + b"\xff\n")
    pieces = list(follow(lambda: log_files(job, None), job, False))
    assert "".join(pieces) == text + "\ufffd\n"
    assert all(len(piece) <= CHUNK for piece in pieces)


def test_what_is_added_is_shown_until_the_run_ends(run: RunDir) -> None:
    job = job_of(run, os.getpid())
    log = attempt_of(run).driver_log
    whole = "step 1 é\nstep 2\n".encode()
    log.write_bytes(whole[:8])  # in the middle of a character

    def add() -> None:
        time.sleep(0.3)
        with log.open("ab") as file:
            file.write(whole[8:])
        job_of(run)  # its agents are gone: it has ended
        job.submission = Job(run).submission

    thread = threading.Thread(target=add)
    thread.start()
    assert "".join(follow(lambda: [log], job, True)) == whole.decode()
    thread.join()


def test_a_file_that_is_not_there_is_an_empty_one(run: RunDir) -> None:
    job = job_of(run)
    assert "".join(follow(lambda: [run.path / "missing"], job, False)) == ""
