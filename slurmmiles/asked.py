"""What a plan is made from, out of the catalog: recipe, site, model, GPU and run block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmmiles.catalog import Catalog, OpenFile
from slurmmiles.errors import BadInput, did_you_mean
from slurmmiles.gpus import GpuFacts
from slurmmiles.models import ModelFacts
from slurmmiles.openchecks import contradictions
from slurmmiles.openrun import OpenRun, open_run
from slurmmiles.recipe import Recipe
from slurmmiles.site import Site
from slurmmiles.sitefind import choose_site

ASSUMED_GPU = "h200"
"""miles' recipes are tested on it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the names on the command line stand for."""

    recipe: Recipe
    site: Site
    model: ModelFacts | None
    gpu: GpuFacts
    gpu_assumed: bool
    run: OpenRun | None


def asked_for(
    env: Mapping[str, str],
    recipe: str,
    gpu: str | None,
    site: str | None,
    settings: Sequence[str],
    *,
    local: bool = False,
) -> Asked:
    """Load all of it; BadInput, with file and line or did-you-mean, for what cannot be read.

    The kind of GPU is the command line's, else the site's, else the OpenRecipes file's.
    """
    catalog = Catalog.from_env(env)
    chosen_site = choose_site(catalog, site, local=local, env=env)
    opened = catalog.open_recipe(recipe, settings)
    chosen = opened.recipe if opened else catalog.recipe(recipe, settings)
    model = catalog.model(chosen.model.facts) if chosen.model.facts else None
    kind = gpu or chosen_site.gpu or (_gpu_of(catalog, opened) if opened else None)
    card = catalog.gpu(kind or ASSUMED_GPU)
    run = _run(opened, model, card) if opened else None
    return Asked(chosen, chosen_site, model, card, kind is None, run)


def _gpu_of(catalog: Catalog, opened: OpenFile) -> str:
    kind = opened.file.gpu.type
    known = list(catalog.files("gpus"))
    if kind.lower() not in known:
        raise BadInput(
            f"unknown gpu {kind!r}",
            where=f"{opened.path}, gpu.type",
            fix=f"{did_you_mean(kind.lower(), known)} or give --gpu",
        )
    return kind


def _run(opened: OpenFile, model: ModelFacts | None, gpu: GpuFacts) -> OpenRun:
    file = opened.file
    checks = contradictions(file, model, gpu)
    return open_run(file.run, file.environment, where=f"{opened.path}, run", checks=checks)
