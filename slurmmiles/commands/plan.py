"""`plan` and `render`: look before anything is submitted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from slurmmiles import show
from slurmmiles.catalog import shipped
from slurmmiles.commands.options import (
    build_plan,
    json_option,
    plan_options,
    print_json,
    runs_dir,
    runs_option,
)
from slurmmiles.errors import BadInput
from slurmmiles.planfile import Plan


@click.command()
@plan_options
@json_option
def plan(as_json: bool, **options: Any) -> None:
    """Print every decision of a run of RECIPE: layout, memory, environment, driver, Slurm request,
    cost.

    Works on a laptop without Slurm, torch or GPUs. RECIPE is a name of `slurmmiles recipes` or a
    file.

    \b
    Example: slurmmiles plan tiny --nodes 2 --set optimizer.lr=1e-4
    """
    decided, _ = build_plan(**options)
    print_json(decided.model_dump(mode="json")) if as_json else show.plan(decided)
    refuse_unfitting(decided)


@click.command()
@plan_options
@runs_option
def render(runs: Path | None, **options: Any) -> None:
    """Print the sbatch script of a run of RECIPE; `sbatch` on it works without submitit.

    \b
    Example: slurmmiles render tiny --nodes 2 > job.sbatch && sbatch job.sbatch
    """
    from slurmmiles.submit import rendered

    decided, site = build_plan(**options)
    refuse_unfitting(decided)
    sys.stdout.write(rendered(decided, shipped("sbatch_templates"), runs_dir(runs, site)))


def refuse_unfitting(decided: Plan) -> None:
    """BadInput when trainer and rollout do not fit: nothing that cannot work is submitted."""
    if decided.memory.verdict == "does not fit":
        why = decided.memory.notes[0] if decided.memory.notes else "see `slurmmiles plan`"
        raise BadInput(
            f"recipe {decided.recipe!r} does not fit in memory: {why}", where=f"site {decided.site}"
        )
