"""Colocated GRPO, in order: generate -> release -> train -> resume -> update weights -> check and report.

Left out on purpose: a reference model and its KL term, a critic, partial rollouts. The old log-probs of the
ratio are Megatron's; SGLang's, recorded at generation with the same weights, are compared with them every
step, and a run whose two halves disagree is ended rather than trained on.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean, pstdev

from trainer.batch import grpo_batch
from trainer.cluster import Cluster
from trainer.config import Config
from trainer.errors import TrainerError
from trainer.metrics import MetricsFile, StepMetrics, Stopwatch
from trainer.prompts import Prompts
from trainer.types import Group, TrainStats


def run(config: Config, cluster: Cluster) -> None:
    """Train until `num_rollout` steps are done or the target reward holds; raises TrainerError when it cannot."""
    trainer, engines, algorithm = cluster.trainer, cluster.engines, config.algorithm
    prompts = Prompts(config)
    first = resume_or_warm_up(config, cluster, prompts)
    metrics = MetricsFile(config.metrics, keep_before=first)
    engines.update_weights(trainer.export_weights())

    rewards: deque[float] = deque(maxlen=algorithm.target_steps)
    for step in range(first, algorithm.num_rollout):
        watch = Stopwatch()
        with watch.phase("generate"):
            problems = prompts.problems(step)
            groups = prompts.grade(problems, engines.generate(prompts.requests(problems)))
        with watch.phase("release"):
            engines.release()
        with watch.phase("train"):
            stats = trainer.train(grpo_batch(groups), learning_rate(config, step))
        with watch.phase("resume"):
            engines.resume()
        with watch.phase("update_weights"):
            sent = engines.update_weights(trainer.export_weights())
        line = measure(step, groups, stats, watch, sent, cluster)
        metrics.write(line)
        check_agreement(stats, algorithm.max_logprob_diff)
        if config.checkpoint.interval and (step + 1) % config.checkpoint.interval == 0:
            trainer.save(config.checkpoint.dir, step)
        rewards.append(line.reward_mean)
        if reached(rewards, algorithm.target_reward):
            print(f"target reward {algorithm.target_reward} held for {len(rewards)} steps", flush=True)
            return


def resume_or_warm_up(config: Config, cluster: Cluster, prompts: Prompts) -> int:
    """Load the last checkpoint, or run the supervised warm-up from random weights; returns the first step."""
    resume = config.checkpoint.resume == "auto"
    saved = cluster.trainer.resume(config.checkpoint.dir) if resume else None
    if saved is not None:
        print(f"resumed at step {saved + 1}", flush=True)
        return saved + 1
    for step in range(config.algorithm.sft_steps):
        loss = cluster.trainer.sft(prompts.supervised(step), config.algorithm.sft_lr)
        if step == config.algorithm.sft_steps - 1:
            print(f"supervised warm-up: {step + 1} steps, loss {loss:.3f}", flush=True)
    return 0


def learning_rate(config: Config, step: int) -> float:
    """Linear warm-up over `lr_warmup_steps`, constant after."""
    optimizer = config.optimizer
    return optimizer.lr * min(1.0, (step + 1) / max(1, optimizer.lr_warmup_steps))


def check_agreement(stats: TrainStats, bound: float) -> None:
    """Raise TrainerError when Megatron and SGLang give their samples different log-probs."""
    if not stats.logprob_diff <= bound:  # NaN is a disagreement too
        raise TrainerError(
            f"logprob_diff {stats.logprob_diff:.2e} is above algorithm.max_logprob_diff = {bound:.0e}: "
            "Megatron and SGLang do not compute the same policy, the weights are not in sync"
        )


def reached(rewards: deque[float], target: float | None) -> bool:
    """Whether the last `maxlen` mean rewards are all at or above `target`."""
    return target is not None and len(rewards) == rewards.maxlen and min(rewards) >= target


def measure(
    step: int, groups: list[Group], stats: TrainStats, watch: Stopwatch, sent: int, cluster: Cluster
) -> StepMetrics:
    """Everything that one step reports."""
    samples = [sample for group in groups for sample in group.samples]
    rewards = [sample.reward for sample in samples]
    tokens = sum(len(sample.response_ids) for sample in samples)
    seconds = watch.seconds()
    return StepMetrics(
        step=step,
        reward_mean=fmean(rewards),
        reward_std=pstdev(rewards),
        accuracy=fmean(sample.correct for sample in samples),
        logprob_diff=stats.logprob_diff,
        loss=stats.loss,
        grad_norm=stats.grad_norm,
        clip_fraction=stats.clip_fraction,
        seconds=seconds,
        tokens=tokens,
        tokens_per_s=tokens / seconds["total"],
        response_len_mean=tokens / len(samples),
        weight_sync_gb_per_s=sent / seconds["update_weights"] / 1e9,
        nodes=cluster.trainer.hosts,
        engine_nodes=cluster.engines.hosts,
    )
