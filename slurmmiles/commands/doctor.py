"""`doctor`: is this login node fit to submit from?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slurmmiles import show
from slurmmiles.commands.clients import find_slurm
from slurmmiles.commands.options import json_option, print_json, runs_dir, runs_option
from slurmmiles.health import examine
from slurmmiles.report import Report, Verdict


@click.command()
@runs_option
@json_option
def doctor(runs: Path | None, as_json: bool) -> None:
    """Check Slurm's tools, the run directory, the container runtime and the versions; exit 2 if one
    is unfit.

    \b
    Example: slurmmiles doctor --runs /shared/me/runs
    """
    find_slurm()
    report = Report.of(examine(runs_dir(runs, None)))
    print_json(report.model_dump(mode="json")) if as_json else show.report(report)
    sys.exit(2 if report.verdict is Verdict.FAIL else 0)
