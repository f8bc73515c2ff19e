"""Every decision of a run, from a recipe, a site and what the command line asks for; no I/O.

What comes after (script, agent, Ray, driver) obeys the plan; what cannot work is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, gcd
from typing import Literal

from slurmmiles.drivers import MILES, driver_plan, miles_driver, trainer_config
from slurmmiles.errors import BadInput
from slurmmiles.fabric import OURS, resolve_env
from slurmmiles.gpu_rules import refuse_fp8
from slurmmiles.gpus import GpuFacts
from slurmmiles.layouts import layout_of, memory_of
from slurmmiles.miles import Ask
from slurmmiles.models import ModelFacts
from slurmmiles.openrun import OpenRun, open_driver
from slurmmiles.paths import expanded, known_paths, missing_paths
from slurmmiles.planfile import (
    Cost, Difference, DriverPlan, EnvValue, Missing, Plan, PreflightPlan, RayPlan,
)
from slurmmiles.plannotes import notes_of
from slurmmiles.recipe import MAX_GPUS_PER_NODE, Recipe
from slurmmiles.request import slurm_request, wall_seconds
from slurmmiles.site import Site
from slurmmiles.topology import Rollout, Topology, traffic

MAX_NODES = 8192
CPU_OBJECT_STORE_BYTES = 200_000_000  # a few million parameters, on a laptop's /dev/shm


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line adds to recipe and site; None leaves the value to them."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    spares: int = 0
    local: bool = False
    user_env: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    """What `--var` gives."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The environment of the command: MILES_DIR, MEGATRON_DIR, variables of a run block."""
    gpu_assumed: bool = False


def make_plan(
    recipe: Recipe,
    site: Site,
    request: Request,
    *,
    model: ModelFacts | None = None,
    gpu: GpuFacts | None = None,
    run: OpenRun | None = None,
) -> Plan:
    """The plan of `recipe` on `site`; BadInput, with every broken rule, when it cannot work.

    `run` is the run block of an OpenRecipes file, for entry openrecipes.
    """
    nodes = _node_count(recipe, request)
    gpus = _gpus_per_node(recipe, site, request)
    ranks = _ranks_per_node(recipe, nodes, gpus)
    card = gpu if gpus else None
    if card:
        refuse_fp8(recipe, card)
    topology, rollout = layout_of(recipe, model, nodes, ranks)
    _refuse_our_env(recipe, site)
    device: Literal["gpu", "cpu"] = "gpu" if gpus else "cpu"
    env = resolve_env(recipe, site, device=device, user=request.user_env)
    known = known_paths(recipe, site, request.variables, request.environ)
    checkpoints = recipe.checkpoint.dir or "{run_dir}/checkpoints"
    driver, env, differs, missing = _driver(
        Asked(recipe, request, model, card, topology, rollout, nodes, gpus, checkpoints, run),
        known,
        env,
    )
    memory = memory_of(
        recipe, model, card, topology, rollout, ranks=ranks, host_memory_gb=site.host_memory_gb
    )
    trainer = trainer_config(
        recipe, model, topology, rollout, nodes=nodes, ranks=ranks, device=device
    )
    return Plan(
        recipe=recipe.name,
        description=recipe.description,
        site=site.name,
        device=device,
        nodes=nodes,
        spares=request.spares,
        gpus_per_node=gpus,
        ranks_per_node=ranks,
        topology=topology,
        rollout=rollout,
        memory=memory,
        env=env,
        driver=driver,
        trainer=trainer,
        ray=_ray(recipe, gpus, ranks),
        preflight=_preflight(recipe, gpus),
        slurm=slurm_request(recipe, site, nodes=nodes + request.spares, gpus_per_node=gpus),
        cost=_cost(recipe, site, nodes + request.spares, gpus),
        interface=site.interface,
        scratch=site.scratch,
        python=site.python or "",
        checkpoints=expanded(checkpoints, known),
        gpu=card.name if card else None,
        traffic=traffic(topology, ranks, rollout.nodes_per_engine if rollout else 1),
        differs_from_miles=differs,
        missing=missing,
        notes=(),
    )


