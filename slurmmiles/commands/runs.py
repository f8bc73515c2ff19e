"""`status`, `logs`, `cancel`, `attach` and `runs`: a run after it was submitted, also from another
login.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from slurmmiles import shell, show
from slurmmiles.commands.clients import find_slurm
from slurmmiles.commands.options import json_option, print_json, runs_dir, runs_option
from slurmmiles.errors import BadInput
from slurmmiles.job import Job
from slurmmiles.logs import follow, log_files
from slurmmiles.rundir import RunDir
from slurmmiles.runlist import all_runs, find_run

run_argument = click.argument("run", required=False)


def _job(runs_path: Path | None, run: str | None) -> Job:
    find_slurm()
    return Job(find_run(runs_dir(runs_path, None), run))


@click.command()
@run_argument
@runs_option
@json_option
def status(run: str | None, runs: Path | None, as_json: bool) -> None:
    """How RUN (default: the newest) is doing, or how it ended.

    \b
    Example: slurmmiles status
             slurmmiles status tiny-20260101-120000-ab12 --json
    """
    found = _job(runs, run).status()
    print_json(show.status_fields(found)) if as_json else show.ended(found)


@click.command()
@run_argument
@runs_option
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the run ends.")
@click.option("--node", help="This node's agent and Ray logs instead of the driver's.")
def logs(run: str | None, runs: Path | None, following: bool, node: str | None) -> None:
    """Print what the driver of RUN wrote; without a driver, what the job itself wrote.

    \b
    Example: slurmmiles logs -f
             slurmmiles logs --node node02
    """
    job = _job(runs, run)
    for chunk in follow(lambda: log_files(job, node), job, following):
        click.echo(chunk, nl=False)


@click.command()
@click.argument("run")
@runs_option
def cancel(run: str, runs: Path | None) -> None:
    """End RUN: its driver, its Ray cluster and its job.

    \b
    Example: slurmmiles cancel tiny-20260101-120000-ab12
    """
    click.echo(_job(runs, run).cancel())


@click.command()
@click.argument("run")
@click.argument("node", required=False)
@runs_option
def attach(run: str, node: str | None, runs: Path | None) -> None:
    """A shell on NODE (default: the head) of the running job of RUN.

    \b
    Example: slurmmiles attach tiny-20260101-120000-ab12 node02
    """
    job = _job(runs, run)
    if job.submission.mode == "local":
        raise BadInput(f"run {job.run.run_id} is on this machine", fix="you are there already")
    if job.state().state != "RUNNING":
        raise BadInput(
            f"job {job.job_id} of run {job.run.run_id} is {job.state().state}",
            fix="wait until it runs",
        )
    place = [f"--nodelist={node}"] if node else ["--nodes=1"]
    shell.replace_process(
        ["srun", f"--jobid={job.job_id}", "--overlap", *place, "--ntasks=1", "--pty", "bash", "-l"]
    )


@click.command()
@runs_option
@json_option
def runs(runs: Path | None, as_json: bool) -> None:
    """List the runs of a directory, oldest first.

    \b
    Example: slurmmiles runs --runs /shared/me/runs
    """
    find_slurm()
    rows = [_row(run) for run in all_runs(runs_dir(runs, None))]
    print_json(rows) if as_json else show.run_list(rows)


def _row(run: RunDir) -> dict[str, Any]:
    """A run's status; one whose files cannot be read is listed with the reason, like any other."""
    try:
        return show.status_fields(Job(run).status())
    except BadInput as error:
        unknown = dict.fromkeys(show.STATUS_FIELDS)
        return {
            **unknown,
            "run_id": run.run_id,
            "run_dir": str(run.path),
            "state": "UNREADABLE",
            "sentence": str(error),
            "nodes": [],
        }
