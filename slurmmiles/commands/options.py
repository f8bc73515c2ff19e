"""Options that commands share, and the one way from them to a plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slurmmiles.asked import asked_for
from slurmmiles.jsonfile import to_json
from slurmmiles.paths import parse_variables, refuse_unknown
from slurmmiles.plan import Request, make_plan, sizes_of
from slurmmiles.planfile import Plan
from slurmmiles.site import Site
from slurmmiles.yamlfile import env_names

if TYPE_CHECKING:
    from slurmmiles.explore import Exploration

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
            click.option(
                "--var",
                "variables",
                multiple=True,
                metavar="NAME=VALUE",
                help="A directory (models, data, miles, megatron) or a run block's variable.",
            ),
        )
    ):
        function = option(function)
    return function


def runs_option(function: F) -> F:
    """Where runs are kept."""
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
    variables: tuple[str, ...] = (),
    *,
    local: bool = False,
) -> tuple[Plan, Site]:
    """The plan and the site that it was made for; BadInput with every rule that is broken."""
    asked = asked_for(os.environ, recipe, gpu, site, settings, local=local)
    request = Request(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        spares=spares,
        local=local,
        user_env=dict.fromkeys(env_names(settings), ""),
        variables=parse_variables(variables),
        environ=os.environ,
        gpu_assumed=asked.gpu_assumed,
    )
    refuse_unknown(request.variables, asked.run.variables if asked.run else ())
    plan = make_plan(
        asked.recipe, asked.site, request, model=asked.model, gpu=asked.gpu, run=asked.run
    )
    return plan, asked.site


def build_exploration(
    recipe: str,
    nodes: int | None,
    gpus_per_node: int | None,
    gpu: str | None,
    site: str | None,
    settings: tuple[str, ...],
    **_ignored: Any,
) -> Exploration:
    """All layouts of RECIPE's model on the GPUs that are asked for, ranked."""
    from slurmmiles.explore import explore

    asked = asked_for(os.environ, recipe, gpu, site, settings)
    request = Request(nodes=nodes, gpus_per_node=gpus_per_node)
    count, gpus = sizes_of(asked.recipe, asked.site, request)
    host_gb = asked.site.host_memory_gb
    return explore(asked.recipe, asked.model, asked.gpu, nodes=count, gpus=gpus, host_gb=host_gb)


def runs_dir(runs: Path | None, site: Site | None) -> Path:
    """Where runs are kept, absolute."""
    chosen = runs or (Path(site.runs) if site and site.runs else Path("runs"))
    return chosen.absolute()


def print_json(value: Any) -> None:
    """The answer of `--json`: one value, and nothing else on stdout."""
    click.echo(to_json(value))
