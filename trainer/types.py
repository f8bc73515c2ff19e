"""The values that flow through one step: problems -> samples -> groups -> one batch -> its metrics.

Shape suffixes: B samples, T tokens (prompt and response, padded on the right).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Problem:
    """A prompt and the one right answer, as text."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Generated:
    """One response: token ids and SGLang's log-prob of each under the weights that generated it."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


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

    Column t of a `_BT` tensor speaks of the token at position t; position 0 is never trained on.
    """

    tokens_BT: Tensor  # int64
    loss_mask_BT: Tensor  # float32, 1 on response tokens
    rollout_logprobs_BT: Tensor  # float32, 0 outside the mask
    advantages_B: Tensor  # float32

    def rows(self, index: slice | Tensor) -> TrainBatch:
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


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the ranks of one torch.distributed world meet, and which of them this process is."""

    host: str
    port: int
    rank: int
    world_size: int


@dataclass(frozen=True, slots=True)
class FlatWeights:
    """HF-named float32 tensors in one array, which Ray's object store hands over without a copy."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    flat: np.ndarray

    @classmethod
    def pack(cls, named: list[tuple[str, Tensor]]) -> FlatWeights:
        """From (name, tensor) pairs."""
        return cls(
            names=tuple(name for name, _ in named),
            shapes=tuple(tuple(tensor.shape) for _, tensor in named),
            flat=torch.cat([tensor.reshape(-1).float() for _, tensor in named]).numpy(),
        )

    @property
    def nbytes(self) -> int:
        return self.flat.nbytes

    def tensors(self) -> list[tuple[str, Tensor]]:
        """The (name, tensor) pairs; views of one writable copy."""
        whole = torch.from_numpy(self.flat.copy())
        parts = whole.split([int(np.prod(shape)) for shape in self.shapes])
        return [
            (name, part.view(shape))
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        ]
