"""Every decision of a run, from a recipe, a site and what the command line asks for; no I/O.

What comes after (script, agent, Ray, driver) obeys the plan; what cannot work is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, gcd

from slurmmiles.containers import step_python
from slurmmiles.drivers import MILES, driver_plan, miles_driver, trainer_config
from slurmmiles.economics import gpu_hours, usd
from slurmmiles.errors import BadInput
from slurmmiles.fabric import fabric_notes, network_env, with_job_env, with_real_timeout
from slurmmiles.gpu_rules import refuse_expandable, refuse_fp8
from slurmmiles.gpus import GpuFacts
from slurmmiles.layouts import Shape, memory_of, shape_of, traffic_of
from slurmmiles.miles import Ask
from slurmmiles.models import ModelFacts
from slurmmiles.openrun import OpenRun, open_driver, refuse_other_size
from slurmmiles.paths import expanded, known_paths, missing_paths
from slurmmiles.planfile import (
    Cost,
    Difference,
    DriverPlan,
    EnvValue,
    Missing,
    Plan,
    PreflightPlan,
    RayPlan,
)
from slurmmiles.plannotes import notes_of
from slurmmiles.recipe import MAX_GPUS_PER_NODE, Recipe
from slurmmiles.request import own_size, slurm_request, still_asked, wall_seconds
from slurmmiles.site import Site

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
    recipe = with_real_timeout(recipe, site, request.environ)
    nodes, gpus = sizes_of(recipe, site, request)
    if run:
        refuse_other_size(recipe, nodes, gpus)
    ranks = _ranks_per_node(recipe, nodes, gpus)
    shape = shape_of(recipe, model, gpu, nodes=nodes, gpus=gpus, ranks=ranks)
    if shape.gpu:
        refuse_fp8(recipe, shape.gpu)
    known = known_paths(recipe, site, request.variables, request.environ)
    fabric, env = network_env(recipe, site, shape, request.user_env, request.environ)
    command = _command(recipe, request, shape, known, run, env)
    asked = () if request.local else still_asked(recipe, site, shape, request.gpu_assumed)
    missing = (*asked, *command.missing)
    memory = memory_of(recipe, shape, site.host_memory_gb)
    return Plan(
        recipe=recipe.name,
        description=recipe.description,
        site=site.name,
        device="gpu" if gpus else "cpu",
        nodes=nodes,
        spares=request.spares,
        gpus_per_node=gpus,
        ranks_per_node=ranks,
        topology=shape.topology,
        rollout=shape.rollout,
        memory=memory,
        env=command.env,
        driver=with_job_env(command.driver, command.env),
        trainer=trainer_config(recipe, shape),
        ray=_ray(recipe, gpus, ranks),
        preflight=_preflight(recipe, gpus),
        slurm=slurm_request(recipe, site, nodes=nodes + request.spares, gpus_per_node=gpus),
        cost=_cost(recipe, site, nodes + request.spares, gpus),
        interface=site.interface,
        fabric=fabric,
        scratch=site.scratch,
        python=step_python(recipe, site),
        checkpoints=expanded(_checkpoints(recipe), known),
        gpu=shape.gpu.name if shape.gpu else None,
        traffic=traffic_of(shape),
        differs_from_miles=command.differs,
        missing=missing,
        notes=(
            *notes_of(recipe, shape, memory, missing, run, assumed=request.gpu_assumed),
            *fabric_notes(command.env, fabric, shape),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Command:
    """The driver, the environment of all nodes, and what is said about them."""

    driver: DriverPlan
    env: dict[str, EnvValue]
    missing: tuple[Missing, ...] = ()
    differs: tuple[Difference, ...] = ()


def _command(
    recipe: Recipe,
    request: Request,
    shape: Shape,
    known: Mapping[str, str],
    run: OpenRun | None,
    env: dict[str, EnvValue],
) -> _Command:
    checkpoints = _checkpoints(recipe)
    if run is not None:
        return _Command(*open_driver(run, known, request.variables, request.environ, env))
    if recipe.driver.entry in MILES and shape.model is not None:
        if shape.rollout:
            refuse_expandable(env)
        wandb = bool(request.environ.get("WANDB_API_KEY"))
        ask = Ask(recipe, shape.model, shape, checkpoints, wandb)
        driver, differs = miles_driver(ask, known, env)
        return _Command(driver, env, missing_paths([*driver.argv, checkpoints]), differs)
    driver = driver_plan(recipe, nodes=shape.nodes, gpus_per_node=shape.gpus)
    return _Command(driver, env, missing_paths([checkpoints]))


def _checkpoints(recipe: Recipe) -> str:
    return recipe.checkpoint.dir or "{run_dir}/checkpoints"


def sizes_of(recipe: Recipe, site: Site, request: Request) -> tuple[int, int]:
    """Nodes and GPUs of each; BadInput for numbers that no site has."""
    return _node_count(recipe, site, request), _gpus_per_node(recipe, site, request)


def _node_count(recipe: Recipe, site: Site, request: Request) -> int:
    nodes = request.nodes
    if nodes is None:
        nodes = own_size(recipe, site)[0] if request.gpus_per_node is None else recipe.slurm.nodes
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
        return own_size(recipe, site)[1]
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
    """All GPUs until the time limit; the site's price, else the recipe's."""
    hours = gpu_hours(nodes * gpus, wall_seconds(recipe.slurm.time))
    price = recipe.usd_per_gpu_hour if site.usd_per_gpu_hour is None else site.usd_per_gpu_hour
    total = usd(hours, price)
    return Cost(gpu_hours=round(hours, 3), usd=None if total is None else round(total, 2))
