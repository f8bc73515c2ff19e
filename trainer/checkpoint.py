"""Save and resume through Megatron's distributed checkpoints; the tracker names whole ones only.

A save is `dir/iter_0000012/`, written by all ranks, and then, by rename, the tracker
`dir/latest_checkpointed_iteration.txt`: a crash in between leaves it at the last complete save.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from megatron.core import dist_checkpointing

from trainer.errors import TrainerError
from trainer.megatron import TrainerModel

TRACKER = "latest_checkpointed_iteration.txt"  # Megatron-LM's name
# The only layout of the distributed optimizer that round-trips with torch's Adam (megatron-core
# 0.16.1): the default has flattened ranges, "fully_reshardable" misses the key 'step' on load.
METADATA = {"distrib_optim_sharding_type": "dp_reshardable"}


def iteration_dir(directory: Path, step: int) -> Path:
    """Where the state as of the end of `step` is."""
    return directory / f"iter_{step:07d}"


def latest_step(directory: Path) -> int | None:
    """The last complete save, None when there is none; raises TrainerError for a broken tracker."""
    tracker = directory / TRACKER
    if not tracker.exists():
        return None
    text = tracker.read_text().strip()
    if not text.isdigit():
        raise TrainerError(f"{tracker}: holds {text!r}, not a step number")
    saved = iteration_dir(directory, int(text))
    if not (saved / "metadata.json").exists():
        raise TrainerError(f"{tracker}: names step {text}, but {saved} is missing or not whole")
    return int(text)


def save(model: TrainerModel, directory: Path, step: int) -> None:
    """Save weights and optimizer as of the end of `step`; collective, `directory` shared by all."""
    target = iteration_dir(directory, step)
    if torch.distributed.get_rank() == 0:
        shutil.rmtree(target, ignore_errors=True)  # what a killed run left half-written
        target.mkdir(parents=True)
    torch.distributed.barrier()
    dist_checkpointing.save(_state(model, loading=False), str(target), content_metadata=METADATA)
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        partial = directory / f".{TRACKER}.partial"
        partial.write_text(str(step))
        partial.replace(directory / TRACKER)
    torch.distributed.barrier()  # every rank that returns can read it


def load(model: TrainerModel, directory: Path, step: int) -> None:
    """Load what `save` wrote at `step`; collective."""
    saved = iteration_dir(directory, step)
    state = dist_checkpointing.load(_state(model, loading=True), str(saved))
    model.ddp.module.load_state_dict(state["model"])
    with (
        torch.no_grad()
    ):  # float32 parameters are their own main copy, which it overwrites in place
        model.optimizer.load_state_dict(state["optimizer"])
    for group, states in _adam_states(model):
        # Megatron restores the update count in the group only; torch's Adam reads it per parameter,
        # and counts up in place, so each needs a tensor of its own.
        states["step"] = torch.tensor(float(group["step"]))


def _state(model: TrainerModel, *, loading: bool) -> dict[str, object]:
    list(_adam_states(model))  # allocates
    weights = model.ddp.module.sharded_state_dict()
    optimizer = model.optimizer.sharded_state_dict(weights, is_loading=loading, metadata=METADATA)
    return {"model": weights, "optimizer": optimizer}


def _adam_states(model: TrainerModel) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(parameter group, state) of every shard, allocated as torch's Adam does at its first update.

    Megatron reads the states to describe them to the checkpoint, so they must exist before that.
    """
    for chained in model.optimizer.chained_optimizers:
        adam = chained.optimizer
        for group in adam.param_groups:
            for shard in group["params"]:
                if not adam.state[shard]:
                    adam.state[shard] = {
                        "step": torch.tensor(0.0),
                        "exp_avg": torch.zeros_like(shard),
                        "exp_avg_sq": torch.zeros_like(shard),
                    }
                yield group, adam.state[shard]
