"""metrics.jsonl: one whole line per step, once per step, whatever interrupted the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer.metrics import MetricsFile, StepMetrics, Stopwatch


def step(number: int, reward: float = 0.5) -> StepMetrics:
    return StepMetrics(
        step=number,
        reward_mean=reward,
        reward_std=0.1,
        accuracy=0.25,
        logprob_diff=1e-7,
        loss=-0.01,
        grad_norm=1.5,
        kl=0.0,
        clip_fraction=0.0,
        seconds={"generate": 0.1, "train": 0.2, "update_weights": 0.01, "total": 0.4},
        tokens=100,
        tokens_per_s=250.0,
        response_len_mean=4.0,
        weight_sync_gb_per_s=0.5,
        nodes=["a", "a"],
        engine_nodes=["a"],
    )


def steps_and_rewards(path: Path) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["step"], line["reward_mean"]) for line in lines]


def test_each_step_is_in_the_file_as_soon_as_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "metrics.jsonl"
    file = MetricsFile(path, keep_before=0)
    assert path.read_text() == ""
    for number in range(3):
        file.write(step(number))
        assert len(path.read_text().splitlines()) == number + 1
    first = json.loads(path.read_text().splitlines()[0])
    assert first["seconds"]["total"] == 0.4
    assert first["nodes"] == ["a", "a"]
    assert "step    2  reward 0.500" in capsys.readouterr().out


def test_a_resumed_run_replaces_the_steps_that_it_repeats_and_a_half_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, keep_before=0)
    for number in range(4):
        file.write(step(number))
    with path.open("a") as killed:
        killed.write('{"step": 4, "rew')
    resumed = MetricsFile(path, keep_before=2)
    resumed.write(step(2, reward=0.9))
    assert steps_and_rewards(path) == [(0, 0.5), (1, 0.5), (2, 0.9)]


def test_a_fresh_start_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path, keep_before=0).write(step(0))
    MetricsFile(path, keep_before=0)
    assert path.read_text() == ""


def test_phases_add_up_within_the_total() -> None:
    watch = Stopwatch()
    for _ in range(2):
        with watch.phase("train"):
            sum(range(10_000))
    seconds = watch.seconds()
    assert set(seconds) == {"train", "total"}
    assert 0 < seconds["train"] <= seconds["total"]
