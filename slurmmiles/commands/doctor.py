"""`doctor`: is this login node fit to submit from?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from slurmmiles import show
from slurmmiles.catalog import Catalog
from slurmmiles.commands.clients import find_slurm
from slurmmiles.commands.options import json_option, print_json, runs_dir, runs_option
from slurmmiles.health import examine
from slurmmiles.report import Report, Verdict
from slurmmiles.sitefind import choose_site


@click.command()
@runs_option
@click.option("--site", help="The site to check against this machine (default: detected).")
@json_option
def doctor(runs: Path | None, site: str | None, as_json: bool) -> None:
    """Check Slurm's tools, the site file, the run directory, the container runtime and the
    versions; exit 2 if one is unfit.

    \b
    Example: slurmmiles doctor --runs /shared/me/runs
             slurmmiles doctor --site perlmutter
    """
    clients = find_slurm()
    catalog = Catalog.from_env(os.environ)
    chosen = choose_site(catalog, site or clients.site, env=os.environ)
    report = Report.of(examine(runs_dir(runs, chosen), chosen))
    print_json(report.model_dump(mode="json")) if as_json else show.report(report)
    sys.exit(2 if report.verdict is Verdict.FAIL else 0)
