"""Plain lines of text for `plan`: what differs from miles, how traffic reaches, ranked layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from slurmmiles.planfile import Plan

if TYPE_CHECKING:
    from slurmmiles.explore import Exploration

TRAFFIC = {
    "tp": "TP all-reduce",
    "cp": "CP ring",
    "ep": "EP all-to-all",
    "pp": "PP send",
    "dp": "DP gradients",
    "edp": "expert gradients",
    "weights": "weight update",
}


def plan_lines(plan: Plan) -> Iterator[str]:
    """What stands after the plan's own table."""
    reaches = [f"{name} {plan.traffic[key]}" for key, name in TRAFFIC.items()
               if plan.traffic.get(key, "none") != "none"]  # fmt: skip
    if reaches:
        yield f"traffic  {'; '.join(reaches)}"
    for name, entry in plan.driver.env.items():
        yield f"job env  {name}={entry.value}  ({entry.origin}: {entry.why})"
    if plan.differs_from_miles:
        yield "differs from miles"
    for part in plan.differs_from_miles:
        yield (
            f"  {part.flag}: {part.miles or 'not given'} -> {part.ours or 'left out'}  ({part.why})"
        )


def exploration_lines(found: Exploration) -> Iterator[str]:
    """The cost model, then one line a layout with its reason below it."""
    yield (
        f"{len(found.layouts)} valid layouts of {found.recipe} on {found.nodes} x"
        f" {found.gpus_per_node} {found.gpu}: those that fit first, then by the seconds of a step"
    )
    for line in found.cost_model:
        yield f"  {line}"
    yield f"{'rank':>4}  {'TP':>3} {'PP':>3} {'CP':>3} {'EP':>4} {'DP':>4}  {'step':>8}  memory"
    for r in found.layouts:
        mine = "  <- the recipe's" if r.is_recipe else ""
        yield (
            f"{r.rank:>4}  {r.tp:>3} {r.pp:>3} {r.cp:>3} {r.ep:>4} {r.dp:>4}  {r.step_s:>7.2f}s "
            f" {r.verdict}{mine}"
        )
        yield f"      {r.why}"
