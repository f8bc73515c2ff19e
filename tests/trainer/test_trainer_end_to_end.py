"""The driver as a user runs it: real Ray, real Megatron ranks, a real SGLang engine.

One run, its resumption, and a run that is ended by a signal; after each, no process of it is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from needs import needs

needs("torch", "megatron", "sglang", "transformers", "ray")

ROOT = Path(__file__).parents[2]
MARK = "TRAINER_TEST_MARK"  # in the environment of the driver and so of all that it starts
RUN_TIMEOUT_S = 180.0
MODEL = {
    "num_layers": 2,
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 16,
}
LOGPROB_BOUND = 1e-5  # float32 on both sides; about 1e-7 is seen


@dataclass
class Driver:
    """One run of the driver in a directory of its own."""

    directory: Path
    config: dict[str, Any]

    def start(self, **algorithm: object) -> subprocess.Popen[str]:
        """Write trainer.json, with changes to its algorithm, and start the driver on it."""
        self.config["algorithm"] |= algorithm
        file = self.directory / "trainer.json"
        file.write_text(json.dumps(self.config))
        self.mark = uuid.uuid4().hex
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        return subprocess.Popen(
            [sys.executable, "-m", "trainer", "--config", str(file)],
            cwd=ROOT,
            env=clean | {MARK: self.mark, "RAY_ADDRESS": "local", "HOME": str(self.directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def metrics(self) -> list[dict[str, Any]]:
        lines = (self.directory / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def processes(self) -> list[psutil.Process]:
        """Every living process that carries the mark of the last start."""
        return [p for p in psutil.process_iter() if _environment(p).get(MARK) == self.mark]

    def leaves_nothing(self) -> bool:
        """Whether all processes of the run are gone, at most seconds after its driver."""
        deadline = time.monotonic() + 20
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.2)
        return self.processes() == []


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    directory = tmp_path_factory.mktemp("run")
    run = Driver(
        directory,
        {
            "run_id": "end-to-end",
            "metrics": str(directory / "metrics.jsonl"),
            "model": MODEL,
            "rollout": {"rollout_batch_size": 8, "n_samples_per_prompt": 4, "temperature": 0.8},
            "algorithm": {"num_rollout": 3, "max_logprob_diff": LOGPROB_BOUND, "sft_steps": 2},
            "checkpoint": {"dir": str(directory / "checkpoints"), "interval": 3},
            "work_dir": str(directory / "work"),
        },
    )
    yield run
    for process in run.processes():
        process.kill()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    try:
        out, err = process.communicate(timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate(timeout=60)
        raise AssertionError(f"no end after {RUN_TIMEOUT_S:g} s\n{out}\n{err}") from None
    return process.returncode, out, err


def test_three_steps_keep_both_halves_in_agreement_and_write_one_line_each(driver: Driver) -> None:
    code, out, err = finish(driver.start())
    assert code == 0, err
    lines = driver.metrics()
    assert [line["step"] for line in lines] == [0, 1, 2]
    for line in lines:
        assert 0.0 < line["logprob_diff"] < LOGPROB_BOUND  # compared, and equal but for rounding
        assert {"generate", "train", "update_weights", "total"} <= line["seconds"].keys()
        assert sum(line["seconds"].values()) <= 2.1 * line["seconds"]["total"]
        assert 0.0 <= line["reward_mean"] <= 1.0
        assert 32 <= line["tokens"] <= 32 * 4
        assert line["response_len_mean"] == pytest.approx(line["tokens"] / 32)
        assert line["nodes"] == line["engine_nodes"] == [os.uname().nodename]
        assert line["weight_sync_gb_per_s"] > 0
        assert line["grad_norm"] > 0
    assert out.count("step ") == 3
    assert "supervised warm-up: 2 steps" in out
    tracker = driver.directory / "checkpoints" / "latest_checkpointed_iteration.txt"
    assert tracker.read_text() == "2"
    assert driver.leaves_nothing()


def test_nothing_is_written_into_the_home(driver: Driver) -> None:
    kept = {"trainer.json", "metrics.jsonl", "checkpoints", "work"}
    assert {path.name for path in driver.directory.iterdir()} == kept  # HOME is this directory


def test_a_resumed_run_goes_on_and_one_whose_halves_disagree_ends_with_a_sentence(
    driver: Driver,
) -> None:
    code, out, err = finish(driver.start(num_rollout=5, max_logprob_diff=1e-12))
    assert "resumed at step 3" in out, err
    assert "supervised warm-up" not in out
    assert code == 1
    (sentence,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "algorithm.max_logprob_diff 1.0e-12" in sentence
    assert "Traceback" not in err
    lines = driver.metrics()
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert lines[3]["logprob_diff"] < LOGPROB_BOUND  # in truth the loaded weights do agree
    assert driver.leaves_nothing()


def test_a_signal_to_the_driver_ends_everything_that_it_started(driver: Driver) -> None:
    process = driver.start(num_rollout=1000, max_logprob_diff=LOGPROB_BOUND)
    try:
        assert process.stdout is not None
        seen = next((line for line in process.stdout if line.startswith("step ")), "")
        assert seen.startswith("step "), process.stderr and process.stderr.read()
        names = {p.name() for p in driver.processes()}
        assert any(name.startswith("sglang") for name in names), names
    finally:
        process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 128 + signal.SIGTERM, err
    assert driver.leaves_nothing()
