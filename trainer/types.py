"""The values that flow through one step: problems -> samples -> groups -> one batch -> its metrics.

Shape suffixes: B samples, T tokens (prompt and response, padded on the right).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Problem:
    """A prompt and the one right answer, as text."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One generated response: token ids, SGLang's own log-prob of each, and its reward."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    rollout_logprobs: tuple[float, ...]
    reward: float
    correct: bool


@dataclass(frozen=True, slots=True)
class Group:
    """All samples of one prompt."""

    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """All samples of one step, padded on the right to the longest.

    Column t of the `_BT` float tensors speaks of the token at position t; position 0 is never trained on.
    """

    tokens_BT: torch.Tensor  # int64
    loss_mask_BT: torch.Tensor  # float32, 1 on response tokens
    rollout_logprobs_BT: torch.Tensor  # float32, 0 outside the mask
    advantages_B: torch.Tensor  # float32

    def rows(self, index: slice | torch.Tensor) -> TrainBatch:
        """The samples at `index`."""
        return TrainBatch(
            self.tokens_BT[index],
            self.loss_mask_BT[index],
            self.rollout_logprobs_BT[index],
            self.advantages_B[index],
        )


@dataclass(frozen=True, slots=True)
class TrainStats:
    """What the training half of a step says: sums are over all samples of the step, on every rank alike."""

    loss: float
    grad_norm: float
    logprob_diff: float
    clip_fraction: float
