"""One JSON line per step for programs, one text line for people."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """What one step says of itself; the fields are the keys of a line of metrics.jsonl.

    Rewards and `accuracy` (the share of samples that are exactly right) are of this step's samples,
    made by the weights before its updates. `logprob_diff` is the mean |Megatron's log-prob -
    SGLang's| of their tokens under those weights. `tokens` are response tokens, `tokens_per_s` is
    over the whole step. `seconds` has a key per phase and `total`. `nodes` are the host names of
    trainer ranks, `engine_nodes` those of engines.
    """

    step: int
    reward_mean: float
    reward_std: float
    accuracy: float
    logprob_diff: float
    loss: float
    grad_norm: float
    kl: float
    clip_fraction: float
    seconds: dict[str, float]
    tokens: int
    tokens_per_s: float
    response_len_mean: float
    weight_sync_gb_per_s: float
    nodes: list[str]
    engine_nodes: list[str]

    def line(self) -> str:
        """For people."""
        s = self.seconds
        return (
            f"step {self.step:4d}  reward {self.reward_mean:.3f}  exact {self.accuracy:.3f}"
            f"  logprob_diff {self.logprob_diff:.1e}  loss {self.loss:+.4f}"
            f"  grad {self.grad_norm:.2f}  {s['total']:.2f} s (generate {s['generate']:.2f},"
            f" train {s['train']:.2f}, update_weights {s['update_weights']:.2f})"
            f"  {self.tokens_per_s:.0f} tokens/s"
        )


class Stopwatch:
    """Seconds per named phase of one step."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of the `with` block to phase `name`."""
        start = time.perf_counter()
        yield
        self._phases[name] = self._phases.get(name, 0.0) + time.perf_counter() - start

    def seconds(self) -> dict[str, float]:
        """The phases so far and the `total` since the start."""
        return {**self._phases, "total": time.perf_counter() - self._start}


class MetricsFile:
    """Appends one line per step, visible to readers at once."""

    def __init__(self, path: Path, *, keep_before: int) -> None:
        """Opens `path`, dropping lines of steps from `keep_before` on: this run repeats them."""
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in _lines(path) if json.loads(line)["step"] < keep_before]
        partial = path.with_name(path.name + ".partial")
        partial.write_text("".join(kept))
        partial.replace(path)
        self._path = path

    def write(self, metrics: StepMetrics) -> None:
        """Append `metrics` to the file and print its line."""
        with self._path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(metrics)) + "\n")
        print(metrics.line(), flush=True)


def _lines(path: Path) -> list[str]:
    """The whole lines of `path`, without one that a killed run left half-written."""
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