def _node_count(recipe: Recipe, request: Request) -> int:
    nodes = recipe.slurm.nodes if request.nodes is None else request.nodes
    if not 1 <= nodes <= MAX_NODES:
        raise BadInput(
            f"{nodes} nodes were asked for", where="--nodes", fix=f"give 1 to {MAX_NODES}"
        )
    if not 0 <= request.spares <= MAX_NODES - nodes:
        raise BadInput(
            f"{request.spares} spares were asked for",
            where="--spares",
            fix=f"give 0 to {MAX_NODES - nodes}",
        )
    if request.local and request.spares:
        raise BadInput("a local run has no spare nodes", where="--spares", fix="leave --spares out")
    return nodes


def _gpus_per_node(recipe: Recipe, site: Site, request: Request) -> int:
    asked = request.gpus_per_node
    if asked is None:
        return recipe.slurm.gpus_per_node
    if not 0 <= asked <= MAX_GPUS_PER_NODE:
        raise BadInput(
            f"{asked} GPUs per node were asked for",
            where="--gpus-per-node",
            fix=f"give 0 to {MAX_GPUS_PER_NODE}",
        )
    if site.gpus_per_node is not None and asked > site.gpus_per_node:
        raise BadInput(
            f"{asked} GPUs per node were asked for and a node of site {site.name!r} has"
            f" {site.gpus_per_node}",
            where="--gpus-per-node",
            fix=f"give at most {site.gpus_per_node}",
        )
    return asked


def _ranks_per_node(recipe: Recipe, nodes: int, gpus: int) -> int:
    """One rank a GPU; on CPUs the fewest that give data parallelism of two on the model-parallel
    grid.
    """
    if gpus:
        return gpus
    if recipe.slurm.ranks_per_node:
        return recipe.slurm.ranks_per_node
    if recipe.driver.entry != "native":
        return 1
    cell = recipe.parallel.tp * recipe.parallel.pp * recipe.parallel.cp
    step = cell // gcd(cell, nodes)  # the ranks of all nodes are then a multiple of the cell
    return step * ceil(2 * cell / (nodes * step))


def _refuse_our_env(recipe: Recipe, site: Site) -> None:
    for where, env in ((f"recipe {recipe.name}", recipe.env), (f"site {site.name}", site.env)):
        for name in sorted(OURS & set(env)):
            raise BadInput(
                f"{name} is set by the agent on every node", where=f"{where}, env", fix="remove it"
            )


def _ray(recipe: Recipe, gpus: int, ranks: int) -> RayPlan:
    """On CPUs Ray counts slots, not cores: each rank and each engine of a node needs one, whatever
    nproc says.
    """
    return RayPlan(
        num_cpus=None if gpus else max(4, 2 * ranks + 2),
        num_gpus=gpus,
        object_store_bytes=(
            None if gpus and recipe.driver.entry != "gate-check" else CPU_OBJECT_STORE_BYTES
        ),
        join_deadline_s=recipe.preflight.join_deadline_s,
    )


def _preflight(recipe: Recipe, gpus: int) -> PreflightPlan:
    p = recipe.preflight
    return PreflightPlan(
        deadline_s=p.deadline_s,
        min_tcp_gbit_s=p.min_tcp_gbit_s,
        max_tcp_latency_ms=p.max_tcp_latency_ms,
        min_nofile=p.min_nofile,
        memlock_unlimited=gpus > 0,
    )


def _cost(recipe: Recipe, site: Site, nodes: int, gpus: int) -> Cost:
    hours = nodes * gpus * wall_seconds(recipe.slurm.time) / 3600
    price = site.usd_per_gpu_hour
    return Cost(gpu_hours=round(hours, 3), usd=None if price is None else round(hours * price, 2))
