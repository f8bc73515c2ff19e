"""Advantages, losses and batches against closed forms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import needs

needs("torch")

import torch  # noqa: E402

from trainer.advantage import group_advantages  # noqa: E402
from trainer.batch import grpo_batch, sft_batch  # noqa: E402
from trainer.loss import kl_loss, nll_loss, policy_loss  # noqa: E402
from trainer.types import Group, Sample  # noqa: E402

CLIPS = {"eps_clip": 0.2, "eps_clip_high": 0.28}


def test_advantages_of_two_rewards_are_plus_and_minus_one() -> None:
    assert group_advantages([0.0, 1.0]) == pytest.approx([-1.0, 1.0], abs=1e-5)
    assert group_advantages([1, 0, 0, 0]) == pytest.approx([3**0.5, *[-(3**-0.5)] * 3], abs=1e-4)


def test_equal_rewards_have_no_advantage() -> None:
    assert group_advantages([0.7, 0.7, 0.7]) == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=16))
def test_advantages_have_mean_zero_and_keep_the_order(rewards: list[float]) -> None:
    advantages = group_advantages(rewards)
    assert sum(advantages) == pytest.approx(0.0, abs=1e-3)
    order = sorted(range(len(rewards)), key=lambda i: rewards[i])
    ordered = [advantages[i] for i in order]
    assert ordered == sorted(ordered)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, 0),
        (1.2, 1.0, -1.2, -1.2, 0),  # below the upper clip of 1.28
        (1.5, 1.0, -1.28, 0.0, 1),
        (0.5, 1.0, -0.5, -0.5, 0),  # a good token that became rare is pulled back
        (0.5, -1.0, 0.8, 0.0, 1),
        (0.9, -1.0, 0.9, 0.9, 0),
        (1.5, -1.0, 1.5, 1.5, 0),  # a bad token that became likely is pushed down
    ],
)
def test_the_clipped_surrogate_of_one_token(
    ratio: float, advantage: float, loss: float, slope: float, clipped: int
) -> None:
    logprob = torch.tensor([[math.log(0.3 * ratio)]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[math.log(0.3)]], dtype=torch.float64)
    advantages = torch.tensor([advantage], dtype=torch.float64)
    value, count = policy_loss(logprob, old, advantages, torch.ones(1, 1), **CLIPS)
    value.backward()
    assert value.item() == pytest.approx(loss)
    assert logprob.grad.item() == pytest.approx(slope)  # = ratio x d loss / d ratio
    assert count.item() == clipped


def test_masked_tokens_give_neither_loss_nor_gradient() -> None:
    logprobs = torch.full((2, 3), -1.0, requires_grad=True)
    mask = torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    loss, _ = policy_loss(
        logprobs, torch.full((2, 3), -1.0), torch.tensor([1.0, -2.0]), mask, **CLIPS
    )
    loss.backward()
    assert loss.item() == pytest.approx(-2.0 + 2.0)
    assert logprobs.grad.tolist() == [[0.0, -1.0, -1.0], [0.0, 2.0, 0.0]]
    assert nll_loss(logprobs, mask).item() == pytest.approx(3.0)


def test_the_kl_estimate_is_exact_in_the_mean_over_the_policys_own_samples() -> None:
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    reference = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    each = [
        kl_loss(p.log().view(1, 1), r.log().view(1, 1), torch.ones(1, 1)).item()
        for p, r in zip(policy, reference, strict=True)
    ]
    assert min(each) >= 0.0
    mean = sum(p.item() * kl for p, kl in zip(policy, each, strict=True))
    assert mean == pytest.approx((policy * (policy / reference).log()).sum().item())
    assert kl_loss(policy.view(1, 3).log(), reference.view(1, 3).log(), torch.zeros(1, 3)) == 0.0


def sample(prompt: list[int], response: list[int], reward: float) -> Sample:
    logprobs = tuple(-0.1 * (i + 1) for i in range(len(response)))
    return Sample(tuple(prompt), tuple(response), logprobs, reward, correct=reward == 1.0)


def test_a_batch_pads_on_the_right_and_masks_exactly_the_responses() -> None:
    groups = [
        Group((sample([5, 6], [7, 1], 1.0), sample([5, 6], [7, 8, 9], 0.0))),
        Group((sample([5], [1], 0.5), sample([5], [2], 0.5))),
    ]
    batch = grpo_batch(groups)
    assert batch.tokens_BT.tolist() == [
        [5, 6, 7, 1, 0],
        [5, 6, 7, 8, 9],
        [5, 1, 0, 0, 0],
        [5, 2, 0, 0, 0],
    ]
    assert batch.loss_mask_BT.tolist() == [
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1],
        [0, 1, 0, 0, 0],
        [0, 1, 0, 0, 0],
    ]
    torch.testing.assert_close(
        batch.rollout_logprobs_BT[1], torch.tensor([0.0, 0.0, -0.1, -0.2, -0.3])
    )
    assert batch.advantages_B.tolist() == pytest.approx([1.0, -1.0, 0.0, 0.0], abs=1e-5)
    assert batch.rows(slice(1, None, 2)).tokens_BT[:, 0].tolist() == [5, 5]


def test_a_supervised_batch_trains_on_the_answers_only() -> None:
    batch = sft_batch([(2, 3), (2,)], [(4, 1), (5, 6, 1)])
    assert batch.tokens_BT.tolist() == [[2, 3, 4, 1], [2, 5, 6, 1]]
    assert batch.loss_mask_BT.tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]
