"""`submit`: plan, render, submit, and wait when asked to."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from slurmmiles import show
from slurmmiles.catalog import template_folders
from slurmmiles.cli import fail
from slurmmiles.commands.clients import Clients, need_slurm
from slurmmiles.commands.options import (
    build_plan,
    json_option,
    plan_options,
    print_json,
    runs_dir,
    runs_option,
)
from slurmmiles.commands.plan import refuse_missing, refuse_unfitting, warn_missing
from slurmmiles.errors import SlurmmilesError
from slurmmiles.job import Job
from slurmmiles.planfile import Plan
from slurmmiles.rundir import RunDir
from slurmmiles.runlist import refuse_active
from slurmmiles.submit import (
    checked_run_id,
    new_run_id,
    prepare,
    refuse_node_local,
    rendered,
    submit_local,
    submit_slurm,
)


@click.command()
@plan_options
@runs_option
@click.option(
    "--run-id", help="The run's name (default: recipe and time); an ended run's id resumes it."
)
@click.option("--local", is_flag=True, help="On this machine, without Slurm.")
@click.option("--dry-run", is_flag=True, help="Print the script; submit nothing.")
@click.option("--wait", is_flag=True, help="Stay until the run ends, and exit with its code.")
@json_option
def submit(
    runs: Path | None,
    run_id: str | None,
    local: bool,
    dry_run: bool,
    wait: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Submit a run of RECIPE and print its id, its job and what to type next.

    \b
    Example: slurmmiles submit --nodes 2 tiny --wait
             slurmmiles submit tiny --local --wait
    """
    clients = Clients() if local or dry_run else need_slurm()
    decided, site = build_plan(**{**options, "site": options["site"] or clients.site}, local=local)
    refuse_unfitting(decided)
    where = runs_dir(runs, site)
    if dry_run:
        warn_missing(decided)
        script = rendered(decided, template_folders(os.environ), where)
        dry = {"plan": decided.model_dump(mode="json"), "script": script}
        print_json(dry) if as_json else sys.stdout.write(script)
        return
    refuse_missing(decided)
    run = RunDir(where / checked_run_id(new_run_id(decided.recipe) if run_id is None else run_id))
    start(decided, run, local, clients.shared)
    finish(run, wait, as_json)


def start(decided: Plan, run: RunDir, local: bool, shared: tuple[Path, ...]) -> None:
    """Make the run directory and start the job; a refusal leaves no new directory."""
    if not local:
        refuse_node_local(run.path, shared)
    refuse_active(run)
    new = _missing_parts(run.path)
    try:
        prepare(run, decided)
        if local:
            submit_local(decided, run, os.environ)
        else:
            submit_slurm(decided, run, template_folders(os.environ), os.environ)
    except (SlurmmilesError, OSError, KeyboardInterrupt):
        if new:
            shutil.rmtree(run.path, ignore_errors=True)
        for folder in new[1:]:
            with contextlib.suppress(OSError):  # somebody else has put something there
                folder.rmdir()
        raise


def _missing_parts(path: Path) -> list[Path]:
    """`path` and its parents, innermost first, as far as they do not exist."""
    return [p for p in (path, *path.parents) if not p.exists()]


def finish(run: RunDir, wait: bool, as_json: bool) -> None:
    """Say what was started, or stay and say how it ended."""
    job = Job(run)
    if not wait:
        facts = {"run_id": run.run_id, "job_id": job.job_id, "run_dir": str(run.path)}
        print_json(facts) if as_json else show.submitted(run.run_id, job.job_id, run.path)
        return
    if not as_json:
        show.submitted(run.run_id, job.job_id, run.path)
    try:
        status = job.wait(show.Ticker(job, quiet=as_json))
    except KeyboardInterrupt:
        fail(f"interrupted; the run goes on: slurmmiles cancel {run.path} ends it", 130)
    print_json(show.end_fields(status)) if as_json else show.ended(status)
    sys.exit(status.exit_code)
