"""The rollout half on the cluster: one SGLang engine per node, each a Ray actor that owns its processes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from trainer.config import Config
from trainer.device import Device
from trainer.errors import TrainerError
from trainer.model_dir import EOS_ID, write_model_dir
from trainer.placement import ACTOR_CPUS, Node
from trainer.tasks import ALPHABET
from trainer.weight_sync import FlatWeights


@dataclass(frozen=True, slots=True)
class Generated:
    """One response: token ids and SGLang's log-prob of each under the weights that generated it."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class EngineActor:
    """Owns one `sglang.Engine`; its scheduler and detokenizer are children that die with this process."""

    def __init__(self, config: Config, device: Device, index: int) -> None:
        import socket

        import sglang

        rollout = config.rollout
        model_dir = config.work_dir / f"engine{index}"
        write_model_dir(model_dir, config.model, ALPHABET, rollout.context_length)
        self._host = socket.gethostname()
        self._sampling = {
            "temperature": rollout.temperature,
            "max_new_tokens": rollout.max_response_len,
            "stop_token_ids": [EOS_ID],
        }
        self._engine = sglang.Engine(
            model_path=str(model_dir),
            load_format="dummy",
            skip_tokenizer_init=True,
            context_length=rollout.context_length,
            mem_fraction_static=rollout.mem_fraction,
            random_seed=config.seed + index,
            log_level="error",
            **device.engine_args,
        )

    def host(self) -> str:
        """The node's host name; answers once the engine is up."""
        return self._host

    def generate(self, prompts: Sequence[Sequence[int]]) -> list[Generated]:
        """One sampled response per prompt, in order."""
        outputs = self._engine.generate(
            input_ids=[list(prompt) for prompt in prompts],
            sampling_params=self._sampling,
            return_logprob=True,
        )
        return [_generated(output["meta_info"]) for output in outputs]

    def release(self) -> None:
        """Give the memory of weights and KV cache back to the trainer (on CPU there is none to give)."""
        self._engine.release_memory_occupation()

    def resume(self) -> None:
        """Take the memory again; the weights are undefined until `update_weights`."""
        self._engine.resume_memory_occupation()

    def update_weights(self, *shares: FlatWeights | None) -> int:
        """Replace all weights by the union of `shares` (one per trainer rank, None from most); returns bytes.

        Raises TrainerError when SGLang refuses them.
        """
        stages = [share for share in shares if share is not None]
        named = [pair for stage in stages for pair in stage.tensors()]
        success, message = self._engine.update_weights_from_tensor(named)
        if not success:
            raise TrainerError(f"update_weights: SGLang on {self._host} refused: {message}")
        return sum(stage.nbytes for stage in stages)

    def shutdown(self) -> None:
        """End SGLang's processes."""
        self._engine.shutdown()


def _generated(meta: dict[str, Any]) -> Generated:
    logprobs, ids, _ = zip(*meta["output_token_logprobs"], strict=True)
    return Generated(tuple(ids), tuple(logprobs))


class Engines:
    """The driver's view of all engines."""

    def __init__(self, actors: list[ray.actor.ActorHandle], start_timeout_s: float) -> None:
        """Waits until every engine is up; raises TrainerError when one is not in time."""
        self._actors = actors
        try:
            self.hosts: list[str] = ray.get(
                [actor.host.remote() for actor in actors], timeout=start_timeout_s
            )
        except ray.exceptions.GetTimeoutError:
            raise TrainerError(
                f"rollout: an SGLang engine was not up after {start_timeout_s:g} s"
            ) from None

    def generate(self, prompts: list[tuple[int, ...]]) -> list[Generated]:
        """One response per prompt, in order; engine i takes the i-th contiguous share."""
        share = -(-len(prompts) // len(self._actors))
        parts = [prompts[i : i + share] for i in range(0, len(prompts), share)]
        refs = [
            actor.generate.remote(part) for actor, part in zip(self._actors, parts, strict=False)
        ]
        return [generated for part in ray.get(refs) for generated in part]

    def release(self) -> None:
        ray.get([actor.release.remote() for actor in self._actors])

    def resume(self) -> None:
        ray.get([actor.resume.remote() for actor in self._actors])

    def update_weights(self, shares: list[ray.ObjectRef]) -> int:
        """Hand every engine the weights that `shares` refer to; each node fetches them itself.

        Returns the bytes handed over to all engines together.
        """
        return sum(ray.get([actor.update_weights.remote(*shares) for actor in self._actors]))
