"""What the plan knows of the network before any node does: what is refused, what is warned of, and
what goes another way than the environment of `ray start`; pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import ceil

from slurmmiles.env_launch import judge_extra_env
from slurmmiles.env_rules import EnvContext, judge_env
from slurmmiles.errors import BadInput
from slurmmiles.fabric.node import RDZV
from slurmmiles.fabric.table import OURS, resolve_env, spoken
from slurmmiles.flagmerge import as_value, shown
from slurmmiles.layouts import Shape
from slurmmiles.planfile import DriverPlan, EnvValue, FabricPlan
from slurmmiles.recipe import FlagValue, Recipe
from slurmmiles.report import Finding, Verdict
from slurmmiles.site import Site

EXTRA_ENV = "--extra-env-vars"
PLAIN_PAIR = re.compile(r"(\w+)=(.*?)(?=\s+\w+=|\s*$)")
REAL_TIMEOUT = "--distributed-timeout-minutes"
# SGLang's and Megatron's ways to DeepEP: flag to the word that its value must hold ("" any).
DEEPEP = {
    "--sglang-moe-a2a-backend": "deepep",
    "--sglang-enable-deepep-moe": "",
    "--moe-enable-deepep": "",
    "--moe-flex-dispatcher-backend": "deepep",
}


def network_env(
    recipe: Recipe, site: Site, shape: Shape, user: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[FabricPlan, dict[str, EnvValue]]:
    """What the nodes need to know of the network, and the environment around `ray start`.

    BadInput for a variable that is the agent's, a secret, and values that are known to fail.
    """
    _refuse_ours(recipe, site)
    _refuse_lost(recipe)
    fabric = fabric_plan(recipe, site, shape)
    device = "gpu" if shape.gpus else "cpu"
    env = resolve_env(recipe, site, device=device, user=user, environ=environ, fabric=fabric)
    _refuse_conflicts(env, fabric, shape)
    return fabric, env


def _refuse_ours(recipe: Recipe, site: Site) -> None:
    for where, env in ((f"recipe {recipe.name}", recipe.env), (f"site {site.name}", site.env)):
        for name in sorted(OURS & set(env)):
            raise BadInput(
                f"{name} is set by the agent on every node", where=f"{where}, env", fix="remove it"
            )


def _refuse_lost(recipe: Recipe) -> None:
    """Values that miles' launcher would cut: plain --extra-env-vars is split at every `=`."""
    words = [*recipe.driver.script_args, *recipe.driver.argv]
    for word, following in pairwise([*words, ""]):
        option, equals, value = word.partition("=")
        text = value if equals else following
        if option != EXTRA_ENV or text.lstrip().startswith("{"):
            continue
        for finding in judge_extra_env(dict(PLAIN_PAIR.findall(text)), text):
            raise BadInput(finding.message, where=EXTRA_ENV, fix=finding.remedy)


def fabric_plan(recipe: Recipe, site: Site, shape: Shape) -> FabricPlan:
    """What the nodes need to know; BadInput for DeepEP where there is no mlx5."""
    network = str(recipe.slurm.extra.get("network", site.extra.get("network", site.network or "")))
    deepep = sorted(name for name, raw in recipe.flags.items() if _is_deepep(name, raw))
    if deepep and shape.gpus and site.fabric in ("slingshot", "efa"):
        raise BadInput(
            f"DeepEP's transport (IBGDA, IBRC) needs mlx5 adapters, and site {site.name!r} has"
            f" {site.fabric}",
            where=f"flags.{deepep[0]}",
            fix="take it out of the flags",
        )
    return FabricPlan(
        kind=site.fabric,
        multi_node=shape.nodes > 1 and shape.gpus > 0,
        traffic_class=site.traffic_class,
        rdzv_get_disabled=RDZV in network,
        deepep=bool(deepep),
        colocate=shape.rollout is not None and shape.gpus > 0,
    )


def _is_deepep(name: str, raw: FlagValue) -> bool:
    value = as_value(raw)
    return name in DEEPEP and value is not None and DEEPEP[name] in shown(value).lower()


def _refuse_conflicts(env: Mapping[str, EnvValue], fabric: FabricPlan, shape: Shape) -> None:
    """BadInput, with every one, for values that are known to fail."""
    bad = [f for f in _judged(env, fabric, shape) if f.verdict is Verdict.FAIL]
    if not bad:
        return
    first = bad[0]
    name = first.subject.partition("=")[2]
    where = f"env.{name}" if name not in env else f"env.{name}, from {env[name].origin}"
    if len(bad) == 1:
        raise BadInput(first.message, where=where, fix=first.remedy)
    lines = "\n".join(f"{f.subject.partition('=')[2]}: {f.message}; {f.remedy}" for f in bad)
    raise BadInput(
        f"{len(bad)} settings of the environment are known to fail:\n{lines}", where=where
    )


def fabric_notes(env: Mapping[str, EnvValue], fabric: FabricPlan, shape: Shape) -> Iterator[str]:
    """One sentence for each value that does not do what it seems to."""
    for finding in _judged(env, fabric, shape):
        if finding.verdict is Verdict.WARN:
            name = finding.subject.partition("=")[2]
            origin = f" (from {env[name].origin})" if name in env else ""
            yield f"{name}{origin}: {finding.message}; {finding.remedy}".rstrip("; ")
    if fabric.multi_node and fabric.kind == "auto":
        yield (
            "the site does not name its fabric: each node adds the environment of the network that"
            " it has (nodes/NODE.env.json of the run)"
        )
    if fabric.multi_node and fabric.kind == "tcp":
        yield "NCCL runs over TCP, as the site asks: about a tenth of a fabric's speed"


def _judged(env: Mapping[str, EnvValue], fabric: FabricPlan, shape: Shape) -> list[Finding]:
    about = EnvContext(
        fabric=None if fabric.kind == "auto" else fabric.kind,
        colocate=fabric.colocate,
        gpu=shape.gpu.name if shape.gpu else "",
        slurm_network=RDZV if fabric.rdzv_get_disabled else None if fabric.kind == "auto" else "",
    )
    return judge_env(spoken(env), about)


def with_job_env(driver: DriverPlan, env: Mapping[str, EnvValue]) -> DriverPlan:
    """The driver with what must be in the job's own environment too: miles reads this opt-out where
    it creates actors, and sets it on each of them (server_group.py, actor_factory.py).
    """
    entry = env.get("NVSHMEM_DISABLE_NCCL")
    if entry is None or entry.origin == "default":
        return driver
    return driver.model_copy(update={"env": {**driver.env, "NVSHMEM_DISABLE_NCCL": entry}})


def with_real_timeout(recipe: Recipe, site: Site, environ: Mapping[str, str]) -> Recipe:
    """The recipe with miles' flag for who sets NCCL_TIMEOUT (seconds), which nothing reads."""
    text = environ.get("NCCL_TIMEOUT") or recipe.env.get("NCCL_TIMEOUT")
    value = str(text or site.env.get("NCCL_TIMEOUT") or "")
    known = value.isdecimal() and 0 < int(value) < 10**7
    if not known or REAL_TIMEOUT in recipe.flags or recipe.driver.entry not in ("train", "script"):
        return recipe
    flags = {**recipe.flags, REAL_TIMEOUT: ceil(int(value) / 60)}
    return recipe.model_copy(update={"flags": flags})
