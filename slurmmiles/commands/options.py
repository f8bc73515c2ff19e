"""Options that commands share, and the one way from them to a plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from slurmmiles.catalog import Catalog
from slurmmiles.jsonfile import to_json
from slurmmiles.plan import Request, make_plan
from slurmmiles.planfile import Plan
from slurmmiles.site import Site
from slurmmiles.sitefind import choose_site
from slurmmiles.yamlfile import env_names

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def plan_options(function: F) -> F:
    """RECIPE and everything that changes its plan."""
    for option in reversed(
        (
            click.argument("recipe"),
            click.option("--nodes", type=int, help="Number of nodes (default: the recipe's)."),
            click.option(
                "--gpus-per-node", type=int, help="GPUs of each node (default: the recipe's)."
            ),
            click.option(
                "--gpu", help="The kind of GPU, a name of configs/gpus (default: the site's)."
            ),
            click.option("--site", help="A site's name or file (default: detected)."),
            click.option(
                "--spares", type=int, default=0, show_default=True, help="Nodes to allocate on top."
            ),
            click.option(
                "--set",
                "settings",
                multiple=True,
                metavar="A.B=V",
                help="Change a key of the recipe.",
            ),
        )
    ):
        function = option(function)
    return function


def runs_option(function: F) -> F:
    return click.option(
        "--runs",
        envvar="SLURMMILES_RUNS",
        type=click.Path(path_type=Path),
        help="The directory of runs (or SLURMMILES_RUNS; default: the site's, or ./runs).",
    )(function)


def build_plan(
    recipe: str,
    nodes: int | None,
    gpus_per_node: int | None,
    gpu: str | None,
    site: str | None,
    spares: int,
    settings: tuple[str, ...],
    *,
    local: bool = False,
) -> tuple[Plan, Site]:
    """The plan and the site that it was made for; BadInput with every rule that is broken."""
    catalog = Catalog.from_env(os.environ)
    chosen_site = choose_site(catalog, site, local=local)
    chosen = catalog.recipe(recipe, settings)
    kind = gpu or chosen_site.gpu or "h200"
    request = Request(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        spares=spares,
        local=local,
        user_env=dict.fromkeys(env_names(settings), ""),
    )
    plan = make_plan(
        chosen,
        chosen_site,
        request,
        model=catalog.model(chosen.model.facts) if chosen.model.facts else None,
        gpu=catalog.gpu(kind),
    )
    return plan, chosen_site


def runs_dir(runs: Path | None, site: Site | None) -> Path:
    """Where runs are kept, absolute."""
    chosen = runs or (Path(site.runs) if site and site.runs else Path("runs"))
    return chosen.absolute()


def print_json(value: Any) -> None:
    click.echo(to_json(value))
