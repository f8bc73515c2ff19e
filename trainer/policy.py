"""The policy on one trainer rank: log-probs of given tokens, and optimizer updates, through Megatron's schedules.

Shape suffixes as in `trainer.types`; V is the vocabulary shard of this tensor-parallel rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from megatron.core import parallel_state as mpu
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from torch import Tensor

from trainer.errors import TrainerError
from trainer.megatron import TrainerModel
from trainer.types import TrainBatch

# Sums of one microbatch: loss, clipped tokens.
Sums = Tensor
LossFunction = Callable[[Tensor, TrainBatch, Tensor], tuple[Tensor, Sums]]


class Policy:
    """Wraps the model of this rank; every method is a collective call of all ranks with the same batch shape."""

    def __init__(self, model: TrainerModel, micro_batch_size: int, temperature: float) -> None:
        self.model = model
        self._micro = micro_batch_size
        self._temperature = temperature
        self._forward_backward = get_forward_backward_func()

    def log_probs(self, batch: TrainBatch) -> Tensor | None:
        """Log-prob of each token given those before it, [B, T], column 0 zero; None but on the last stage."""

        def step(iterator: Iterator[TrainBatch], ddp: torch.nn.Module) -> tuple[Tensor, object]:
            part = next(iterator)
            return self._logits(ddp, part), lambda logits, non_loss_data: self._gather(logits, part)

        with torch.no_grad():
            parts = self._run(step, batch, forward_only=True)
        return torch.cat(parts) if parts else None

    def update(self, batch: TrainBatch, old_BT: Tensor | None, loss: LossFunction) -> tuple[Sums, float]:
        """One optimizer step on `batch` (this data-parallel rank's samples).

        Returns the sums that `loss` gave, reduced over all samples of the global batch (zeros but on the
        last stage), and the gradient's global norm. Raises TrainerError when the gradient is not finite.
        """
        self.model.ddp.zero_grad_buffer()
        self.model.optimizer.zero_grad()
        rows = iter(range(0, len(batch.tokens_BT), self._micro_rows(batch)))

        def step(iterator: Iterator[TrainBatch], ddp: torch.nn.Module) -> tuple[Tensor, object]:
            part = next(iterator)
            start = next(rows)
            old = None if old_BT is None else old_BT[start : start + len(part.tokens_BT)]
            return self._logits(ddp, part), lambda logits: self._loss(logits, part, old, loss)

        sums = self._run(step, batch, forward_only=False)
        finite, norm, _ = self.model.optimizer.step()
        if not finite or norm is None or not torch.isfinite(torch.tensor(norm)):
            raise TrainerError(f"training: the gradient norm is {norm}, not a finite number")
        total = torch.stack(sums).sum(0) if sums else torch.zeros(2)
        torch.distributed.all_reduce(total, group=mpu.get_data_parallel_group())
        return total, float(norm)

    def set_lr(self, lr: float) -> None:
        """Use `lr` from the next update on."""
        for group in self.model.optimizer.param_groups:
            group["lr"] = lr

    def _run(self, step: object, batch: TrainBatch, *, forward_only: bool) -> list[Tensor]:
        size = self._micro_rows(batch)
        count, length = batch.tokens_BT.shape
        parts = (batch.rows(slice(start, start + size)) for start in range(0, count, size))
        return self._forward_backward(
            forward_step_func=step,
            data_iterator=parts,
            model=[self.model.ddp],
            num_microbatches=count // size,
            seq_length=length,
            micro_batch_size=size,
            forward_only=forward_only,
            collect_non_loss_data=forward_only,
        )

    def _micro_rows(self, batch: TrainBatch) -> int:
        return self._micro or len(batch.tokens_BT)

    @staticmethod
    def _logits(ddp: torch.nn.Module, part: TrainBatch) -> Tensor:
        """[B, T, V] on the last stage, hidden states on the others; causal, so padding on the right is unseen."""
        positions = torch.arange(part.tokens_BT.shape[1]).expand_as(part.tokens_BT)
        return ddp(input_ids=part.tokens_BT, position_ids=positions, attention_mask=None)

    def _gather(self, logits_BTV: Tensor, part: TrainBatch) -> Tensor:
        """Log-prob of each token of `part` at the rollout's temperature, [B, T], column 0 zero."""
        scaled_BTV = logits_BTV[:, :-1].float() / self._temperature
        nll_BT = vocab_parallel_cross_entropy(scaled_BTV.contiguous(), part.tokens_BT[:, 1:])
        return torch.nn.functional.pad(-nll_BT, (1, 0))

    def _loss(
        self, logits_BTV: Tensor, part: TrainBatch, old_BT: Tensor | None, loss: LossFunction
    ) -> tuple[Tensor, Tensor, Sums]:
        """Megatron's per-token protocol: summed loss, token count, what to report."""
        logprobs_BT = self._gather(logits_BTV, part)
        total, sums = loss(logprobs_BT, part, logprobs_BT.detach() if old_BT is None else old_BT)
        return total, part.loss_mask_BT.sum().to(torch.int), sums
