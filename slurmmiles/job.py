"""A run that was submitted: its state, its end, its cancellation, from the run directory and
whatever Slurm tools exist.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from shutil import which
from typing import Any

import psutil
from pydantic import ValidationError

from slurmmiles import shell, slurm
from slurmmiles.errors import SlurmRefused
from slurmmiles.jsonfile import read_json, read_model
from slurmmiles.result import Outcome, Progress, RunResult
from slurmmiles.rundir import Attempt, RunDir
from slurmmiles.slurm import JobState
from slurmmiles.submit import Submission

QUERY_S = 10.0
# The batch script ends after result.json was written; and Slurm's word may precede the file on a
# slow filesystem.
SETTLE_S = 20.0
BY_STATE = {
    "COMPLETED": Outcome.FAILED,
    "TIMEOUT": Outcome.TIMED_OUT,
    "DEADLINE": Outcome.TIMED_OUT,
}
BY_STATE |= {"PREEMPTED": Outcome.TIMED_OUT, "CANCELLED": Outcome.CANCELLED}


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What is known of a run now: Slurm's (or the process table's) state, the phase, the result of
    its newest job.
    """

    run_id: str
    run_dir: str
    job_id: str
    mode: str
    state: str
    outcome: str | None
    exit_code: int | None
    phase: str
    sentence: str
    nodes: list[str]
    result: dict[str, Any] | None

    @property
    def ended(self) -> bool:
        return self.outcome is not None


class Job:
    """The newest job of a run."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.submission = read_model(run.submission, Submission)

    @property
    def job_id(self) -> str:
        return self.submission.job_id

    def attempt(self) -> Attempt | None:
        """The newest attempt of this job, or None before its first."""
        name = re.compile(rf"{re.escape(self.job_id)}\.(\d+)")
        if not self.run.attempts.is_dir():
            return None
        numbered = [(name.fullmatch(p.name), p) for p in self.run.attempts.iterdir() if p.is_dir()]
        found = sorted((int(match[1]), path) for match, path in numbered if match)
        return Attempt(found[-1][1]) if found else None

    def state(self) -> JobState:
        """Slurm's word, from the first of squeue, scontrol and sacct that knows the job; for a
        local run, the process's.
        """
        if self.submission.mode == "local":
            alive = any(_alive(a.pid, a.started) for a in self.submission.agents)
            return JobState("RUNNING" if alive else "ENDED", source="process")
        said = ""
        for tool, ask, parse in (
            ("scontrol", slurm.scontrol_argv, slurm.parse_scontrol),
            ("squeue", slurm.squeue_argv, slurm.parse_squeue),
            ("sacct", slurm.sacct_argv, slurm.parse_sacct),
        ):
            if which(tool) is None:
                continue
            answer = shell.run(ask(self.job_id), timeout=QUERY_S)
            state = parse(answer.stdout) if answer.ok else None
            if state is not None:
                return state
            said = said or (answer.stderr.strip().splitlines() or [""])[-1]
            if answer.returncode == shell.TIMED_OUT:
                break  # the others ask the same controller
        return JobState("UNKNOWN", said, source="none")

    def result(self) -> RunResult | None:
        """This job's result, not one that an earlier job of the run left."""
        raw = read_json(self.run.result)
        try:
            result = RunResult.model_validate(raw)
        except ValidationError:
            return None
        return result if result.job_id == self.job_id else None

    def progress(self) -> Progress | None:
        attempt = self.attempt()
        raw = read_json(attempt.progress) if attempt else None
        try:
            return Progress.model_validate(raw) if raw else None
        except ValidationError:
            return None  # of another version; the state and the result still speak

    def status(self) -> RunStatus:
        state, result, progress = self.state(), self.result(), self.progress()
        over = state.ended or state.state in ("ENDED", "UNKNOWN")
        outcome = (
            result.outcome
            if result and over
            else self._outcome_without_result(state)
            if over
            else None
        )
        sentence = self._sentence(state, result, progress, over)
        return RunStatus(
            run_id=self.run.run_id,
            run_dir=str(self.run.path),
            job_id=self.job_id,
            mode=self.submission.mode,
            state=state.state,
            outcome=outcome.value if outcome else None,
            exit_code=outcome.exit_code if outcome else None,
            phase=result.phase.value if result else progress.phase.value if progress else "",
            sentence=sentence,
            nodes=list(result.nodes) if result else [],
            result=result.model_dump(mode="json") if result else None,
        )

    def _sentence(
        self, state: JobState, result: RunResult | None, progress: Progress | None, over: bool
    ) -> str:
        """What there is to say about the run now."""
        if result and over:
            return result.reason
        if state.state == "UNKNOWN":
            return f"Slurm cannot say how it is: {state.reason or 'no tool of Slurm is on PATH'}"
        if not over:
            return state.sentence or (progress.detail if progress else "it has not reported yet")
        left = "a result.json that cannot be read" if self.run.result.exists() else "no result"
        if self.submission.mode == "local":
            return f"its agents are gone and left {left}"
        return f"it ended and left {left}; Slurm says {state.state} {state.exit_code}".strip()

    def _outcome_without_result(self, state: JobState) -> Outcome | None:
        """An agent that was killed leaves no result: then Slurm's state decides, and an unknown
        state says nothing.
        """
        if state.state == "UNKNOWN":
            return None
        return BY_STATE.get(state.state, Outcome.FAILED)

    def wait(self, tell: Callable[[RunStatus], None], *, poll_s: float = 1.0) -> RunStatus:
        """Until the job has ended, calling `tell` on the way; Slurm is asked less and less often,
        at most every 15 s.
        """
        ended_at: float | None = None
        ask_at, pause, status = 0.0, poll_s, None
        while True:
            now = time.monotonic()
            if status is None or now >= ask_at or self.result() is not None:
                status = self.status()
                pause = min(pause * 1.3, 15.0)
                ask_at = now + pause
            tell(status)
            if status.ended:
                ended_at = ended_at or now
                if status.result is not None or now - ended_at >= SETTLE_S:
                    return status
            time.sleep(poll_s)

    def cancel(self) -> str:
        """Ask Slurm, or the local agents, to end it; returns what was done. SlurmRefused with
        Slurm's words.
        """
        state = self.state()
        if state.ended or state.state == "ENDED":
            return f"run {self.run.run_id} has ended already ({state.state})"
        if self.submission.mode == "local":
            for agent in self.submission.agents:
                if _alive(agent.pid, agent.started):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        psutil.Process(agent.pid).send_signal(signal.SIGTERM)
            return f"told the agents of run {self.run.run_id} to stop"
        answer = shell.run(slurm.cancel_argv(self.job_id), timeout=QUERY_S)
        if not answer.ok:
            raise SlurmRefused(
                f"scancel {self.job_id}: {answer.stderr.strip()}", fix="try again, or ask the site"
            )
        return f"cancelled job {self.job_id} of run {self.run.run_id}"


def _alive(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return (
            abs(process.create_time() - started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False
