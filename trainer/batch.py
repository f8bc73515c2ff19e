"""From responses to the tensors that are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch

from trainer.advantage import group_advantages
from trainer.model_dir import PAD_ID
from trainer.types import Group, TrainBatch


def grpo_batch(groups: Sequence[Group]) -> TrainBatch:
    """All samples of `groups`, each with its advantage within its own group."""
    samples = list(chain.from_iterable(group.samples for group in groups))
    advantages = chain.from_iterable(
        group_advantages([sample.reward for sample in group.samples]) for group in groups
    )
    return _pad(
        prompts=[sample.prompt_ids for sample in samples],
        responses=[sample.response_ids for sample in samples],
        logprobs=[sample.rollout_logprobs for sample in samples],
        advantages=list(advantages),
    )


def sft_batch(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> TrainBatch:
    """Right answers to be imitated; log-probs and advantages are not used and zero."""
    return _pad(prompts, responses, [[0.0] * len(r) for r in responses], [0.0] * len(prompts))


def _pad(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]],
    advantages: Sequence[float],
) -> TrainBatch:
    length = max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True))
    shape = (len(prompts), length)
    tokens_BT = torch.full(shape, PAD_ID, dtype=torch.int64)
    mask_BT, logprobs_BT = torch.zeros(shape), torch.zeros(shape)
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        start, end = len(prompt), len(prompt) + len(response)
        tokens_BT[row, :end] = torch.tensor([*prompt, *response])
        mask_BT[row, start:end] = 1.0
        logprobs_BT[row, start:end] = torch.tensor(logprobs[row])
    return TrainBatch(
        tokens_BT=tokens_BT,
        loss_mask_BT=mask_BT,
        advantages_B=torch.tensor(advantages),
        rollout_logprobs_BT=logprobs_BT,
        old_logprobs_BT=torch.zeros(shape),
        ref_logprobs_BT=torch.zeros(shape),
    )
