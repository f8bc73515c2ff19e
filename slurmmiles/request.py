"""What is asked of Slurm: directives, the step's arguments and the time limit; pure."""

from __future__ import annotations

import re
import shlex

from slurmmiles.containers import container_plan, template_of
from slurmmiles.errors import BadInput
from slurmmiles.layouts import Shape
from slurmmiles.planfile import Missing, SlurmPlan
from slurmmiles.recipe import Recipe
from slurmmiles.site import Site

# Decided by the plan: given again in `extra`, sbatch would take the last one and the plan would be
# untrue.
DECIDED = frozenset(
    {
        "array",
        "cpus-per-task",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "job-name",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "output",
        "time",
        "wrap",
    }
)
STEP_WAIT_S = 120  # srun --wait: how long the other agents may take after the first has left


def wall_seconds(text: str) -> int:
    """Slurm's `[D-]HH:MM:SS` in seconds."""
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def slurm_request(recipe: Recipe, site: Site, *, nodes: int, gpus_per_node: int) -> SlurmPlan:
    """The request for `nodes` nodes of `gpus_per_node` GPUs; BadInput for an `extra` that the plan
    decides.
    """
    s = recipe.slurm
    _refuse_decided(recipe, site)
    exclusive = _first(s.exclusive, site.exclusive, gpus_per_node > 0)
    cpus = s.cpus_per_task or (site.cpus_per_node if exclusive else None)
    wanted: dict[str, str | None | bool] = {
        "job-name": recipe.name,
        "nodes": str(nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(cpus) if cpus else False,
        "time": s.time,
        "mem": s.mem or ("0" if exclusive else False),
        "exclusive": None if exclusive else False,
        "partition": s.partition or site.partition or False,
        "account": s.account or site.account or False,
        "qos": s.qos or site.qos or False,
        "constraint": s.constraint or site.constraint or False,
        "reservation": s.reservation or False,
        "exclude": s.exclude or False,
        "network": site.network or False,
        "open-mode": "append",
        **_gpu_request(site, gpus_per_node),
    }
    for name, extra in {**site.extra, **s.extra}.items():
        wanted[name] = None if extra is True else False if extra is False else str(extra)
    return SlurmPlan(
        directives=tuple((k, v) for k, v in wanted.items() if not isinstance(v, bool)),
        srun_args=_srun_args(site, cpus),
        setup=(*(f"module load {shlex.quote(m)}" for m in site.modules), *site.setup),
        time_s=wall_seconds(s.time),
        template=template_of(recipe, site),
        venv=site.venv or "",
        container=container_plan(recipe, site, gpus=gpus_per_node),
    )


def _gpu_request(site: Site, gpus: int) -> dict[str, str | None | bool]:
    """As this Slurm wants it; a site that hands out whole nodes may refuse any option for GPUs."""
    if not gpus or site.gpu_request == "none":
        return {}
    return {"gres": f"gpu:{gpus}"} if site.gpu_request == "gres" else {"gpus-per-node": str(gpus)}


def own_size(recipe: Recipe, site: Site) -> tuple[int, int]:
    """The recipe's nodes and GPUs of each; on a site of smaller nodes as many GPUs on more nodes.

    BadInput when they do not come out even.
    """
    nodes, gpus, have = recipe.slurm.nodes, recipe.slurm.gpus_per_node, site.gpus_per_node
    if have is None or gpus <= have:
        return nodes, gpus
    if have == 0 or nodes * gpus % have:
        raise BadInput(
            f"recipe {recipe.name!r} is for {nodes} x {gpus} GPUs, and a node of site"
            f" {site.name!r} has {have}",
            where="slurm.gpus_per_node",
            fix="give --nodes and --gpus-per-node",
        )
    return nodes * gpus // have, have


def still_asked(recipe: Recipe, site: Site, shape: Shape, gpu_assumed: bool) -> tuple[Missing, ...]:
    """What the site asks for and nobody has given, each with how to give it.

    The kind of GPU matters only to a run on GPUs, the network's traffic class to several nodes.
    """
    s, image = recipe.slurm, site.container.image if site.container else None
    roce = site.traffic_class, recipe.env.get("NCCL_IB_TC"), site.env.get("NCCL_IB_TC")
    given: dict[str, object] = {
        "account": s.account or site.account,
        "partition": s.partition or site.partition,
        "qos": s.qos or site.qos,
        "constraint": s.constraint or site.constraint,
        "image": s.image or image,
        "gpu": None if gpu_assumed and shape.gpus else "known",
        "traffic_class": (
            next((v for v in roce if v is not None), None) if shape.gpus and shape.nodes > 1 else 0
        ),
    }
    return tuple(Missing(name=key, fix=_how(key, site)) for key in site.ask if given[key] is None)


def _how(key: str, site: Site) -> str:
    line = f"container.{key}" if key == "image" else key
    asking = f" ({site.file} asks for it)" if site.file else ""
    own = f"`{line}` in a site file of yours that extends {site.name}{asking}"
    option = {"gpu": "--gpu KIND", "traffic_class": ""}.get(key, f"--set slurm.{key}=VALUE")
    return f"give {option}, or {own}" if option else f"give {own}"


def _srun_args(site: Site, cpus: int | None) -> tuple[str, ...]:
    """One task a node, with the CPUs of the job: srun has not inherited --cpus-per-task since Slurm
    22.05.

    A bad exit does not end the step at once (the agents tell each other and clean up); --wait is
    the backstop.
    """
    return (
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus or '$SLURM_CPUS_ON_NODE'}",
        "--kill-on-bad-exit=0",
        f"--wait={STEP_WAIT_S}",
        "--unbuffered",
        "--label",
        *((f"--mpi={site.mpi}",) if site.mpi else ()),
        *site.srun_args,
    )


def _first(*values: bool | None) -> bool:
    return next(bool(v) for v in values if v is not None)


def _refuse_decided(recipe: Recipe, site: Site) -> None:
    for where, extra in (
        (f"recipe {recipe.name}", recipe.slurm.extra),
        (f"site {site.name}", site.extra),
    ):
        for name in extra:
            if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
                raise BadInput(
                    f"{name!r} is not an sbatch long option",
                    where=f"{where}, extra",
                    fix="write it without dashes in front",
                )
            # getopt_long(3) takes an abbreviation for the option that it begins.
            decided = sorted(option for option in DECIDED if option.startswith(name))
            if decided or (name == "gres" and site.gpu_request == "gres"):
                raise BadInput(
                    f"{name!r} is decided by the plan", where=f"{where}, extra", fix="remove it"
                )
