"""`plan` and `render`: look before anything is submitted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from slurmmiles.catalog import template_folders
from slurmmiles.commands.options import (
    build_exploration,
    build_plan,
    json_option,
    plan_options,
    print_json,
    runs_dir,
    runs_option,
)
from slurmmiles.errors import BadInput
from slurmmiles.nodetrees import dump_tables, table_lines, with_nodes
from slurmmiles.planfile import Missing, Plan
from slurmmiles.plantext import exploration_lines, plan_lines


@click.command()
@plan_options
@click.option("--explore", is_flag=True, help="Rank all valid layouts of the model on these GPUs.")
@click.option(
    "--node-facts",
    type=click.Path(path_type=Path),
    help="A folder that describes each node's network: NODE/sys/..., NODE.txt or NODE.json.",
)
@json_option
def plan(explore: bool, node_facts: Path | None, as_json: bool, **options: Any) -> None:
    """Print every decision of a run of RECIPE: layout, memory, environment, driver, Slurm request,
    cost.

    Works on a laptop without Slurm, torch or GPUs. RECIPE is a name of `slurmmiles recipes`, a
    file, or an OpenRecipes file.

    \b
    Example: slurmmiles plan tiny --nodes 2 --set optimizer.lr=1e-4
             slurmmiles plan nemotron-ultra --gpu H100 --json
             slurmmiles plan inkling-small --explore
    """
    if explore:
        found = build_exploration(**options)
        print_json(found.model_dump(mode="json")) if as_json else _print(exploration_lines(found))
        return
    decided, tables = with_nodes(build_plan(**options)[0], node_facts)
    if as_json:
        own = {"node_env": dump_tables(tables)} if tables else {}
        print_json({**decided.model_dump(mode="json"), **own})
    else:
        from slurmmiles import show

        show.plan(decided)
        _print((*plan_lines(decided), *table_lines(tables)))
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
    warn_missing(decided)
    sys.stdout.write(rendered(decided, template_folders(os.environ), runs_dir(runs, site)))


def _print(lines: Any) -> None:
    for line in lines:
        click.echo(line)


def refuse_unfitting(decided: Plan) -> None:
    """BadInput for a plan that cannot work: too large for the memory, or a run block without its
    variables.
    """
    if decided.memory.verdict == "does not fit":
        on = f"{decided.nodes} x {decided.ranks_per_node} {decided.gpu or 'CPU ranks'}"
        why = "\n  ".join(decided.memory.shortfalls)
        raise BadInput(
            f"recipe {decided.recipe!r} does not fit in memory on {on}:\n  {why}", where="memory"
        )
    if any(part.name.startswith("$") for part in decided.missing):
        raise BadInput(f"the run block needs {_listed(decided.missing)}", where="--var")


def refuse_missing(decided: Plan) -> None:
    """BadInput for a plan that names a directory which nobody gave: for what is submitted."""
    if decided.missing:
        raise BadInput(f"recipe {decided.recipe!r} needs {_listed(decided.missing)}")


def warn_missing(decided: Plan) -> None:
    """The same in words on stderr, for a script that is only looked at."""
    for part in decided.missing:
        click.echo(f"Warning: {part.name} is not known, and the run needs it: {part.fix}", err=True)


def _listed(parts: Any) -> str:
    found: tuple[Missing, ...] = tuple(parts)
    return "\n".join(
        [", ".join(part.name for part in found), *(f"  {part.name}: {part.fix}" for part in found)]
    )
