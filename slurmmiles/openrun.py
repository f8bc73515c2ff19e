"""The run block of an OpenRecipes file as the driver: in miles' directory, on our Ray cluster."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from slurmmiles.errors import BadInput
from slurmmiles.fabric import SECRET
from slurmmiles.miles import miles_env
from slurmmiles.paths import expanded, missing_paths
from slurmmiles.planfile import PLACEHOLDER, DriverPlan, EnvValue, Missing
from slurmmiles.recipe import Recipe
from slurmmiles.runblock import cluster_commands, substituted, undefined_variables, without_lines

BASH = ("bash", "-euo", "pipefail", "-c")


@dataclass(frozen=True, slots=True)
class OpenRun:
    """What the file gives to the driver: shell text, the variables that it needs, and notes."""

    text: str
    variables: tuple[str, ...]
    notes: tuple[str, ...]
    checks: tuple[str, ...] = ()
    """Parts of the file that contradict each other, each with both values."""


def open_run(text: str, env: Mapping[str, str], *, where: str, checks: tuple[str, ...]) -> OpenRun:
    """The block without its own Ray commands; BadInput where one cannot be told from the rest.

    `env` is the file's own table: set around every process, so the block need not set it.
    """
    notes, spans = [], list[tuple[int, int]]()
    for first, last, command, alone in cluster_commands(text):
        if not alone:
            raise BadInput(
                f"line {first} of the run block starts or ends processes and does more:"
                f" {command!r}",
                where=where,
                fix="put its Ray and kill commands on lines of their own: Ray is started for it",
            )
        spans.append((first, last))
        notes.append(
            f"line {first} of the run block is left out, because Ray is started and ended around"
            f" it: {command}"
        )
    text = without_lines(text, spans) if spans else text
    if not spans:
        notes.append("the run block starts no Ray of its own: it joins the run's cluster")
    found = PLACEHOLDER.search(text)
    if found:
        notes.append(f"{found[0]} in the run block is filled in by the agent")
    needed = dict.fromkeys(undefined_variables(text))
    for value in env.values():
        needed |= dict.fromkeys(undefined_variables(f'"{value}"'))
    names = tuple(name for name in needed if name not in env)
    return OpenRun(text, names, tuple(notes), checks)


def refuse_other_size(recipe: Recipe, nodes: int, gpus: int) -> None:
    """BadInput when other nodes are asked for than the run block's flags are written for."""
    s = recipe.slurm
    if (nodes, gpus) != (s.nodes, s.gpus_per_node):
        raise BadInput(
            f"the run block is written for {s.nodes} nodes of {s.gpus_per_node} GPUs, and"
            f" {nodes} of {gpus} are asked for",
            where="--nodes, --gpus-per-node",
            fix="leave them out, or change gpu and run in a copy of the file",
        )


def open_driver(
    run: OpenRun,
    known: Mapping[str, str],
    variables: Mapping[str, str],
    environ: Mapping[str, str],
    env: Mapping[str, EnvValue],
) -> tuple[DriverPlan, dict[str, EnvValue], tuple[Missing, ...]]:
    """The driver, the environment of all nodes with its variables filled in, and what is missing.

    A variable with a secret's name is not written down: the job inherits it.
    """
    values: dict[str, str] = {}
    job: dict[str, EnvValue] = {}
    missing: list[Missing] = []
    for name in run.variables:
        value = variables.get(name, environ.get(name))
        if SECRET.search(name) and name in variables:
            raise BadInput(
                f"{name} holds a secret, which would be written into plan.json",
                where="--var",
                fix=f"export {name} in the shell that submits",
            )
        if value is None:
            missing.append(
                Missing(name=f"${name}", fix=f"give --var {name}=VALUE, or export {name}")
            )
        elif not SECRET.search(name):
            values[name] = value
            job[name] = EnvValue(
                value=value,
                origin="user" if name in variables else "environment",
                why="a variable of the run block",
            )
    job |= {
        name: entry.model_copy(update={"value": expanded(entry.value, known)})
        for name, entry in miles_env(megatron="megatron" in known).items()
    }
    text = f"cd {shlex.quote(known.get('miles', '{miles}'))}\n{run.text}"
    filled_env = {
        name: entry.model_copy(update={"value": substituted(entry.value, values)})
        for name, entry in env.items()
    }
    plan = DriverPlan(entry="openrecipes", argv=(*BASH, text), env=job)
    paths = missing_paths(("",) if "miles" in known else ("{miles}",))
    return plan, filled_env, (*missing, *paths)
