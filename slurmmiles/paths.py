"""Directories that a recipe only names: {models}, {data}, {miles} and {megatron}; pure.

Each comes from `--var NAME=DIR`, else from the recipe's driver section, else from the site, else
(miles, megatron) from MILES_DIR and MEGATRON_DIR of the environment. One that nobody gives stays as
it is in the plan, and the run cannot be submitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from slurmmiles.errors import BadInput, did_you_mean
from slurmmiles.planfile import Missing
from slurmmiles.recipe import Recipe
from slurmmiles.site import Site

# Not after a dollar: there it is the shell's own `${data}`.
PATH = re.compile(r"(?<!\$)\{(models|data|miles|megatron)\}")
FIXES = {
    "models": "give --var models=DIR, or `models` in the site file: the directory of checkpoints",
    "data": "give --var data=DIR, or `data` in the site file: the directory of data sets",
    "miles": (
        "give --var miles=DIR, driver.miles_dir, `miles` in the site file, or MILES_DIR in the"
        " environment: the directory with miles' train.py, as the nodes see it"
    ),
    "megatron": "give --var megatron=DIR, or MEGATRON_DIR in the environment",
}


def parse_variables(texts: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` words of --var; BadInput for another form, or one name with two values."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise BadInput(f"{text!r} is not of the form NAME=VALUE", where="--var")
        if not value.isprintable():
            raise BadInput("control characters are not allowed here", where=f"--var {name}")
        if found.get(name, value) != value:
            raise BadInput(
                f"{name} is given twice, as {found[name]!r} and as {value!r}",
                where="--var",
                fix="give it once",
            )
        found[name] = value
    return found


def refuse_unknown(variables: Mapping[str, str], known: Iterable[str]) -> None:
    """BadInput for a --var that nothing uses."""
    names = [*FIXES, *known]
    for name in variables:
        if name not in names:
            raise BadInput(
                f"nothing here uses {name}", where="--var", fix=did_you_mean(name, names)
            )


def known_paths(
    recipe: Recipe, site: Site, variables: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The directories that are known."""
    given = {
        "models": site.models,
        "data": site.data,
        "miles": recipe.driver.miles_dir or site.miles or environ.get("MILES_DIR"),
        "megatron": recipe.driver.megatron_dir or site.megatron or environ.get("MEGATRON_DIR"),
    }
    found = {name: variables.get(name) or value for name, value in given.items()}
    return {name: value.rstrip("/") or "/" for name, value in found.items() if value}


def expanded(value: Any, known: Mapping[str, str]) -> Any:
    """`value` with each known `{name}` replaced, through lists and mappings."""
    if isinstance(value, str):
        return PATH.sub(lambda m: known.get(m[1], m[0]), value)
    if isinstance(value, Mapping):
        return {k: expanded(v, known) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(expanded(v, known) for v in value)
    return value


def missing_paths(texts: Iterable[str]) -> tuple[Missing, ...]:
    """What still stands as `{name}` in any of the texts."""
    names = sorted({m[1] for text in texts for m in PATH.finditer(text)})
    return tuple(Missing(name=f"{{{name}}}", fix=FIXES[name]) for name in names)
