"""Result arithmetic against a measured run: 32 H200, steps 5 to 19 of 128 rows of 8,192 tokens."""

from __future__ import annotations

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.economics import (
    gpu_hours,
    mfu,
    tokens_per_second_per_gpu,
    usd,
    usd_per_gpu_hour,
    usd_per_million_tokens,
    variation_percent,
    window_tokens,
)
from slurmmiles.errors import BadInput
from slurmmiles.parameters import count_parameters

CATALOG = Catalog((shipped("configs"),))
SPEED = 616.67


def test_the_window_of_steps_5_to_19_has_the_stated_tokens() -> None:
    assert window_tokens(5, 19, 128, 8192) == 15_728_640


def test_the_measured_speed_comes_from_tokens_seconds_and_gpus() -> None:
    seconds = 15_728_640 / SPEED / 32
    assert tokens_per_second_per_gpu(15_728_640, seconds, 32) == pytest.approx(SPEED)


def test_a_price_of_7_90_a_gpu_hour_is_3_56_for_a_million_tokens() -> None:
    assert round(usd_per_million_tokens(7.90, SPEED), 2) == 3.56


def test_the_price_that_a_result_implies_is_the_inverse() -> None:
    assert usd_per_gpu_hour(3.56, SPEED) == pytest.approx(7.90, abs=0.01)
    assert usd_per_million_tokens(usd_per_gpu_hour(3.56, SPEED) or 0, SPEED) == pytest.approx(3.56)


@pytest.mark.parametrize(("usd_per_million", "speed"), [(None, SPEED), (3.56, None), (0.0, SPEED)])
def test_a_result_without_a_price_or_a_speed_implies_none(
    usd_per_million: float | None, speed: float | None
) -> None:
    assert usd_per_gpu_hour(usd_per_million, speed) is None


def test_mfu_is_0_0418_for_the_stated_active_parameters_on_an_h200() -> None:
    peak = CATALOG.gpu("h200").bf16_tflops
    assert round(mfu(11_173_191_680, SPEED, peak), 4) == 0.0418


def test_the_stated_active_parameters_are_what_the_models_facts_count() -> None:
    assert count_parameters(CATALOG.model("inkling-small")).flops == 11_173_191_680


def test_step_times_that_are_equal_do_not_vary() -> None:
    assert variation_percent([2.0, 2.0, 2.0]) == 0.0


def test_variation_is_the_sample_standard_deviation_over_the_mean() -> None:
    assert variation_percent([1.0, 2.0, 3.0]) == pytest.approx(50.0)


def test_gpu_hours_and_their_price() -> None:
    assert gpu_hours(32, 1444.5) == pytest.approx(12.84)
    assert usd(12.84, 7.90) == pytest.approx(101.436)
    assert usd(12.84, None) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: tokens_per_second_per_gpu(1, 0, 8),
        lambda: tokens_per_second_per_gpu(1, 1, 0),
        lambda: usd_per_million_tokens(7.9, 0),
        lambda: mfu(1, 1, 0),
        lambda: variation_percent([1.0]),
        lambda: variation_percent([0.0, 0.0]),
        lambda: window_tokens(19, 5, 128, 8192),
        lambda: window_tokens(5, 19, 0, 8192),
    ],
)
def test_a_division_by_nothing_is_a_sentence(wrong: object) -> None:
    with pytest.raises(BadInput):
        wrong()  # type: ignore[operator]
