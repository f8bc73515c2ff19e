"""Real Megatron ranks against transformers: equal weights give equal log-probs and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from needs import needs

needs("torch", "megatron", "transformers")

import torch  # noqa: E402
from worlds import (  # noqa: E402
    MODEL,
    make_batch,
    make_config,
    reference_logprobs,
    reference_model,
    reference_weights,
    run_world,
)

from trainer.loss import policy_loss  # noqa: E402
from trainer.model_dir import vocab_size  # noqa: E402
from trainer.tasks import ALPHABET  # noqa: E402

if TYPE_CHECKING:
    from trainer.train_rank import TrainerRank
    from trainer.types import FlatWeights, TrainBatch, TrainStats

BOUND = 2e-5  # float32, weights ten times larger than at initialisation
LAYOUTS = [
    pytest.param({"tp": 1, "pp": 1}, 1, id="one-rank"),
    pytest.param({"tp": 1, "pp": 1}, 2, id="dp2"),
    pytest.param({"tp": 2, "pp": 1}, 2, id="tp2"),
    pytest.param({"tp": 1, "pp": 2}, 2, id="pp2"),
    pytest.param({"tp": 2, "pp": 2}, 4, id="tp2-pp2"),
]


def set_weights(rank: TrainerRank, weights: dict[str, torch.Tensor]) -> None:
    from trainer.weight_sync import import_weights

    import_weights(rank.policy.model, rank.config.model, weights)


def logprobs_and_weights(
    rank: TrainerRank, weights: dict[str, torch.Tensor], batch: TrainBatch
) -> tuple[torch.Tensor, FlatWeights | None]:
    set_weights(rank, weights)
    return rank.policy.log_probs(batch), rank.export_weights()


@pytest.mark.parametrize(("parallel", "ranks"), LAYOUTS)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_every_layout_gives_the_log_probs_of_transformers_and_exports_what_it_was_given(
    parallel: dict[str, int], ranks: int, tied: bool
) -> None:
    config = make_config(
        ranks=ranks,
        parallel=parallel,
        model=MODEL | {"tie_word_embeddings": tied},
        rollout={"temperature": 0.7},
        algorithm={"micro_batch_size": 2},
    )
    weights, batch = reference_weights(config), make_batch()
    with torch.no_grad():
        expected = reference_logprobs(reference_model(config), batch, temperature=0.7)

    results = run_world(config, logprobs_and_weights, weights, batch)

    seen = [logprobs for logprobs, _ in results if logprobs.any()]
    assert len(seen) == ranks // parallel["pp"]  # the ranks of the last stage
    for logprobs in seen:
        torch.testing.assert_close(logprobs, expected, atol=BOUND, rtol=0)
    exported = dict(pair for _, share in results if share for pair in share.tensors())
    assert exported.keys() == weights.keys()
    assert all(torch.equal(exported[name], weights[name]) for name in weights)


def one_step(
    rank: TrainerRank, weights: dict[str, torch.Tensor], batch: TrainBatch
) -> tuple[TrainStats, FlatWeights | None]:
    set_weights(rank, weights)
    return rank.train(batch, 1e-3), rank.export_weights()


@pytest.mark.parametrize(("parallel", "ranks"), LAYOUTS)
def test_a_grpo_step_moves_the_weights_as_plain_pytorch_does(
    parallel: dict[str, int], ranks: int
) -> None:
    config = make_config(
        ranks=ranks,
        parallel=parallel,
        optimizer={"weight_decay": 0.0, "clip_grad": 1.0},
        algorithm={"num_steps_per_rollout": 2, "micro_batch_size": 2},
        rollout={"rollout_batch_size": 4, "n_samples_per_prompt": 2},
    )
    batch = make_batch()
    model = reference_model(config)
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    batch = batch.replace(rollout_logprobs_BT=sglang_logprobs(model, batch))
    dp = ranks // (parallel["tp"] * parallel["pp"])
    loss, norm = plain_pytorch_step(model, batch, updates=2, dp=dp)

    results = run_world(config, one_step, start, batch)

    for stats, _ in results:
        assert stats.loss == pytest.approx(loss, abs=1e-5)
        assert stats.grad_norm == pytest.approx(norm, rel=1e-3)
        assert stats.logprob_diff == pytest.approx(0.25, abs=1e-4)
    moved = dict(pair for _, share in results if share for pair in share.tensors())
    for name, weight in model.named_parameters():
        # Adam's first steps are lr x sign(gradient): leave out where that is rounding noise.
        change = (weight - start[name]).detach()
        clear = change.abs() > 5e-4
        assert clear.float().mean() > 0.5 or "embed" in name
        torch.testing.assert_close(
            (moved[name] - start[name])[clear], change[clear], atol=2e-5, rtol=0
        )


def sglang_logprobs(model: torch.nn.Module, batch: TrainBatch) -> torch.Tensor:
    """Log-probs that are off by 0.25 on each response token, up and down in turn."""
    with torch.no_grad():
        exact = reference_logprobs(model, batch)
    signs = torch.tensor([0.25, -0.25]).repeat(exact.numel())[: exact.numel()]
    return (exact + signs.view_as(exact)) * batch.loss_mask_BT


def plain_pytorch_step(
    model: torch.nn.Module, batch: TrainBatch, *, updates: int, dp: int
) -> tuple[float, float]:
    """The step without Megatron: mean loss over its tokens, gradient norm of the last update."""
    adam = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.0
    )
    with torch.no_grad():
        old = reference_logprobs(model, batch)
    total, norm = 0.0, torch.zeros(())
    for rows in rows_of_updates(len(batch.tokens_BT), updates, dp):
        part = batch.rows(rows)
        loss, _ = policy_loss(
            reference_logprobs(model, part),
            old[rows],
            part.advantages_B,
            part.loss_mask_BT,
            eps_clip=0.2,
            eps_clip_high=0.28,
        )
        adam.zero_grad()
        (loss / part.loss_mask_BT.sum()).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        total += loss.item()
    return total / batch.loss_mask_BT.sum().item(), norm.item()


def rows_of_updates(samples: int, updates: int, dp: int) -> list[torch.Tensor]:
    """Which samples each update sees: the u-th part of each rank's, rank r has r, r + dp, ..."""
    shares = [torch.arange(rank, samples, dp).chunk(updates) for rank in range(dp)]
    return [torch.cat(parts) for parts in zip(*shares, strict=True)]


