"""Runs on this machine without Slurm: the same agents, gate, Ray and driver."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from slurmmiles import shell

ROOT = Path(__file__).parents[2]
COMMAND = """
description: a driver of one line
driver:
  entry: command
  argv: [bash, -c, {script}]
slurm: {{nodes: 1, gpus_per_node: 0}}
"""


def type_(runs: Path, *words: str, **env: str) -> shell.Completed:
    """`slurmmiles WORDS` in a process of its own."""
    mine = {**os.environ, "SLURMMILES_RUNS": str(runs), "PYTHONPATH": str(ROOT), **env}
    argv = [sys.executable, "-m", "slurmmiles", *words]
    return shell.run(argv, timeout=240, env=mine, cwd=runs)


def submit(runs: Path, *words: str, **env: str) -> tuple[int, dict[str, Any]]:
    ended = type_(runs, "submit", *words, "--local", "--wait", "--json", **env)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def recipe(runs: Path, script: str) -> str:
    path = runs / "one-line.yaml"
    path.write_text(COMMAND.format(script=json.dumps(script)))
    return str(path)


def ours(run_dir: str) -> list[str]:
    """Command lines of living processes that have this run's token in their environment."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        try:
            environ = process.environ()
        except psutil.Error:
            continue
        if environ.get("RAY_AUTH_TOKEN_PATH", "").startswith(run_dir):
            found.append(" ".join(process.info["cmdline"] or [process.info["status"]]))
    return found


def test_two_simulated_nodes_join_and_the_driver_sees_both(tmp_path: Path) -> None:
    code, result = submit(tmp_path, "gate-check", "--nodes", "2", "--gpus-per-node", "4")
    assert code == 0, result
    assert result["nodes"] == ["local1", "local2"]
    log = Path(result["run_dir"], "latest/logs/driver.log").read_text()
    assert "2 nodes and 8 GPUs are registered" in log
    assert ours(result["run_dir"]) == []


def test_the_users_home_is_not_touched_and_the_token_is_the_runs_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    script = 'ls -A "$HOME"; test "$(stat -c %a "$RAY_AUTH_TOKEN_PATH")" = 600 && echo private'
    code, result = submit(tmp_path, recipe(tmp_path, script), HOME=str(home))
    assert code == 0, result
    assert Path(result["run_dir"], "latest/logs/driver.log").read_text() == "private\n"
    assert list(home.iterdir()) == []


def test_a_secret_of_the_shell_reaches_the_driver_and_no_file(tmp_path: Path) -> None:
    secret = "wandb-secret-4711"
    script = 'test "$WANDB_API_KEY" = "$(echo wandb-secret)-4711" && echo it is here'
    code, result = submit(tmp_path, recipe(tmp_path, script), WANDB_API_KEY=secret)
    assert code == 0, result
    assert Path(result["run_dir"], "latest/logs/driver.log").read_text() == "it is here\n"
    for path in Path(result["run_dir"]).rglob("*"):
        assert not path.is_file() or secret not in path.read_text(errors="replace"), path


def test_cancel_ends_a_local_run_and_all_that_it_started(tmp_path: Path) -> None:
    sent = type_(tmp_path, "submit", recipe(tmp_path, "sleep 600"), "--local", "--json")
    run = json.loads(sent.stdout)
    deadline = time.monotonic() + 60
    while json.loads(type_(tmp_path, "status", "--json").stdout)["phase"] != "driver":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert type_(tmp_path, "cancel", run["run_id"]).returncode == 0
    while (status := json.loads(type_(tmp_path, "status", "--json").stdout))["outcome"] is None:
        assert time.monotonic() < deadline + 60
        time.sleep(0.5)
    assert (status["outcome"], status["exit_code"]) == ("cancelled", 6)
    assert ours(run["run_dir"]) == []
    assert not Path(f"/tmp/sm{os.getuid()}-{run['job_id']}").exists()


@pytest.mark.skipif(
    not all(find_spec(name) for name in ("torch", "megatron", "sglang")),
    reason="the trainer's packages are not installed",
)
def test_tiny_trains_and_rolls_out_on_this_machine(tmp_path: Path) -> None:
    code, result = submit(tmp_path, "tiny", "--set", "algorithm.num_rollout=3")
    assert code == 0, result
    metrics = result["metrics"]
    assert metrics["step"] == 2
    assert 0.0 <= metrics["reward_mean"] <= 1.0
    assert metrics["logprob_diff_max"] < 1e-3
    assert ours(result["run_dir"]) == []
