"""The frozen policy that GRPO's KL term pulls towards: a copy of the weights, no second model."""

from __future__ import annotations

from torch import Tensor

from trainer.policy import Policy
from trainer.types import TrainBatch


class Reference:
    """The weights of `policy` at construction; they replace its own only to compute log-probs."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._weights = [weight.detach().clone() for weight in policy.model.ddp.parameters()]

    def log_probs(self, batch: TrainBatch) -> Tensor:
        """As Policy.log_probs, under the reference weights."""
        weights = list(self._policy.model.ddp.parameters())
        current = [weight.detach().clone() for weight in weights]
        _overwrite(weights, self._weights)
        try:
            return self._policy.log_probs(batch)
        finally:
            _overwrite(weights, current)


def _overwrite(weights: list[Tensor], values: list[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.data.copy_(value)
