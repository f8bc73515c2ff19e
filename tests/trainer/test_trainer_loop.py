"""The loop's small decisions: when to stop, what to refuse, how responses are graded."""

from __future__ import annotations

import math
from collections import deque

import pytest
from needs import needs

needs("torch", "ray", "tokenizers")

from worlds import make_config  # noqa: E402

from trainer.errors import TrainerError  # noqa: E402
from trainer.loop import check_agreement, checkpoint_is_due, learning_rate, reached  # noqa: E402
from trainer.model_dir import EOS_ID, PAD_ID, build_tokenizer  # noqa: E402
from trainer.prompts import Prompts  # noqa: E402
from trainer.tasks import ALPHABET  # noqa: E402
from trainer.types import Generated, Problem, TrainStats  # noqa: E402


def stats(logprob_diff: float) -> TrainStats:
    return TrainStats(0.0, 1.0, 0.0, 0.0, logprob_diff)


@pytest.mark.parametrize("diff", [1.1e-3, 5.0, math.inf, math.nan])
def test_halves_that_disagree_end_the_run_with_both_numbers(diff: float) -> None:
    with pytest.raises(TrainerError, match=r"logprob_diff is .*max_logprob_diff 1\.0e-03: "):
        check_agreement(stats(diff), 1e-3)


def test_halves_that_agree_within_the_bound_go_on() -> None:
    check_agreement(stats(1e-3), 1e-3)
    check_agreement(stats(0.0), 1e-3)


def test_the_target_must_hold_for_all_of_the_last_steps() -> None:
    rewards: deque[float] = deque(maxlen=3)
    seen = []
    for reward in (0.9, 0.9, 0.7, 0.8, 0.8, 0.9, 0.1):
        rewards.append(reward)
        seen.append(reached(rewards, 0.8))
    assert seen == [False, False, False, False, False, True, False]
    assert not reached(deque([1.0] * 3, maxlen=3), None)


def test_checkpoints_come_every_interval_and_at_the_end() -> None:
    config = make_config(checkpoint={"dir": "checkpoints", "interval": 3})
    due = [step for step in range(8) if checkpoint_is_due(config, step, last=step == 7)]
    assert due == [2, 5, 7]
    never = make_config(checkpoint={"dir": "checkpoints", "interval": 0})
    assert not checkpoint_is_due(never, 7, last=True)


def test_the_learning_rate_warms_up_linearly_and_stays() -> None:
    config = make_config(optimizer={"lr": 1.0, "lr_warmup_iters": 4})
    rates = [learning_rate(config, step) for step in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert learning_rate(make_config(optimizer={"lr": 0.5}), 0) == 0.5


def ids(text: str) -> tuple[int, ...]:
    return tuple(build_tokenizer(ALPHABET).encode(text).ids)


@pytest.mark.parametrize(
    ("response", "reward", "correct"),
    [
        ((*ids("472"), EOS_ID), 1.0, True),
        (ids("472"), 1.0, False),  # never ended
        ((*ids("4720"), EOS_ID), 3 / 4, False),
        ((EOS_ID,), 0.0, False),
        ((*ids("47"), PAD_ID, EOS_ID), 2 / 3, False),
        ((*ids("47"), 15, EOS_ID), 2 / 3, False),  # an id that no character has
        ((15, *ids("472"), EOS_ID), 0.0, False),  # and that still takes its place
    ],
)
def test_a_response_is_graded_by_its_characters_and_its_end(
    response: tuple[int, ...], reward: float, correct: bool
) -> None:
    prompts = Prompts(make_config(rollout={"n_samples_per_prompt": 2}))
    generated = Generated(response, tuple(0.0 for _ in response))
    (group,) = prompts.grade([Problem("472=", "472")], [generated, generated])
    for sample in group.samples:
        assert (sample.reward, sample.correct) == (pytest.approx(reward), correct)
        assert sample.prompt_ids == ids("472=")


def test_samples_of_a_problem_are_adjacent_and_grouped_again() -> None:
    config = make_config(rollout={"rollout_batch_size": 4, "n_samples_per_prompt": 2})
    prompts = Prompts(config)
    problems = prompts.problems(3)
    assert problems == Prompts(config).problems(3)
    assert problems != prompts.problems(4)
    requests = prompts.requests(problems)
    assert requests == [ids(p.prompt) for p in problems for _ in range(2)]
    responses = [Generated((*ids(str(i)), EOS_ID), (0.0, 0.0)) for i in range(8)]
    groups = prompts.grade(problems, responses)
    first = [[sample.response_ids[0] for sample in group.samples] for group in groups]
    assert first == [[*ids(f"{2 * i}{2 * i + 1}")] for i in range(4)]


def test_supervised_examples_are_the_right_answers_and_their_end() -> None:
    config = make_config(algorithm={"sft_steps": 1, "sft_batch_size": 4})
    batch = Prompts(config).supervised(0)
    assert batch.tokens_BT.shape == (4, 8)  # three digits, =, three digits, <eos>
    assert batch.tokens_BT[:, 4:7].equal(batch.tokens_BT[:, :3])
    assert batch.tokens_BT[:, 7].eq(EOS_ID).all()
    assert batch.loss_mask_BT.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]] * 4
