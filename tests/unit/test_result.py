from __future__ import annotations

import math

import pytest

from slurmmiles.result import Outcome, Phase, summarise

EXIT_CODES = {"completed": 0, "unfit": 3, "failed": 5, "timed out": 6, "cancelled": 6}


def test_every_outcome_has_the_exit_code_of_the_contract() -> None:
    assert {o.value: o.exit_code for o in Outcome} == EXIT_CODES


def test_the_phases_are_in_the_order_of_a_run() -> None:
    order = ["start", "join", "preflight", "driver", "teardown", "done"]
    assert [p.value for p in Phase] == order


def test_the_summary_is_the_last_step_with_the_rise_and_the_worst_difference() -> None:
    records = [{"step": i, "reward_mean": i / 10, "logprob_diff": 0.5 - i / 100} for i in range(10)]
    summary = summarise(records)
    assert (summary["step"], summary["reward_mean"]) == (9, 0.9)
    assert summary["reward_first"] == pytest.approx(0.2)
    assert summary["reward_last"] == pytest.approx(0.7)
    assert summary["logprob_diff_max"] == 0.5


def test_a_run_of_one_step_and_a_run_of_none_have_a_summary() -> None:
    assert summarise([]) == {}
    assert summarise([{"step": 0}]) == {"step": 0}
    one = summarise([{"reward_mean": 1, "logprob_diff": 0}])
    assert (one["reward_first"], one["reward_last"], one["logprob_diff_max"]) == (1, 1, 0)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_difference_of_nan_is_the_worst_one(at: int) -> None:
    differences = [0.1, 0.2]
    differences.insert(at, math.nan)
    assert math.isnan(summarise([{"logprob_diff": d} for d in differences])["logprob_diff_max"])


@pytest.mark.parametrize("value", [None, "0.5", [1], {}, True])
def test_what_is_no_number_does_not_end_the_run(value: object) -> None:
    records = [{"reward_mean": 0.5, "logprob_diff": 0.1}]
    records.append({"reward_mean": value, "logprob_diff": value})  # type: ignore[dict-item]
    summary = summarise(records)
    assert (summary["reward_first"], summary["logprob_diff_max"]) == (0.5, 0.1)
