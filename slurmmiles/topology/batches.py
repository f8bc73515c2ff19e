"""How a rollout's samples are cut into optimizer steps."""

from __future__ import annotations

from slurmmiles.topology.rules import Violation, divides, divisors, nearest, refuse, too_small


def check_batches(
    *,
    rollout_batch_size: int,
    n_samples_per_prompt: int,
    global_batch_size: int,
    dp: int,
    micro_batch_size: int = 1,
) -> int:
    """Optimizer steps per rollout, or BadInput when samples, batches and ranks do not divide.

    miles: rollout_batch_size x n_samples_per_prompt samples, global_batch_size of them each step
    (32 x 8 = 256 and 128 give 2). Megatron: a global batch is a whole number of micro-batches on
    each data-parallel rank.
    """
    sizes = {
        "rollout.rollout_batch_size": rollout_batch_size,
        "rollout.n_samples_per_prompt": n_samples_per_prompt,
        "algorithm.global_batch_size": global_batch_size,
        "algorithm.micro_batch_size": micro_batch_size,
    }
    samples = rollout_batch_size * n_samples_per_prompt

    def suggest(key: str) -> tuple[int, list[int] | str]:
        if sizes[key] < 1:
            return sizes[key], "give a number above 0"
        tried = divisors(samples) if samples > 0 else []
        works = [g for g in tried if not _violations(samples, g, dp, micro_batch_size)]
        return sizes[key], nearest(global_batch_size, works, lambda _: True)

    broken = too_small(sizes) or _violations(samples, global_batch_size, dp, micro_batch_size)
    if broken:
        refuse(broken, suggest)
    return samples // global_batch_size


def _violations(samples: int, global_batch: int, dp: int, micro: int) -> list[Violation]:
    key = "algorithm.global_batch_size"
    what = f"a rollout's {samples} samples do not divide into global batches of {global_batch}"
    found = divides(key, samples, global_batch, what)
    what = (
        f"a global batch of {global_batch} does not divide by dp x micro_batch_size = "
        f"{dp} x {micro}"
    )
    return found + divides(key, global_batch, dp * micro, what)
