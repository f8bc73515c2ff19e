"""`recipes` and `sites`: what there is to run and where."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from slurmmiles import show
from slurmmiles.catalog import Catalog
from slurmmiles.commands.clients import find_slurm
from slurmmiles.commands.options import json_option, print_json
from slurmmiles.sitefind import detect, network_here
from slurmmiles.siteinit import look, propose, write_site


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
    """Name the site and the fabric of this machine and say why.

    \b
    Example: slurmmiles sites detect
    """
    name, why = detect(_catalog())
    fabric, fabric_why = network_here()
    if as_json:
        print_json({"site": name, "why": why, "fabric": fabric, "fabric_why": fabric_why})
    else:
        click.echo(f"{name}: {why}\nfabric {fabric}: {fabric_why}")


@sites.command("init")
@click.argument("name", required=False)
@click.option("--extends", "base", help="The site to build on (default: the one detected).")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print the file; write nothing.")
@click.option("--force", is_flag=True, help="Replace a file of this name.")
def init_site(name: str | None, base: str | None, to_stdout: bool, force: bool) -> None:
    """Write a site file of your own from what this machine shows: Slurm's partitions and accounts,
    network, containers. What is not clear is asked here, or at each submission.

    \b
    Example: slurmmiles sites init mycluster
    """
    clients, catalog = find_slurm(), _catalog()
    seen = look()
    name = name or seen.cluster or "mine"
    built_on = catalog.site(base or clients.site or detect(Catalog(catalog.roots[-1:]))[0])
    keys = propose(seen, base=built_on, gpus=catalog.files("gpus"), ask=_asker())
    text = f"# Written by `slurmmiles sites init`; see `slurmmiles sites show {name}`.\n"
    text += show.as_yaml({"description": f"{name}, as found by sites init", **keys})
    if to_stdout:
        click.echo(text, nl=False)
    else:
        click.echo(f"written: {write_site(catalog, name, text, force=force)}")


def _asker() -> Callable[[str, Sequence[str]], str] | None:
    """Questions are for a terminal; Enter leaves one open."""
    if not sys.stdin.isatty():
        return None

    def ask(key: str, choices: Sequence[str]) -> str:
        shown = ", ".join(choices)
        return str(click.prompt(f"{key} ({shown})", default="", show_default=False)).strip()

    return ask
