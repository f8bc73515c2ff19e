"""The driver's view of all SGLang engines: prompts are split over them, weights go to each."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.actors import Actor, Ref, call_all, wait_all
from trainer.types import Generated


class Engines:
    """One engine per node, in order of nodes."""

    def __init__(self, actors: list[Actor], start_timeout_s: float) -> None:
        """Waits until every engine is up; raises TrainerError when one is not in time."""
        self._actors = actors
        refs = [actor.call.remote("host") for actor in actors]
        self.hosts: list[str] = wait_all(refs, "starting SGLang", timeout=start_timeout_s)

    def generate(self, prompts: Sequence[tuple[int, ...]]) -> list[Generated]:
        """One response per prompt, in order; engine i takes the i-th contiguous share."""
        share = -(-len(prompts) // len(self._actors))
        refs = [
            actor.call.remote("generate", prompts[i * share : (i + 1) * share])
            for i, actor in enumerate(self._actors)
            if i * share < len(prompts)
        ]
        return [response for part in wait_all(refs, "generate") for response in part]

    def release(self) -> None:
        """Give weights' and cache's memory to the trainer."""
        call_all(self._actors, "release")

    def resume(self) -> None:
        """Take the memory back; `update_weights` must follow."""
        call_all(self._actors, "resume")

    def update_weights(self, shares: Sequence[Ref]) -> int:
        """Hand every engine the weights that `shares` refer to; each node fetches them itself.

        Returns the bytes handed over to all engines together.
        """
        return sum(call_all(self._actors, "update_weights", *shares))