def initial_logprobs(rank: TrainerRank, batch: TrainBatch) -> torch.Tensor:
    return rank.policy.log_probs(batch)


def test_random_weights_depend_on_the_seed_and_start_near_the_uniform_distribution() -> None:
    batch = make_batch()
    (zero,), (again,), (one,) = (
        run_world(make_config(seed=seed), initial_logprobs, batch) for seed in (0, 0, 1)
    )
    assert torch.equal(zero, again)
    assert not torch.equal(zero, one)
    uniform = -torch.tensor(float(vocab_size(ALPHABET))).log()
    assert (zero[:, 1:].mean() - uniform).abs() < 0.05


def supervised_losses(rank: TrainerRank, batch: TrainBatch) -> list[float]:
    return [rank.sft(batch, 1e-2) for _ in range(20)]


def test_supervised_updates_learn_one_batch_by_heart() -> None:
    config = make_config(ranks=2)
    losses = run_world(config, supervised_losses, make_batch())
    assert losses[0] == losses[1]
    assert losses[0][0] == pytest.approx(2.77, abs=0.1)  # ln 16
    assert losses[0][-1] < 1.0


def kl_of_two_steps(rank: TrainerRank, batch: TrainBatch) -> tuple[list[TrainStats], bool]:
    """Statistics of two steps, and whether the reference left the weights as they were."""
    rank.keep_reference()
    before = [weight.detach().clone() for weight in rank.policy.model.ddp.parameters()]
    log_probs = rank.policy.log_probs(batch)
    assert rank._reference is not None
    same = torch.equal(rank._reference.log_probs(batch), log_probs)
    after = rank.policy.model.ddp.parameters()
    kept = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return [rank.train(batch, 1e-2) for _ in range(2)], same and kept


@pytest.mark.parametrize(("parallel", "ranks"), [LAYOUTS[0], LAYOUTS[3]])
def test_the_kl_term_is_zero_at_the_reference_and_grows_as_the_policy_leaves_it(
    parallel: dict[str, int], ranks: int
) -> None:
    config = make_config(
        ranks=ranks,
        parallel=parallel,
        algorithm={"kl_loss_coef": 0.5},
        rollout={"rollout_batch_size": 4, "n_samples_per_prompt": 2},
    )
    for (first, second), unchanged in run_world(config, kl_of_two_steps, make_batch()):
        assert unchanged
        assert first.kl == 0.0
        assert second.kl > 1e-4
