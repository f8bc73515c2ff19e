"""The driver's view of all trainer ranks: each method is one collective call of every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray

from trainer.actors import Actor, Ref, call_all, wait_all
from trainer.errors import TrainerError
from trainer.types import Rendezvous, TrainBatch, TrainStats


class TrainerGroup:
    """Ranks in order: world rank i is actor i."""

    def __init__(self, ranks: list[Actor]) -> None:
        """Lets the ranks meet at rank 0 and build their models."""
        self._ranks = ranks
        addresses = wait_all(
            [rank.call.remote("address") for rank in ranks], "starting the trainer ranks"
        )
        _, ip, port = addresses[0]
        self.hosts: list[str] = [host for host, _, _ in addresses]
        meet = [Rendezvous(ip, port, i, len(ranks)) for i in range(len(ranks))]
        refs = [rank.call.remote("build", at) for rank, at in zip(ranks, meet, strict=True)]
        self.parameters: list[int] = wait_all(refs, "building the model")

    def sft(self, batch: TrainBatch, lr: float) -> float:
        """One supervised update; returns its mean loss."""
        loss: float = self._all("sft", ray.put(batch), lr)[0]
        return loss

    def keep_reference(self) -> None:
        """From now on the KL term pulls towards the weights of this moment."""
        self._all("keep_reference")

    def train(self, batch: TrainBatch, lr: float) -> TrainStats:
        """All updates of one step on `batch`."""
        stats: TrainStats = self._all("train", ray.put(batch), lr)[0]
        return stats

    def export_weights(self) -> list[Ref]:
        """One reference per rank, in its node's object store: a stage's HF weights, or None."""
        return [rank.call.remote("export_weights") for rank in self._ranks]

    def save(self, directory: Path, step: int) -> None:
        """Save weights and optimizer as of the end of `step`."""
        self._all("save", directory, step)

    def latest_step(self, directory: Path) -> int | None:
        """The last whole checkpoint in `directory`, None when there is none.

        Raises TrainerError when ranks do not see the same one.
        """
        seen = set(self._all("latest_step", directory))
        if len(seen) > 1:
            steps = ", ".join(sorted(map(str, seen)))
            raise TrainerError(f"checkpoint.dir {directory} is not shared: ranks see steps {steps}")
        step: int | None = seen.pop()
        return step

    def load(self, directory: Path, step: int) -> None:
        """Load weights and optimizer as `save` wrote them at `step`."""
        self._all("load", directory, step)

    def _all(self, method: str, *args: object) -> list[Any]:
        return call_all(self._ranks, method, *args)
