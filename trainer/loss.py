"""The losses, as sums over tokens: Megatron divides by the token count of the whole global batch.

That every token weighs the same is DAPO's token-level loss, arXiv:2503.14476, section 3.3.
"""

from __future__ import annotations

import torch
from torch import Tensor


def policy_loss(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    eps_clip: float,
    eps_clip_high: float,
) -> tuple[Tensor, Tensor]:
    """The clipped surrogate summed over masked tokens, and how many of them were clipped.

    -min(ratio A, clip(ratio, 1 - eps_clip, 1 + eps_clip_high) A), ratio = exp(logprob - old).
    Source: PPO, arXiv:1707.06347, equation 7; the higher upper clip is DAPO's, section 3.1.
    """
    ratio_BT = torch.exp(logprobs_BT - old_logprobs_BT)
    advantages_B1 = advantages_B.unsqueeze(1)
    plain_BT = -ratio_BT * advantages_B1
    clipped_BT = -ratio_BT.clamp(1.0 - eps_clip, 1.0 + eps_clip_high) * advantages_B1
    loss = (torch.maximum(plain_BT, clipped_BT) * mask_BT).sum()
    clipped = ((clipped_BT > plain_BT) * mask_BT).sum()
    return loss, clipped


def kl_loss(logprobs_BT: Tensor, reference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The low-variance, never negative estimate of KL(policy || reference), summed over tokens.

    exp(r - l) - (r - l) - 1. Source: GRPO, arXiv:2402.03300, equation 4 (Schulman's k3 estimator).
    """
    gap_BT = reference_BT - logprobs_BT
    return ((torch.exp(gap_BT) - gap_BT - 1.0) * mask_BT).sum()


def nll_loss(logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Negative log-likelihood summed over masked tokens (supervised fine-tuning)."""
    return -(logprobs_BT * mask_BT).sum()
