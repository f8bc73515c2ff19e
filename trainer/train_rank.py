"""One rank of the training half, in a process of its own (a Ray actor)."""

from __future__ import annotations

import contextlib
import functools
import socket
from pathlib import Path

import ray
import torch
from megatron.core import parallel_state as mpu
from torch import Tensor

from trainer import checkpoint, megatron, weight_sync
from trainer.config import Config
from trainer.device import Device
from trainer.loss import nll_loss, policy_loss
from trainer.policy import Policy
from trainer.types import FlatWeights, Rendezvous, TrainBatch, TrainStats


class TrainerRank:
    """Methods are collective: the driver's TrainerGroup calls them on all ranks at once."""

    def __init__(self, config: Config, device: Device, threads: int) -> None:
        self.config, self._device = config, device
        self._session = contextlib.ExitStack()
        self._session.enter_context(device.session())
        torch.set_num_threads(threads)

    def address(self) -> tuple[str, str, int]:
        """(host name, IP address as Ray knows it, a port that is free now)."""
        ip = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((ip, 0))
            return socket.gethostname(), ip, probe.getsockname()[1]

    def build(self, at: Rendezvous) -> int:
        """Join the world and build the model; returns its parameter count on this rank."""
        config = self.config
        megatron.join_world(at, config.parallel, self._device, config.seed)
        model = megatron.build(config, self._device)
        self.policy = Policy(
            model, config.algorithm.micro_batch_size, config.rollout.temperature
        )
        return sum(p.numel() for p in model.ddp.parameters())

    def sft(self, batch: TrainBatch, lr: float) -> float:
        """One supervised update; returns the mean negative log-likelihood of the trained tokens."""
        self.policy.set_lr(lr)
        sums, _ = self.policy.update(self._mine(batch), None, _sft_loss)
        return _from_last_stage(sums / batch.loss_mask_BT.sum())[0].item()

    def train(self, batch: TrainBatch, lr: float) -> TrainStats:
        """All updates of one step. Old log-probs are Megatron's own, taken before the first update."""
        self.policy.set_lr(lr)
        mine = self._mine(batch)
        old_BT = self.policy.log_probs(mine)
        diff = self._logprob_diff(mine, old_BT) / batch.loss_mask_BT.sum()
        algorithm = self.config.algorithm
        loss = functools.partial(
            _grpo_loss, eps_clip=algorithm.eps_clip, eps_clip_high=algorithm.eps_clip_high
        )
        sums, norm = torch.zeros(2), 0.0
        size = self.config.samples_per_update
        for start in range(0, len(mine.tokens_BT), size):
            rows = slice(start, start + size)
            old = None if old_BT is None else old_BT[rows]
            update_sums, norm = self.policy.update(mine.rows(rows), old, loss)
            sums += update_sums
        mean = sums / batch.loss_mask_BT.sum()
        loss_mean, clipped, diff_mean = _from_last_stage(torch.cat([mean, diff])).tolist()
        return TrainStats(loss_mean, norm, diff_mean, clipped)

    def export_weights(self) -> FlatWeights | None:
        """This stage's weights under their HF names, from its first rank; None from the others."""
        return weight_sync.export_weights(self.policy.model, self.config.model)

    def latest_step(self, directory: Path) -> int | None:
        """The last whole checkpoint in `directory` as this rank's node sees it."""
        return checkpoint.latest_step(directory)

    def save(self, directory: Path, step: int) -> None:
        """Save weights and optimizer as of the end of `step`."""
        checkpoint.save(self.policy.model, directory, step)

    def load(self, directory: Path, step: int) -> None:
        """Load what `save` wrote."""
        checkpoint.load(self.policy.model, directory, step)

    def _mine(self, batch: TrainBatch) -> TrainBatch:
        """Every dp-th sample: neighbours are samples of one prompt, so each rank sees all prompts."""
        rank, world = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
        return batch.rows(slice(rank, None, world))

    def _logprob_diff(self, batch: TrainBatch, logprobs_BT: Tensor | None) -> Tensor:
        """Sum over all samples of |Megatron's log-prob - SGLang's| on response tokens, [1]."""
        total = torch.zeros(1)
        if logprobs_BT is not None:
            gap_BT = (logprobs_BT - batch.rollout_logprobs_BT).abs()
            total += (gap_BT * batch.loss_mask_BT).sum()
        torch.distributed.all_reduce(total, group=mpu.get_data_parallel_group())
        return total


def _grpo_loss(
    logprobs_BT: Tensor, part: TrainBatch, old_BT: Tensor, *, eps_clip: float, eps_clip_high: float
) -> tuple[Tensor, Tensor]:
    loss, clipped = policy_loss(
        logprobs_BT,
        old_BT,
        part.advantages_B,
        part.loss_mask_BT,
        eps_clip=eps_clip,
        eps_clip_high=eps_clip_high,
    )
    return loss, torch.stack([loss.detach(), clipped])


def _sft_loss(logprobs_BT: Tensor, part: TrainBatch, _old_BT: Tensor) -> tuple[Tensor, Tensor]:
    loss = nll_loss(logprobs_BT, part.loss_mask_BT)
    return loss, torch.stack([loss.detach(), torch.zeros(())])


def _from_last_stage(values: Tensor) -> Tensor:
    """What the last pipeline stage computed, on every stage."""
    torch.distributed.broadcast(
        values, mpu.get_pipeline_model_parallel_last_rank(), group=mpu.get_pipeline_model_parallel_group()
    )
    return values
