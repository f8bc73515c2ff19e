"""From a plan to a started run: the run directory, then submitit's sbatch, or agents on this
machine.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, ConfigDict, Field

from slurmmiles import sbatch, shell
from slurmmiles.agent import run_node
from slurmmiles.errors import BadInput, SlurmRefused
from slurmmiles.jsonfile import write_json, write_text
from slurmmiles.planfile import Plan
from slurmmiles.rundir import RUN_ID, RunDir
from slurmmiles.slurm import explain_refusal, no_cluster

# Directories that each node has of its own, whatever its filesystem is called.
NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run")
NODE_LOCAL_TYPES = frozenset({"tmpfs", "ramfs", "devtmpfs"})


class LocalAgent(BaseModel):
    """An agent on this machine; `started` (seconds, as psutil gives it) proves that the pid is
    still that process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int = Field(gt=0)
    started: float


class Submission(BaseModel):
    """submission.json: how the run was started and how to reach it again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job_id: str = Field(pattern=r"^[0-9]{1,20}([_+][0-9]{1,10})?$")
    mode: Literal["slurm", "local"]
    submitted_at: float
    agents: tuple[LocalAgent, ...] = ()


def new_run_id(recipe: str) -> str:
    """Sorts by time, and two in the same second differ."""
    return f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def checked_run_id(text: str) -> str:
    """`text`; BadInput when it is not the name of one directory, and so might lead elsewhere."""
    if not RUN_ID.fullmatch(text):
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise BadInput(
            f"{shown!r} cannot be a run id",
            where="--run-id",
            fix="use at most 100 letters, digits, '.', '_' and '-', a letter or digit first",
        )
    return text


def prepare(run: RunDir, plan: Plan) -> None:
    """Make the run directory with plan and token; BadInput when it cannot be written to."""
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        if not run.token.exists():
            write_text(run.token, secrets.token_hex(32), mode=0o600)
        write_json(run.plan, plan)
    except OSError as error:
        raise BadInput(
            f"the run directory cannot be written to: {error.strerror}",
            where=str(run.path),
            fix="choose another with --runs DIR",
        ) from error


def refuse_node_local(path: Path, shared: tuple[Path, ...] = ()) -> None:
    """BadInput when `path` is on a filesystem that other nodes do not see; `shared` lists known
    exceptions.
    """
    resolved = path.resolve()
    if any(resolved.is_relative_to(known) for known in shared):
        return
    for root in NODE_LOCAL:
        if resolved.is_relative_to(root):
            raise _not_shared(path, f"{root} is a directory of each node's own")
    existing = next(p for p in (resolved, *resolved.parents) if p.exists())
    mounts = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    mount = next((str(p) for p in (existing, *existing.parents) if str(p) in mounts), "/")
    if mounts.get(mount) in NODE_LOCAL_TYPES:
        raise _not_shared(path, f"it is on a {mounts[mount]} in this machine's memory")


def _not_shared(path: Path, why: str) -> BadInput:
    return BadInput(
        f"the run directory is not shared with the nodes: {why}",
        where=str(path),
        fix="choose a directory on the cluster's shared filesystem with --runs DIR",
    )


def submit_slurm(
    plan: Plan, run: RunDir, templates: sbatch.Folders, env: Mapping[str, str]
) -> Submission:
    """submitit writes the pickle and calls sbatch on our script; SlurmRefused with Slurm's own
    words.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError, JobPaths
    from submitit.slurm.slurm import SlurmExecutor

    python = plan.python or sys.executable

    class Executor(SlurmExecutor):
        """submitit's executor with our script and our agent around its entry point."""

        @property
        def _submitit_command_str(self) -> str:
            return agent_command(python, run.path, self.folder)

        def _make_submission_file_text(self, command: str, uid: str) -> str:
            output = str(JobPaths(self.folder).stdout).replace("%t", "0")
            text = sbatch.render(
                plan,
                templates,
                command=command,
                output=output,
                exports=("SUBMITIT_EXECUTOR=slurm",),
                runs=str(run.path.parent),
            )
            write_text(run.script, text)
            return text

    executor = Executor(run.submitit)
    executor.update_parameters(
        nodes=plan.allocated_nodes, ntasks_per_node=1, time=max(1, plan.slurm.time_s // 60)
    )
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # submitit repeats what the error holds
            job = executor.submit(run_node, str(run.path))
    except (FailedJobError, FailedSubmissionError) as error:
        words, fix = explain_refusal(_slurm_words(error))
        if no_cluster(words):
            raise BadInput(
                f"there is no Slurm on this machine: {words}",
                fix="log in to a cluster, use --local, or try `slurmmiles sandbox up`",
            ) from None
        raise SlurmRefused(f"Slurm refused the job: {words}", where="sbatch", fix=fix) from None
    submission = Submission(job_id=str(job.job_id), mode="slurm", submitted_at=time.time())
    write_json(run.submission, submission)
    return submission


def _slurm_words(error: Exception) -> str:
    """The tool's own lines out of submitit's error, which shows the command and its output around
    them.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    spoken = [line for line in lines if line.startswith(("sbatch:", "srun:", "slurm"))]
    return "\n".join(spoken or lines)


def agent_command(python: str, run_dir: Path, submitit: Path | None) -> str:
    """The step's command as shell text."""
    argv = [python, "-u", "-m", "slurmmiles.agent", "--run-dir", str(run_dir)]
    if submitit is not None:
        argv += ["--submitit", str(submitit)]
    return shlex.join(argv)


def rendered(plan: Plan, templates: sbatch.Folders, runs: Path) -> str:
    """A script that needs neither submitit nor any other file: it carries the plan, and the run is
    named by its job.
    """
    python = plan.python or sys.executable
    run_dir = f'{shlex.quote(str(runs))}/"{plan.recipe}-$SLURM_JOB_ID"'
    command = f"{shlex.quote(python)} -u -m slurmmiles.agent --run-dir {run_dir}"
    return sbatch.render(
        plan,
        templates,
        command=command,
        output=f"slurmmiles-{plan.recipe}-%j.out",
        exports=(f"{sbatch.INLINE_PLAN}={sbatch.encode_plan(plan)}",),
        runs=str(runs),
    )


def submit_local(plan: Plan, run: RunDir, env: Mapping[str, str]) -> Submission:
    """The same agents on this machine, one for each simulated node; they outlive this process."""
    job_id = f"{int(time.time())}{os.getpid() % 1000:03d}"
    nodes = [f"local{i + 1}" for i in range(plan.nodes)]
    folder = run.path / "local"
    folder.mkdir(exist_ok=True)
    agents = []
    for rank in range(plan.nodes):
        mine = {
            **env,
            "SLURMMILES_LOCAL_JOB": job_id,
            "SLURMMILES_LOCAL_NODES": ",".join(nodes),
            "SLURMMILES_LOCAL_RANK": str(rank),
            "SLURMMILES_STARTED": str(time.time()),
        }
        argv = [sys.executable, "-u", "-m", "slurmmiles.agent", "--run-dir", str(run.path)]
        process = shell.spawn(argv, folder / f"{job_id}.{rank}.log", env=mine)
        agents.append(
            LocalAgent(pid=process.pid, started=psutil.Process(process.pid).create_time())
        )
    submission = Submission(
        job_id=job_id, mode="local", submitted_at=time.time(), agents=tuple(agents)
    )
    write_json(run.submission, submission)
    return submission
