"""Save and resume through Megatron's distributed checkpoints, with a tracker file that is only ever whole.

A save is `dir/iter_0000012/` (all ranks write into it) and then `dir/latest_checkpointed_iteration.txt`, written
by rename. A crash before the rename leaves the tracker at the last complete save.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from megatron.core import dist_checkpointing

from trainer.errors import TrainerError
from trainer.megatron import TrainerModel

TRACKER = "latest_checkpointed_iteration.txt"  # Megatron-LM's name
# The only layout of the distributed optimizer that torch's Adam round-trips (no flattened ranges, no 'step' key).
METADATA = {"distrib_optim_sharding_type": "dp_reshardable"}


def iteration_dir(directory: Path, step: int) -> Path:
    """Where the state after `step` is."""
    return directory / f"iter_{step:07d}"


def latest_step(directory: Path) -> int | None:
    """The last completely saved step, None when nothing was saved; raises TrainerError for a broken tracker."""
    tracker = directory / TRACKER
    if not tracker.exists():
        return None
    text = tracker.read_text().strip()
    if not text.isdigit():
        raise TrainerError(f"{tracker}: holds {text!r}, not a step number")
    if not (iteration_dir(directory, int(text)) / "metadata.json").exists():
        raise TrainerError(f"{tracker}: names step {text}, but {iteration_dir(directory, int(text))} is not whole")
    return int(text)


def save(model: TrainerModel, directory: Path, step: int) -> None:
    """Save weights and optimizer after `step`; a collective call of all ranks, `directory` shared by them."""
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


def load(model: TrainerModel, directory: Path, step: int) -> None:
    """Load what `save` wrote at `step`; a collective call of all ranks."""
    state = dist_checkpointing.load(_state(model, loading=True), str(iteration_dir(directory, step)))
    model.ddp.module.load_state_dict(state["model"])
    model.optimizer.load_state_dict(state["optimizer"])


def _state(model: TrainerModel, *, loading: bool) -> dict[str, object]:
    weights = model.ddp.module.sharded_state_dict()
    optimizer = model.optimizer.sharded_state_dict(weights, is_loading=loading, metadata=METADATA)
    return {"model": weights, "optimizer": optimizer}
