"""The driver's view of all trainer ranks: each method is one collective call of every rank."""

from __future__ import annotations

from pathlib import Path

import ray

from trainer.megatron import Rendezvous
from trainer.types import TrainBatch, TrainStats


class TrainerGroup:
    """Ranks in order; world rank i is actor i."""

    def __init__(self, ranks: list[ray.actor.ActorHandle]) -> None:
        self._ranks = ranks
        self.hosts: list[str] = []

    def build(self) -> None:
        """Let the ranks meet at rank 0 and build their models."""
        addresses = ray.get([rank.address.remote() for rank in self._ranks])
        self.hosts = [host for host, _, _ in addresses]
        _, ip, port = addresses[0]
        world = len(self._ranks)
        ray.get(
            [
                rank.build.remote(Rendezvous(ip, port, i, world))
                for i, rank in enumerate(self._ranks)
            ]
        )

    def sft(self, batch: TrainBatch, lr: float) -> float:
        """One supervised update; returns its mean loss."""
        return self._all("sft", ray.put(batch), lr)[0]

    def train(self, batch: TrainBatch, lr: float) -> TrainStats:
        """All updates of one step on `batch`."""
        return self._all("train", ray.put(batch), lr)[0]

    def export_weights(self) -> list[ray.ObjectRef]:
        """One reference per pipeline stage, in the object store of the node that holds the stage."""
        refs = [rank.export_weights.remote() for rank in self._ranks]
        return refs

    def save(self, directory: Path, step: int) -> None:
        self._all("save", directory, step)

    def load(self, directory: Path, step: int) -> None:
        self._all("load", directory, step)

    def _all(self, method: str, *args: object) -> list:
        return ray.get([getattr(rank, method).remote(*args) for rank in self._ranks])
