"""`recipes` and `sites`: what there is to run and where."""

from __future__ import annotations

import os
from typing import Any

import click

from slurmmiles import show
from slurmmiles.catalog import Catalog
from slurmmiles.commands.options import json_option, print_json
from slurmmiles.sitefind import detect


def _catalog() -> Catalog:
    return Catalog.from_env(os.environ)


def _list(kind: str, load: Any, as_json: bool) -> None:
    rows = [
        {"name": n, "description": load(str(f)).description, "file": str(f)}
        for n, f in _catalog().files(kind).items()
    ]
    if as_json:
        print_json(rows)
    else:
        show.listing(rows)


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def recipes(ctx: click.Context, as_json: bool) -> None:
    """List the recipes that ship and those that you added, one a line.

    \b
    Example: slurmmiles recipes
             slurmmiles recipes show tiny
    """
    if ctx.invoked_subcommand is None:
        _list("recipes", _catalog().recipe, as_json)


@recipes.command("show")
@click.argument("name")
@click.option(
    "--set", "settings", multiple=True, metavar="A.B=V", help="Change a key of the recipe."
)
@json_option
def show_recipe(name: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Print the recipe NAME with every key resolved.

    \b
    Example: slurmmiles recipes show tiny --set optimizer.lr=1e-4
    """
    value = _catalog().recipe(name, settings).model_dump(mode="json")
    print_json(value) if as_json else click.echo(show.as_yaml(value), nl=False)


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def sites(ctx: click.Context, as_json: bool) -> None:
    """List the sites that ship and those that you added, one a line.

    \b
    Example: slurmmiles sites
             slurmmiles sites detect
    """
    if ctx.invoked_subcommand is None:
        _list("sites", _catalog().site, as_json)


@sites.command("show")
@click.argument("name")
@json_option
def show_site(name: str, as_json: bool) -> None:
    """Print the site NAME with every key resolved.

    \b
    Example: slurmmiles sites show generic
    """
    value = _catalog().site(name).model_dump(mode="json")
    print_json(value) if as_json else click.echo(show.as_yaml(value), nl=False)


@sites.command("detect")
@json_option
def detect_site(as_json: bool) -> None:
    """Name the site of this machine and say why.

    \b
    Example: slurmmiles sites detect
    """
    name, why = detect(_catalog())
    print_json({"site": name, "why": why}) if as_json else click.echo(f"{name}: {why}")
