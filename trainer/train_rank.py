"""One rank of the training half, in a process of its own (a Ray actor)."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import ray
import torch
from megatron.core import parallel_state as mpu
from torch import Tensor

from trainer import checkpoint, megatron, weight_sync
from trainer.config import Config
from trainer.device import Device
from trainer.loss import kl_loss, nll_loss, policy_loss
from trainer.policy import Policy
from trainer.reference import Reference
from trainer.types import FlatWeights, Rendezvous, TrainBatch, TrainStats


class TrainerRank:
    """Methods are collective: the driver's TrainerGroup calls each on all ranks at once."""

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
        megatron.join_world(at, self.config.parallel, self._device, self.config.seed)
        model = megatron.build(self.config, self._device)
        algorithm, rollout = self.config.algorithm, self.config.rollout
        self.policy = Policy(model, algorithm.micro_batch_size, rollout.temperature)
        self._reference: Reference | None = None
        return sum(p.numel() for p in model.ddp.parameters())

    def sft(self, batch: TrainBatch, lr: float) -> float:
        """One supervised update; returns the mean negative log-likelihood of the trained tokens."""

        def loss(logprobs_BT: Tensor, part: TrainBatch) -> tuple[Tensor, Tensor]:
            nll = nll_loss(logprobs_BT, part.loss_mask_BT)
            return nll, nll.detach().reshape(1)

        self.policy.set_lr(lr)
        sums, _ = self.policy.update(self._mine(batch), loss, reported=1)
        return float(_from_last_stage(sums / batch.loss_mask_BT.sum()))

    def keep_reference(self) -> None:
        """From now on the KL term of the loss pulls towards the weights of this moment."""
        self._reference = Reference(self.policy)

    def train(self, batch: TrainBatch, lr: float) -> TrainStats:
        """All updates of one step; old log-probs are this half's own, before the first update."""
        self.policy.set_lr(lr)
        mine = self._mine(batch)
        old_BT = self.policy.log_probs(mine)
        mine = mine.replace(old_logprobs_BT=old_BT)
        if self._reference is not None:
            mine = mine.replace(ref_logprobs_BT=self._reference.log_probs(mine))
        sums, norm = torch.zeros(3), 0.0
        size = self.config.samples_per_update
        for start in range(0, len(mine.tokens_BT), size):
            part_sums, norm = self.policy.update(
                mine.rows(slice(start, start + size)), self._grpo_loss, reported=3
            )
            sums += part_sums
        sums = torch.cat([sums, self._logprob_diff(mine)])
        loss, kl, clipped, diff = _from_last_stage(sums / batch.loss_mask_BT.sum()).tolist()
        return TrainStats(loss, norm, kl, clipped, diff)

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
        """Every dp-th sample: neighbours share a prompt, so each rank sees all prompts."""
        rank, world = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
        return batch.rows(slice(rank, None, world))

    def _grpo_loss(self, logprobs_BT: Tensor, part: TrainBatch) -> tuple[Tensor, Tensor]:
        """The clipped surrogate plus the weighted KL term; reports loss, KL and clipped tokens."""
        algorithm = self.config.algorithm
        loss, clipped = policy_loss(
            logprobs_BT,
            part.old_logprobs_BT,
            part.advantages_B,
            part.loss_mask_BT,
            eps_clip=algorithm.eps_clip,
            eps_clip_high=algorithm.eps_clip_high,
        )
        kl = torch.zeros(())
        if algorithm.kl_loss_coef > 0:
            kl = kl_loss(logprobs_BT, part.ref_logprobs_BT, part.loss_mask_BT)
        total = loss + algorithm.kl_loss_coef * kl
        return total, torch.stack([total.detach(), kl.detach(), clipped])

    def _logprob_diff(self, mine: TrainBatch) -> Tensor:
        """Sum over the step's response tokens of |Megatron's log-prob - SGLang's|, [1]."""
        gap_BT = (mine.old_logprobs_BT - mine.rollout_logprobs_BT).abs()
        total = (gap_BT * mine.loss_mask_BT).sum().reshape(1)
        torch.distributed.all_reduce(total, group=mpu.get_data_parallel_group())
        return total


def _from_last_stage(values: Tensor) -> Tensor:
    """What the last pipeline stage computed, on every stage."""
    last = mpu.get_pipeline_model_parallel_last_rank()
    group = mpu.get_pipeline_model_parallel_group()
    torch.distributed.broadcast(values, last, group=group)
    return values
