"""How an attempt ended: the outcome, why, how far it came and how long each phase took."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Outcome(str, Enum):
    """The end of an attempt; each has the exit code that the job and `submit --wait` end with."""

    COMPLETED = "completed"
    UNFIT = "unfit"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"

    @property
    def exit_code(self) -> int:
        return {"completed": 0, "unfit": 3, "failed": 5, "timed out": 6, "cancelled": 6}[self.value]


class Phase(str, Enum):
    """The phases of an attempt, in order."""

    START = "start"
    JOIN = "join"
    PREFLIGHT = "preflight"
    DRIVER = "driver"
    TEARDOWN = "teardown"
    DONE = "done"


class RunResult(BaseModel):
    """result.json. `seconds` maps a phase to its duration; `joined_after_s` counts from the job's
    start.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    job_id: str
    restart: int
    outcome: Outcome
    exit_code: int
    phase: Phase
    reason: str
    nodes: tuple[str, ...]
    started_at: float
    finished_at: float
    seconds: dict[str, float]
    joined_after_s: float | None = None
    driver_exit_code: int | None = None
    preflight_verdict: str | None = None
    metrics: dict[str, Any] = Field(default_factory=dict)


class Progress(BaseModel):
    """progress.json: where a living attempt is. `detail` is one sentence, `at` epoch seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    phase: Phase
    detail: str
    at: float


def summarise(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The last record of metrics.jsonl, with the rise of reward and the worst log-prob difference.

    `reward_first` and `reward_last` are means over the first and the last five records that have
    one. NaN is the worst difference. The driver writes the file: what is no number is left out.
    """
    if not records:
        return {}
    summary = dict(records[-1])
    rewards = _numbers(records, "reward_mean")
    if rewards:
        head, tail = rewards[:5], rewards[-5:]
        summary["reward_first"] = sum(head) / len(head)
        summary["reward_last"] = sum(tail) / len(tail)
    differences = _numbers(records, "logprob_diff")
    if differences:
        summary["logprob_diff_max"] = max(differences, key=lambda d: math.inf if d != d else d)
    return summary


def _numbers(records: list[dict[str, Any]], key: str) -> list[float]:
    values = [r.get(key) for r in records]
    return [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
