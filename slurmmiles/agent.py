"""The agent: one process per node inside the allocation (or on this machine), from its start to
result.json.

    python -m slurmmiles.agent --run-dir DIR [--submitit FOLDER]

`run_node` is what submitit pickles; the rest here decides the exit status, which is also Slurm's
word on the run.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import time
from pathlib import Path
from shutil import which

from slurmmiles import arrival, nodefacts, shell, slurm
from slurmmiles.allocation import Allocation
from slurmmiles.errors import RunFailed, RunTimedOut, SlurmmilesError, UnfitNodes
from slurmmiles.head import Head
from slurmmiles.jsonfile import read_lines, read_model, write_json, write_text
from slurmmiles.node import Node, StopSignal, log_to
from slurmmiles.planfile import Plan
from slurmmiles.result import Outcome, Phase, RunResult, summarise
from slurmmiles.rundir import Attempt, RunDir
from slurmmiles.sbatch import INLINE_PLAN
from slurmmiles.timeline import Timeline
from slurmmiles.worker import run_worker

log = logging.getLogger(__name__)


def run_node(run_dir: str) -> str:
    """This node's part of the run in `run_dir`; returns the outcome, raises a SlurmmilesError for
    any other end.
    """
    allocation = _allocation()
    run = RunDir(Path(run_dir))
    node = Node(
        plan=read_model(run.plan, Plan),
        run=run,
        attempt=run.attempt(allocation.job_id, allocation.restart),
        allocation=allocation,
        stop=StopSignal(),
        inherited=dict(os.environ),
    )
    node.stop.install()
    shell.become_subreaper()
    nodefacts.raise_nofile()
    _make_attempt(node.attempt, run)
    Path(node.temp).mkdir(mode=0o700, parents=True, exist_ok=True)
    log_to(node.attempt.agent_log(node.name), node.name)
    os.environ.update(
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(run.token)}
    )  # for the job client
    try:
        return _run_head(node) if allocation.is_head else _run_worker(node)
    finally:
        shell.stop_tree(os.getpid(), grace=5.0, itself=False)
        shutil.rmtree(node.temp, ignore_errors=True)


def _allocation() -> Allocation:
    return (
        Allocation.local(os.environ)
        if "SLURMMILES_LOCAL_JOB" in os.environ
        else Allocation.from_env(os.environ)
    )


def _make_attempt(attempt: Attempt, run: RunDir) -> None:
    for folder in (attempt.logs, attempt.nodes, attempt.preflight):
        folder.mkdir(parents=True, exist_ok=True)
    if not attempt.plan.exists():
        write_text(attempt.plan, run.plan.read_text())


def _run_worker(node: Node) -> str:
    run_worker(node)
    return Outcome.COMPLETED.value


def _run_head(node: Node) -> str:
    """The head's line, with a result.json whatever happens; a bad end's error is raised again."""
    _link_latest(node)
    timeline = Timeline(node.attempt.progress, began=node.allocation.started or time.time())
    head = Head(node, timeline)
    error: SlurmmilesError | None = None
    try:
        head.run()
    except SlurmmilesError as problem:
        error = problem
    except Exception as problem:
        # The boundary: whatever else went wrong is a failed run with a reason.
        log.exception("the agent failed")
        error = RunFailed(f"the agent failed: {type(problem).__name__}: {problem}", where=node.name)
    outcome = _outcome(node, timeline, error)
    if outcome is Outcome.TIMED_OUT:
        error = _limit(node, timeline)
    phase = timeline.phase
    # Before teardown, which a second signal may cut short.
    _write_result(node, head, timeline, outcome, error)
    timeline.enter(Phase.TEARDOWN, f"{outcome.value}; stopping what was started")
    head.teardown()
    timeline.enter(Phase.DONE, f"{outcome.value}{f': {error}' if error else ''}")
    _write_result(
        node, head, timeline, outcome, error, phase=Phase.DONE if error is None else phase
    )
    if error is not None:
        raise error
    return outcome.value


def _outcome(node: Node, timeline: Timeline, error: SlurmmilesError | None) -> Outcome:
    """What the end is called; a stop by signal is the limit, a preemption or somebody's wish."""
    if error is None:
        return Outcome.COMPLETED
    if not node.stop.name:
        return Outcome.UNFIT if isinstance(error, UnfitNodes) else Outcome.FAILED
    if not node.allocation.is_slurm:
        return Outcome.CANCELLED
    if node.stop.name == "SIGUSR2" or time.time() - timeline.began >= node.plan.slurm.time_s:
        return Outcome.TIMED_OUT
    if which("scontrol") is None:
        return Outcome.CANCELLED
    answer = shell.run(slurm.scontrol_argv(node.allocation.job_id), timeout=3.0)
    state = slurm.parse_scontrol(answer.stdout)
    return Outcome.TIMED_OUT if state and state.hit_a_limit else Outcome.CANCELLED


def _limit(node: Node, timeline: Timeline) -> RunTimedOut:
    """The sentence of a run that Slurm ended."""
    return RunTimedOut(
        f"Slurm ended the run in phase {timeline.phase.value} after"
        f" {time.time() - timeline.began:.0f} s ({node.stop.name}; the time limit is"
        f" {node.plan.slurm.time_s} s)",
        where=f"job {node.allocation.job_id}",
        fix="raise the limit with --set slurm.time=HH:MM:SS, or resume with --run-id",
    )


def _write_result(
    node: Node,
    head: Head,
    timeline: Timeline,
    outcome: Outcome,
    error: SlurmmilesError | None,
    phase: Phase | None = None,
) -> None:
    result = RunResult(
        run_id=node.run.run_id,
        job_id=node.allocation.job_id,
        restart=node.allocation.restart,
        outcome=outcome,
        exit_code=outcome.exit_code,
        phase=phase or timeline.phase,
        reason=str(error) if error else "the driver ended with exit code 0",
        nodes=head.nodes,
        started_at=timeline.began,
        finished_at=time.time(),
        seconds=dict(timeline.seconds),
        joined_after_s=head.joined_after_s,
        driver_exit_code=head.driver_exit_code,
        preflight_verdict=head.verdict,
        metrics=summarise(read_lines(node.attempt.metrics)),
    )
    write_json(node.attempt.result, result)
    write_json(node.run.result, result)


def _link_latest(node: Node) -> None:
    """`latest` points at this attempt, replaced in one step."""
    temporary = node.run.path / f".latest.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(node.attempt.path.relative_to(node.run.path))
    temporary.replace(node.run.latest)


def main(argv: list[str]) -> int:
    """Exit status of the task; Slurm reports the highest of all tasks as the step's."""
    parser = argparse.ArgumentParser(prog="python -m slurmmiles.agent")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument(
        "--submitit", type=Path, help="submitit's folder, when it submitted the job"
    )
    args = parser.parse_args(argv)
    run = RunDir(args.run_dir.absolute())
    try:
        allocation = _allocation()
        if word := os.environ.pop(INLINE_PLAN, ""):
            arrival.unpack_inline(word, run, allocation)
        if not arrival.visible(run):
            return arrival.stay_out(run, allocation)
        if args.submitit:
            from submitit.core.submission import process_job

            process_job(args.submitit)
        else:
            run_node(str(run.path))
    except SlurmmilesError as error:
        print(f"slurmmiles: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
