"""One SGLang engine, in a process of its own (a Ray actor) that owns the engine's processes."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import sglang

from trainer.config import Config
from trainer.device import Device
from trainer.errors import TrainerError
from trainer.model_dir import EOS_ID, write_model_dir
from trainer.tasks import ALPHABET
from trainer.types import FlatWeights, Generated


class Engine:
    """Owns one `sglang.Engine`: its scheduler and detokenizer die with this process (prctl)."""

    def __init__(self, config: Config, device: Device, index: int) -> None:
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
        # SGLang collects garbage at every cache flush, so twice a step, and walks all that its
        # imports made each time: 0.36 s a flush, 0.001 s once those are frozen (2-core machine).
        self._engine.freeze_gc()

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
        """Give weights' and cache's memory to the trainer (on a CPU SGLang frees none)."""
        self._engine.release_memory_occupation()

    def resume(self) -> None:
        """Take the memory back; the weights are undefined until `update_weights`."""
        self._engine.resume_memory_occupation()

    def update_weights(self, *shares: FlatWeights | None) -> int:
        """Replace all weights by the union of `shares`, one per trainer rank and None from most.

        Returns the bytes handed over; raises TrainerError when SGLang refuses them.
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
