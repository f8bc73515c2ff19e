"""What a plan says in words beside its decisions: assumptions, hints, and what to mind; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurmmiles.drivers import MILES
from slurmmiles.gpu_rules import gpu_notes, smaller_tp
from slurmmiles.layouts import Shape
from slurmmiles.memory import MemoryFit
from slurmmiles.openrun import OpenRun
from slurmmiles.planfile import Missing
from slurmmiles.recipe import Recipe
from slurmmiles.topology import warnings


def notes_of(
    recipe: Recipe,
    shape: Shape,
    memory: MemoryFit,
    missing: Iterable[Missing],
    run: OpenRun | None,
    *,
    assumed: bool,
) -> Iterator[str]:
    """One sentence each, the most urgent first; `assumed`: the kind of GPU was not given."""
    for part in missing:
        yield f"{part.name} is not known, so the run cannot be submitted: {part.fix}"
    if run:
        yield from run.checks
    if shape.gpu:
        yield from gpu_notes(shape.gpu, shape.ranks, assumed=assumed)
        yield from warnings(shape.topology, shape.ranks) if shape.model else ()
    hint = smaller_tp(recipe, shape, memory) if recipe.driver.entry in MILES else None
    if hint:
        yield hint
    yield from _driver_notes(recipe)
    if run:
        yield from run.notes


def _driver_notes(recipe: Recipe) -> Iterator[str]:
    entry = recipe.driver.entry
    if entry in MILES and recipe.checkpoint.interval is None:
        yield "nothing is saved, so nothing can be resumed: checkpoint.interval is not set"
    if entry == "script":
        yield (
            "miles' launcher runs `pkill -9` on sglang, miles and redis: no other run of yours may"
            " share the head node"
        )
        yield "flags that miles' launcher passes itself can be changed and not be left out"
    if entry == "openrecipes":
        yield "the run block is run as it is: it resumes only if its own flags say so"
