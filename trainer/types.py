"""The values that flow through one step: problems -> samples -> groups -> one batch -> its metrics.

Shape suffixes: B samples, T tokens (prompt and response, padded on the right).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

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
    """Samples of one step, padded on the right to the longest; training fills in old and ref.

    Column t of a `_BT` tensor speaks of the token at position t; position 0 is never trained on.
    """

    tokens_BT: Tensor  # int64
    loss_mask_BT: Tensor  # float32, 1 on response tokens
    advantages_B: Tensor  # float32
    rollout_logprobs_BT: Tensor  # float32, SGLang's; 0 outside the mask
    old_logprobs_BT: Tensor  # float32, Megatron's before the step's first update
    ref_logprobs_BT: Tensor  # float32, under the reference weights, where there are any

    def rows(self, index: slice | Tensor) -> TrainBatch:
        """The samples at `index`."""
        return TrainBatch(*(getattr(self, field.name)[index] for field in fields(self)))

    def replace(self, **tensors: Tensor) -> TrainBatch:
        """The same samples with some tensors replaced."""
        return replace(self, **tensors)


@dataclass(frozen=True, slots=True)
class TrainStats:
    """What training says of one step: means over its response tokens, equal on every rank.

    `loss` includes the KL term; `grad_norm` is the last update's; `logprob_diff` is the mean
    |Megatron's log-prob - SGLang's| before the first update.
    """

    loss: float
    grad_norm: float
    kl: float
    clip_fraction: float
    logprob_diff: float


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
        parts = torch.split(whole, [int(np.prod(shape)) for shape in self.shapes])
        return [
            (name, part.view(shape))
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        ]
