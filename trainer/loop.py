"""Colocated GRPO, in order: generate, release, train, resume, update weights, check and report.

Left out on purpose: a critic, partial rollouts, training on stale samples. The old log-probs of the
ratio are Megatron's; SGLang's, recorded at generation with the same weights, are compared with them
every step, and a run whose two halves disagree is ended rather than trained on.
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
    """Train until `num_rollout` steps are done or the target reward holds.

    Raises TrainerError when the run cannot go on.
    """
    trainer, engines, prompts = cluster.trainer, cluster.engines, Prompts(config)
    first = prepare(config, cluster, prompts)
    metrics = MetricsFile(config.metrics, keep_before=first)
    engines.update_weights(trainer.export_weights())

    rewards: deque[float] = deque(maxlen=config.algorithm.target_steps)
    for step in range(first, config.algorithm.num_rollout):
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
        check_agreement(stats, config.algorithm.max_logprob_diff)
        rewards.append(line.reward_mean)
        last = step + 1 == config.algorithm.num_rollout
        last = last or reached(rewards, config.algorithm.target_reward)
        if checkpoint_is_due(config, step, last=last):
            trainer.save(config.checkpoint.dir, step)
        if last:
            return


def prepare(config: Config, cluster: Cluster, prompts: Prompts) -> int:
    """Warm up from random weights, or load the last checkpoint; returns the first step to run.

    The reference of the KL term is the policy before step 0: a resumed run makes it again, as the
    first run did, before it loads.
    """
    trainer, checkpoint, kl = cluster.trainer, config.checkpoint, config.algorithm.kl_loss_coef > 0
    saved = trainer.latest_step(checkpoint.dir) if checkpoint.resume == "auto" else None
    if saved is None or kl:
        warm_up(config, cluster, prompts)
    if kl:
        trainer.keep_reference()
    if saved is None:
        return 0
    trainer.load(checkpoint.dir, saved)
    print(f"resumed at step {saved + 1}", flush=True)
    return saved + 1


def warm_up(config: Config, cluster: Cluster, prompts: Prompts) -> None:
    """The supervised updates that the config asks for, on right answers."""
    losses = [
        cluster.trainer.sft(prompts.supervised(step), config.algorithm.sft_lr)
        for step in range(config.algorithm.sft_steps)
    ]
    if losses:
        print(f"supervised warm-up: {len(losses)} steps, loss {losses[-1]:.3f}", flush=True)


def learning_rate(config: Config, step: int) -> float:
    """Linear over the first `lr_warmup_iters` steps, constant after."""
    optimizer = config.optimizer
    return optimizer.lr * min(1.0, (step + 1) / max(1, optimizer.lr_warmup_iters))


def check_agreement(stats: TrainStats, bound: float) -> None:
    """Raise TrainerError when Megatron and SGLang give the same samples different log-probs."""
    if not stats.logprob_diff <= bound:  # NaN is a disagreement too
        raise TrainerError(
            f"logprob_diff is {stats.logprob_diff:.1e}, algorithm.max_logprob_diff {bound:.1e}:"
            " Megatron and SGLang do not hold the same policy, their weights are not in sync"
        )


def reached(rewards: deque[float], target: float | None) -> bool:
    """Whether the last `maxlen` mean rewards are all at or above `target`."""
    return target is not None and len(rewards) == rewards.maxlen and min(rewards) >= target


def checkpoint_is_due(config: Config, step: int, *, last: bool) -> bool:
    """Every `checkpoint.interval` steps and after the last one; never with interval 0."""
    interval = config.checkpoint.interval
    return interval > 0 and (last or (step + 1) % interval == 0)


def measure(
    step: int, groups: list[Group], stats: TrainStats, watch: Stopwatch, sent: int, cluster: Cluster
) -> StepMetrics:
    """Everything that one step reports; `sent` is the bytes of weights handed to the engines."""
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
        kl=stats.kl,
        clip_fraction=stats.clip_fraction,
        seconds=seconds,
        tokens=tokens,
        tokens_per_s=tokens / seconds["total"],
        response_len_mean=tokens / len(samples),
        weight_sync_gb_per_s=sent / seconds["update_weights"] / 1e9,
        nodes=list(dict.fromkeys(cluster.trainer.hosts)),
        engine_nodes=list(dict.fromkeys(cluster.engines.hosts)),
    )
