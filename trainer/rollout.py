"""The driver's view of all SGLang engines: prompts are split over them, weights go to each."""

from __future__ import annotations

import ray

from trainer.actors import call_all, wait_all
from trainer.errors import TrainerError
from trainer.types import Generated


class Engines:
    """The driver's view of all engines."""

    def __init__(self, actors: list[ray.actor.ActorHandle], start_timeout_s: float) -> None:
        """Waits until every engine is up; raises TrainerError when one is not in time."""
        self._actors = actors
        try:
            self.hosts: list[str] = call_all(actors, "host", timeout=start_timeout_s)
        except ray.exceptions.GetTimeoutError:
            raise TrainerError(
                f"rollout: an SGLang engine was not up after {start_timeout_s:g} s"
            ) from None

    def generate(self, prompts: list[tuple[int, ...]]) -> list[Generated]:
        """One response per prompt, in order; engine i takes the i-th contiguous share."""
        share = -(-len(prompts) // len(self._actors))
        parts = [prompts[i : i + share] for i in range(0, len(prompts), share)]
        refs = [
            actor.call.remote("generate", part) for actor, part in zip(self._actors, parts, strict=False)
        ]
        return [generated for part in wait_all(refs) for generated in part]

    def release(self) -> None:
        call_all(self._actors, "release")

    def resume(self) -> None:
        call_all(self._actors, "resume")

    def update_weights(self, shares: list[ray.ObjectRef]) -> int:
        """Hand every engine the weights that `shares` refer to; each node fetches them itself.

        Returns the bytes handed over to all engines together.
        """
        return sum(call_all(self._actors, "update_weights", *shares))
