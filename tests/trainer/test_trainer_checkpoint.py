"""A run that was saved and loaded goes on exactly as one that never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from needs import needs

needs("torch", "megatron")

import torch  # noqa: E402
from worlds import make_batch, make_config, run_world  # noqa: E402

if TYPE_CHECKING:
    from trainer.train_rank import TrainerRank
    from trainer.types import FlatWeights, TrainStats

TRACKER = "latest_checkpointed_iteration.txt"
LAYOUTS = [
    pytest.param({"tp": 1, "pp": 1}, 2, id="dp2"),
    pytest.param({"tp": 2, "pp": 1}, 2, id="tp2"),
    pytest.param({"tp": 1, "pp": 2}, 2, id="pp2"),
]
ALGORITHM = {"num_steps_per_rollout": 2}
ROLLOUT = {"rollout_batch_size": 4, "n_samples_per_prompt": 2}

Steps = list["TrainStats"]


def train(
    rank: TrainerRank, directory: Path, steps: range, *, load: int | None, save: int | None
) -> tuple[Steps, FlatWeights | None]:
    """Steps of GRPO on batches that are a function of the step, after loading and before saving."""
    if load is not None:
        assert rank.latest_step(directory) == load
        rank.load(directory, load)
    stats = [rank.train(make_batch(seed=step), 1e-3) for step in steps]
    if save is not None:
        rank.save(directory, save)
    return stats, rank.export_weights()


@pytest.mark.parametrize(("parallel", "ranks"), LAYOUTS)
def test_a_resumed_run_equals_an_uninterrupted_one_to_the_last_bit(
    parallel: dict[str, int], ranks: int, tmp_path: Path
) -> None:
    config = make_config(ranks=ranks, parallel=parallel, algorithm=ALGORITHM, rollout=ROLLOUT)

    def run(steps: range, load: int | None, save: int | None) -> list:
        return run_world(config, train_steps, tmp_path, steps, load, save)

    whole = run(range(4), None, None)
    run(range(2), None, 1)
    resumed = run(range(2, 4), 1, None)

    for (all_stats, weights), (late_stats, late_weights) in zip(whole, resumed, strict=True):
        assert late_stats == all_stats[2:]
        assert (weights is None) == (late_weights is None)
        if weights is not None:
            assert weights.names == late_weights.names
            assert (weights.flat == late_weights.flat).all()


def train_steps(
    rank: TrainerRank, directory: Path, steps: range, load: int | None, save: int | None
) -> tuple[Steps, FlatWeights | None]:
    return train(rank, directory, steps, load=load, save=save)


def test_a_checkpoint_of_two_data_parallel_ranks_loads_on_one(tmp_path: Path) -> None:
    two = make_config(ranks=2, algorithm=ALGORITHM, rollout=ROLLOUT)
    one = make_config(ranks=1, algorithm=ALGORITHM, rollout=ROLLOUT)
    run_world(two, train_steps, tmp_path, range(2), None, 1)
    (_, weights), _ = run_world(two, train_steps, tmp_path, range(2, 3), 1, None)
    ((_, alone),) = run_world(one, train_steps, tmp_path, range(2, 3), 1, None)
    # The two sum gradients in another order, and Adam turns rounding into steps of up to lr.
    assert abs(weights.flat - alone.flat).mean() < 1e-6


def save_twice_then_half(rank: TrainerRank, directory: Path) -> tuple[int | None, ...]:
    """What the tracker says: before a save, after two, beside a cut-off third, after it."""
    from trainer.checkpoint import iteration_dir

    before = rank.latest_step(directory)
    rank.save(directory, 4)
    rank.save(directory, 9)
    after = rank.latest_step(directory)
    if torch.distributed.get_rank() == 0:
        half = iteration_dir(directory, 14)
        half.mkdir()
        (half / "common.pt").write_bytes(b"half")
    torch.distributed.barrier()
    with_half = rank.latest_step(directory)
    rank.save(directory, 14)  # over the half-written one
    rank.load(directory, 14)
    return before, after, with_half, rank.latest_step(directory)


def test_the_tracker_names_the_last_whole_save_only(tmp_path: Path) -> None:
    results = run_world(make_config(ranks=2), save_twice_then_half, tmp_path)
    assert results == [(None, 9, 9, 14)] * 2
    assert (tmp_path / TRACKER).read_text() == "14"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "iter_0000004",
        "iter_0000009",
        "iter_0000014",
        TRACKER,
    ]


def tracker_error(rank: TrainerRank, directory: Path) -> str:
    from trainer.errors import TrainerError

    with pytest.raises(TrainerError) as caught:
        rank.latest_step(directory)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("", "holds '', not a step number"), ("7", "names step 7, but")],
    ids=["empty", "missing-directory"],
)
def test_a_broken_tracker_is_an_error_not_a_fresh_start(
    text: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / TRACKER).write_text(text)
    (message,) = run_world(make_config(), tracker_error, tmp_path)
    assert sentence in message
    assert TRACKER in message
