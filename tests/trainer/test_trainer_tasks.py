"""The toy tasks: prompts come from seed and step, answers are right, scores are as claimed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import Data
from trainer.tasks import ALPHABET, make_task, problem_rng, score

TASKS = ["copy", "reverse", "addition"]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("digits", [1, 3, 8])
def test_answers_are_right_and_written_in_the_alphabet(name: str, digits: int) -> None:
    task = make_task(Data.model_validate({"task": name, "digits": digits}))
    rng = problem_rng(0, "grpo", 0)
    for _ in range(200):
        problem = task.draw(rng)
        question = problem.prompt.removesuffix("=")
        expected = {
            "copy": lambda text: text,
            "reverse": lambda text: "".join(reversed(text)),
            "addition": lambda text: f"{sum(map(int, text.split('+'))):0{digits + 1}d}",
        }[name](question)
        assert problem.answer == expected
        assert len(problem.answer) == task.answer_len
        assert set(problem.prompt + problem.answer) <= set(ALPHABET)
        assert score(problem.answer, problem.answer) == 1.0


@pytest.mark.parametrize("name", TASKS)
def test_problems_depend_on_seed_stage_and_step_alone(name: str) -> None:
    task = make_task(Data.model_validate({"task": name}))

    def draw(seed: int, stage: str, step: int) -> list[str]:
        rng = problem_rng(seed, stage, step)
        return [task.draw(rng).prompt for _ in range(20)]

    assert draw(1, "grpo", 5) == draw(1, "grpo", 5)
    others = [draw(1, "grpo", 6), draw(2, "grpo", 5), draw(1, "sft", 5), draw(15, "grpo", 0)]
    assert draw(1, "grpo", 5) not in others


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("472", 1.0),
        ("4", 1 / 3),
        ("", 0.0),
        ("479", 2 / 3),
        ("247", 0.0),
        ("4727", 3 / 4),
        ("472472", 1 / 2),
    ],
)
def test_the_score_is_the_share_of_right_positions(response: str, expected: float) -> None:
    assert score("472", response) == pytest.approx(expected)


@given(st.text("0123456789", min_size=1, max_size=6), st.text(ALPHABET, max_size=8))
def test_only_the_answer_itself_scores_one(answer: str, response: str) -> None:
    assert 0.0 <= score(answer, response) <= 1.0
    assert (score(answer, response) == 1.0) == (answer == response)
