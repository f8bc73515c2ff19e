"""The policy on one trainer rank: log-probs and optimizer updates through Megatron's schedules.

Shape suffixes as in `trainer.types`; V is the vocabulary shard of this tensor-parallel rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from megatron.core import parallel_state as mpu
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from torch import Tensor

from trainer.errors import TrainerError
from trainer.megatron import TrainerModel
from trainer.types import TrainBatch

# (log-probs of the tokens [B, T], their samples) -> summed loss, and sums to report [K]
LossFunction = Callable[[Tensor, TrainBatch], tuple[Tensor, Tensor]]
ForwardStep = Callable[[Iterator[TrainBatch], torch.nn.Module], tuple[Tensor, object]]


class Policy:
    """The model of this rank; each method is a collective call with batches of the same shape."""

    def __init__(self, model: TrainerModel, micro_batch_size: int, temperature: float) -> None:
        self.model = model
        self._micro = micro_batch_size
        self._temperature = temperature
        self._forward_backward = get_forward_backward_func()

    def log_probs(self, batch: TrainBatch) -> Tensor:
        """Log-prob of each token given those before it, [B, T], column 0 zero.

        All zero on pipeline stages before the last, which alone see the logits.
        """

        def step(parts: Iterator[TrainBatch], ddp: torch.nn.Module) -> tuple[Tensor, object]:
            part = next(parts)
            return self._logits(ddp, part), lambda logits, non_loss_data: self._gather(logits, part)

        with torch.no_grad():
            done: list[Tensor] = self._run(step, batch, forward_only=True)
        return torch.cat(done) if done else torch.zeros_like(batch.rollout_logprobs_BT)

    def update(self, batch: TrainBatch, loss: LossFunction, reported: int) -> tuple[Tensor, float]:
        """One optimizer step on `batch`, this data-parallel rank's samples.

        Returns the `reported` sums that `loss` gave, over the samples of all data-parallel ranks
        (zeros on stages before the last), and the gradient's global norm before clipping. Raises
        TrainerError when that is not finite; the weights are then lost.
        """
        self.model.ddp.zero_grad_buffer()
        self.model.optimizer.zero_grad()

        def step(parts: Iterator[TrainBatch], ddp: torch.nn.Module) -> tuple[Tensor, object]:
            part = next(parts)
            return self._logits(ddp, part), lambda logits: self._loss(logits, part, loss)

        done: list[Tensor] = self._run(step, batch, forward_only=False)
        _, norm, _ = self.model.optimizer.step()
        if not math.isfinite(norm):
            raise TrainerError(f"training: the gradient norm is {norm}, not a finite number")
        sums = torch.stack(done).sum(0) if done else torch.zeros(reported)
        torch.distributed.all_reduce(sums, group=mpu.get_data_parallel_group())
        return sums, norm

    def set_lr(self, lr: float) -> None:
        """Use `lr` from the next update on."""
        for group in self.model.optimizer.param_groups:
            group["lr"] = lr

    def _run(self, step: ForwardStep, batch: TrainBatch, *, forward_only: bool) -> list[Tensor]:
        """What `step`'s second function gave for each microbatch; empty before the last stage."""
        count, length = batch.tokens_BT.shape
        size = self._micro or count
        done: list[Tensor] = self._forward_backward(
            forward_step_func=step,
            data_iterator=(batch.rows(slice(i, i + size)) for i in range(0, count, size)),
            model=[self.model.ddp],
            num_microbatches=count // size,
            seq_length=length,
            micro_batch_size=size,
            forward_only=forward_only,
            collect_non_loss_data=forward_only,
        )
        return done

    @staticmethod
    def _logits(ddp: torch.nn.Module, part: TrainBatch) -> Tensor:
        """[B, T, V] on the last stage, else hidden states; causal, so right padding is not seen."""
        positions = torch.arange(part.tokens_BT.shape[1]).expand_as(part.tokens_BT)
        output: Tensor = ddp(input_ids=part.tokens_BT, position_ids=positions, attention_mask=None)
        return output

    def _gather(self, logits_BTV: Tensor, part: TrainBatch) -> Tensor:
        """Log-prob of each token of `part` at the rollout's temperature, [B, T], column 0 zero."""
        scaled_BTV = logits_BTV[:, :-1].float() / self._temperature
        nll_BT = vocab_parallel_cross_entropy(scaled_BTV.contiguous(), part.tokens_BT[:, 1:])
        return torch.nn.functional.pad(-nll_BT, (1, 0))

    def _loss(
        self, logits_BTV: Tensor, part: TrainBatch, loss: LossFunction
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Megatron's per-token protocol: summed loss, token count, what to report."""
        total, sums = loss(self._gather(logits_BTV, part), part)
        return total, part.loss_mask_BT.sum().to(torch.int), sums
