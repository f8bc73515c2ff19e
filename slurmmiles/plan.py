"""Every decision of a run, from a recipe, a site and what the command line asks for; no I/O.

What comes after (script, agent, Ray, driver) obeys the plan; what cannot work is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, gcd
from typing import Literal

from slurmmiles import topology as layout
from slurmmiles.drivers import TRAINED, driver_plan, trainer_config
from slurmmiles.errors import BadInput
from slurmmiles.fabric import OURS, resolve_env
from slurmmiles.gpus import GpuFacts
from slurmmiles.memory import MemoryFit, OptimizerMemory, fit
from slurmmiles.models import ModelFacts
from slurmmiles.planfile import Cost, Plan, PreflightPlan, RayPlan
from slurmmiles.recipe import MAX_GPUS_PER_NODE, Recipe
from slurmmiles.request import slurm_request, wall_seconds
from slurmmiles.site import Site
from slurmmiles.topology import Rollout, Topology

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


def make_plan(
    recipe: Recipe,
    site: Site,
    request: Request,
    *,
    model: ModelFacts | None = None,
    gpu: GpuFacts | None = None,
) -> Plan:
    """The plan of `recipe` on `site`; BadInput, with every broken rule, when it cannot work."""
    nodes = _node_count(recipe, request)
    gpus = _gpus_per_node(recipe, site, request)
    ranks = _ranks_per_node(recipe, nodes, gpus)
    topology, rollout = _layout(recipe, model, nodes, ranks)
    _refuse_our_env(recipe, site)
    device: Literal["gpu", "cpu"] = "gpu" if gpus else "cpu"
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
        memory=_memory(recipe, site, model, gpu if gpus else None, topology, rollout, ranks),
        env=resolve_env(recipe, site, device=device, user=request.user_env),
        driver=driver_plan(recipe, nodes=nodes, gpus_per_node=gpus),
        trainer=trainer_config(
            recipe, model, topology, rollout, nodes=nodes, ranks=ranks, device=device
        ),
        ray=_ray(recipe, gpus, ranks),
        preflight=_preflight(recipe, gpus),
        slurm=slurm_request(recipe, site, nodes=nodes + request.spares, gpus_per_node=gpus),
        cost=_cost(recipe, site, nodes + request.spares, gpus),
        interface=site.interface,
        scratch=site.scratch,
        python=site.python or "",
        checkpoints=recipe.checkpoint.dir or "{run_dir}/checkpoints",
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


def _layout(
    recipe: Recipe, model: ModelFacts | None, nodes: int, ranks: int
) -> tuple[Topology, Rollout | None]:
    """Trainer and rollout layout; a recipe without a model has one rank a GPU and no rollout."""
    p, r, a = recipe.parallel, recipe.rollout, recipe.algorithm
    if model is None:
        if recipe.driver.entry in TRAINED:
            raise BadInput(
                f"recipe {recipe.name!r} trains a model but names none",
                where="model.facts",
                fix="name one",
            )
        return layout.flat_topology(nodes * ranks), None
    topology = layout.make_topology(
        model=model,
        nodes=nodes,
        ranks_per_node=ranks,
        tp=p.tp,
        pp=p.pp,
        cp=p.cp,
        ep=p.ep,
        etp=p.etp,
        layers_first=p.layers_first,
        layers_last=p.layers_last,
        layers_per_stage=None,
        sequence_parallel=bool(p.tp > 1 if p.sequence_parallel is None else p.sequence_parallel),
    )
    if a.kind == "sft":
        return topology, None
    rollout = layout.make_rollout(
        model=model,
        nodes=nodes,
        ranks_per_node=ranks,
        gpus_per_engine=r.gpus_per_engine or ranks,
        ep=r.ep,
        dp=r.dp,
    )
    if a.global_batch_size is not None:
        layout.check_batches(
            rollout_batch_size=r.rollout_batch_size,
            n_samples_per_prompt=r.n_samples_per_prompt,
            global_batch_size=a.global_batch_size,
            dp=topology.dp,
            micro_batch_size=a.micro_batch_size,
        )
    return topology, rollout


def _memory(
    recipe: Recipe,
    site: Site,
    model: ModelFacts | None,
    gpu: GpuFacts | None,
    topology: Topology,
    rollout: Rollout | None,
    ranks: int,
) -> MemoryFit:
    o, a = recipe.optimizer, recipe.algorithm
    return fit(
        model=model,
        topology=topology,
        rollout=rollout,
        gpu=gpu,
        gpus_per_node=ranks,
        host_memory_gb=site.host_memory_gb,
        optimizer=OptimizerMemory(
            cpu_offload_fraction=o.cpu_offload, precision_aware=o.precision_aware
        ),
        recompute=a.recompute,
        max_tokens_per_gpu=a.max_tokens_per_gpu or recipe.rollout.max_response_len,
        log_probs_chunk_size=a.log_probs_chunk_size,
        mem_fraction=recipe.rollout.mem_fraction,
    )


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
