"""Runs on a real Slurm of simulated nodes, from `submit` to Slurm's own word about their end."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from slurm_user import ROOT, User

from slurmmiles.sandbox import faults

pytestmark = pytest.mark.slurm

COMMAND = """
description: a driver of one line
driver:
  entry: command
  argv: [bash, -c, {script}]
slurm: {{nodes: 2, gpus_per_node: 0, cpus_per_task: 1, time: "00:05:00"}}
"""


def command(user: User, name: str, script: str) -> str:
    return user.recipe(name, COMMAND.format(script=json.dumps(script)))


def wait_for(user: User, run_id: str, phase: str, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while json.loads(user.type("status", run_id, "--json").stdout)["phase"] != phase:
        assert time.monotonic() < deadline, user.type("logs", run_id).stdout
        time.sleep(1.0)


def test_the_drivers_exit_code_fails_the_job_in_slurm_too(user: User) -> None:
    code, result = user.submit(command(user, "seven", "echo no luck; exit 7"))
    assert code == 5
    assert result["outcome"] == "failed"
    assert result["driver_exit_code"] == 7
    assert "no luck" in result["reason"]
    assert user.slurm_state(result["job_id"]) == "FAILED 5:0"


def test_gate_check_sees_every_gpu_of_every_node(user: User) -> None:
    code, result = user.submit("gate-check", "--nodes", "3")
    assert code == 0, result
    assert result["nodes"] == ["node01", "node02", "node03"]
    assert result["joined_after_s"] > 0
    log = Path(result["run_dir"], "latest/logs/driver.log").read_text()
    assert "3 nodes and 24 GPUs are registered" in log
    assert user.slurm_state(result["job_id"]) == "COMPLETED 0:0"


def test_a_node_that_does_not_see_the_run_directory_is_named(user: User) -> None:
    recipe = command(user, "blind", "exit 0")
    faults.hide_shared(user.sandbox.where, "node02", user.runs)
    try:
        code, result = user.submit(recipe, "--set", "slurm.extra.nodelist=node[01-02]")
    finally:
        faults.show_shared(user.sandbox.where, "node02", user.runs)
    assert code == 3
    assert "node02: it cannot see the run directory" in result["reason"]
    assert "node01:" not in result["reason"]
    assert user.slurm_state(result["job_id"]) == "FAILED 3:0"


def test_a_spare_takes_the_place_of_an_unfit_node(user: User) -> None:
    recipe = command(user, "spare", "exit 0")
    faults.hide_shared(user.sandbox.where, "node02", user.runs)
    try:
        code, result = user.submit(recipe, "--spares", "1")
    finally:
        faults.show_shared(user.sandbox.where, "node02", user.runs)
    assert code == 0, result
    assert result["nodes"] == ["node01", "node03"]
    assert user.slurm_state(result["job_id"]) == "COMPLETED 0:0"


def test_cancel_leaves_no_process_and_no_file_on_the_nodes(user: User) -> None:
    recipe = command(user, "long", "sleep 600")
    assert user.type("submit", recipe, "--run-id", "long").returncode == 0
    wait_for(user, "long", "driver")
    again = user.type("submit", recipe, "--run-id", "long")
    assert again.returncode == 2
    assert "has a job that is RUNNING" in again.stderr
    assert user.type("cancel", "long").returncode == 0
    status = json.loads(user.type("status", "long", "--json").stdout)
    deadline = time.monotonic() + 60
    while status["outcome"] is None and time.monotonic() < deadline:
        time.sleep(1.0)
        status = json.loads(user.type("status", "long", "--json").stdout)
    assert (status["outcome"], status["state"]) == ("cancelled", "CANCELLED")
    for node in ("node01", "node02"):
        left = user.sandbox.exec(node, ["ps", "-eo", "args"]).stdout
        assert "ray" not in left and "agent" not in left, left
        assert (
            f"sm{os.getuid()}-{status['job_id']}"
            not in user.sandbox.exec(node, ["ls", "/tmp"]).stdout
        )


def test_a_run_id_used_again_has_an_attempt_of_its_own(user: User) -> None:
    first = command(user, "twice", "echo first; exit 7")
    code, one = user.submit(first, "--run-id", "twice")
    assert code == 5
    second = command(user, "twice", "echo second")
    code, two = user.submit(second, "--run-id", "twice")
    assert code == 0, two
    attempts = Path(two["run_dir"], "attempts")
    texts = {p.name: (p / "logs/driver.log").read_text() for p in attempts.iterdir()}
    assert texts == {f"{one['job_id']}.0": "first\n", f"{two['job_id']}.0": "second\n"}
    assert json.loads((attempts / f"{one['job_id']}.0/result.json").read_text())["exit_code"] == 5


def test_a_rendered_script_runs_without_submitit(user: User) -> None:
    recipe = command(user, "plain", "echo from a plain script; exit 7")
    script = user.runs / "job.sbatch"
    script.write_text(user.type("render", recipe, "--site", "sandbox").stdout)
    at_login = ["env", f"PYTHONPATH={ROOT}", "sbatch", "--wait", "--parsable", str(script)]
    sent = user.sandbox.exec("ctl", at_login, cwd=user.runs, timeout=120)
    job_id = sent.stdout.split()[0]
    assert user.slurm_state(job_id) == "FAILED 5:0"
    result = json.loads((user.runs / f"plain-{job_id}" / "result.json").read_text())
    assert (result["outcome"], result["driver_exit_code"]) == ("failed", 7)
    assert (user.runs / f"plain-{job_id}" / "ray.token").stat().st_mode & 0o777 == 0o600


def test_an_agent_that_is_killed_is_named_and_ends_the_run(user: User) -> None:
    recipe = command(user, "killed", "sleep 600")
    sent = user.type("submit", recipe, "--run-id", "killed", "--json")
    wait_for(user, "killed", "driver")
    run_dir = json.loads(sent.stdout)["run_dir"]
    victims = [
        p
        for p in psutil.process_iter(["cmdline"])
        if "slurmmiles.agent" in (p.info["cmdline"] or []) and run_dir in p.info["cmdline"]
    ]
    worker = [p for p in victims if p.environ().get("SLURM_NODEID") == "1"]
    os.kill(worker[-1].pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    status = json.loads(user.type("status", "killed", "--json").stdout)
    while status["outcome"] is None and time.monotonic() < deadline:
        time.sleep(1.0)
        status = json.loads(user.type("status", "killed", "--json").stdout)
    assert status["outcome"] == "failed"
    assert "node02" in status["sentence"]
    assert status["state"] == "FAILED"


def test_slurms_refusal_is_told_in_its_own_words_and_leaves_nothing(user: User) -> None:
    ended = user.type("submit", "tiny", "--set", "slurm.partition=nowhere")
    assert ended.returncode == 4
    assert "invalid partition specified: nowhere" in ended.stderr
    assert ended.stderr.startswith("Error: ") and ended.stderr.count("\n") == 1
    assert list(user.runs.iterdir()) == []


def test_tiny_learns_on_two_nodes(user: User) -> None:
    code, result = user.submit("tiny", "--nodes", "2", timeout=600)
    assert code == 0, result
    assert user.slurm_state(result["job_id"]) == "COMPLETED 0:0"
    metrics = result["metrics"]
    assert metrics["nodes"] == metrics["engine_nodes"] == ["node01", "node02"]
    assert metrics["logprob_diff_max"] < 1e-3
    assert metrics["reward_first"] < 0.25
    assert metrics["reward_last"] > 0.6


def test_the_time_limit_is_called_by_its_name(user: User) -> None:
    recipe = command(user, "limit", "sleep 600")
    code, result = user.submit(recipe, "--set", "slurm.time=00:01:00")
    assert code == 6
    assert result["outcome"] == "timed out"
    assert "time limit is 60 s" in result["reason"]
    assert user.slurm_state(result["job_id"]).startswith("TIMEOUT")
