"""The plan as a file: every decision of a run, in a form that a person can read and the nodes obey.

Values that only a node knows stand as `{name}` and are filled in there by `filled`:
{python} {run_dir} {attempt_dir} {checkpoints} {scratch} {head_address} {node_address} {interface}
{no_proxy}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from slurmmiles.memory import MemoryFit
from slurmmiles.topology import Reach, Rollout, Topology

# Not after a dollar: there it is the shell's own `${name}`, as a run block may hold.
PLACEHOLDER = re.compile(
    r"(?<!\$)\{(python|run_dir|attempt_dir|checkpoints|scratch|head_address|node_address|interface"
    r"|no_proxy)\}"
)


class Part(BaseModel):
    """A part of the plan: frozen, and an unknown key means that another version wrote it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EnvValue(Part):
    """One environment variable: its value, which layer decided it (user, recipe, site, default,
    node), and why.
    """

    value: str
    origin: str
    why: str = ""


class DriverPlan(Part):
    """The command that runs on the head, as a Ray job."""

    entry: str
    argv: tuple[str, ...]
    env: dict[str, EnvValue] = Field(default_factory=dict)


class RayPlan(Part):
    """How each node's part of the Ray cluster is started; None leaves the value to Ray."""

    num_cpus: int | None
    num_gpus: int
    object_store_bytes: int | None
    join_deadline_s: float


class PreflightPlan(Part):
    """Deadline and floors of the checks before the driver; None is not judged."""

    deadline_s: float
    min_tcp_gbit_s: float | None
    max_tcp_latency_ms: float | None
    min_nofile: int
    memlock_unlimited: bool


class ContainerPlan(Part):
    """The container of the step: `options` are the runtime's words, in order, with {runs} for the
    directory of runs.
    """

    runtime: str
    image: str
    options: tuple[str, ...]


class SlurmPlan(Part):
    """The request: `directives` are the `#SBATCH --NAME[=VALUE]` lines, in order."""

    directives: tuple[tuple[str, str | None], ...]
    srun_args: tuple[str, ...]
    setup: tuple[str, ...]
    time_s: int
    template: str = "base"
    venv: str = ""
    container: ContainerPlan | None = None


class FabricPlan(Part):
    """What each node needs to resolve its own network environment; kind `auto`: as it finds."""

    kind: str = "auto"
    multi_node: bool = False
    traffic_class: int | None = None
    rdzv_get_disabled: bool = False
    deepep: bool = False
    """Whether the driver uses DeepEP, whose NVSHMEM transport needs mlx5."""
    colocate: bool = False


class Cost(Part):
    """The most that the job can use: nodes x GPUs x time limit; usd is None when the site gives no
    price.
    """

    gpu_hours: float
    usd: float | None


class Difference(Part):
    """One flag in which our command is not miles' own; None: the flag is not there."""

    flag: str
    miles: str | None
    ours: str | None
    why: str


class Missing(Part):
    """A value without which the run cannot be submitted, and how to give it."""

    name: str
    fix: str


class Plan(Part):
    """Everything that was decided for one run."""

    version: Literal[1] = 1
    recipe: str
    description: str
    site: str
    device: Literal["cpu", "gpu"]
    nodes: int
    spares: int
    gpus_per_node: int
    ranks_per_node: int
    topology: Topology
    rollout: Rollout | None
    memory: MemoryFit
    env: dict[str, EnvValue]
    driver: DriverPlan
    trainer: dict[str, Any] | None
    """The native trainer's configuration file, with placeholders; None for any other driver."""
    ray: RayPlan
    preflight: PreflightPlan
    slurm: SlurmPlan
    cost: Cost
    interface: str | None
    fabric: FabricPlan = FabricPlan()
    scratch: str
    python: str
    checkpoints: str
    gpu: str | None = None
    """The kind of GPU that memory and flags were decided for; None on CPUs."""
    traffic: dict[str, Reach] = Field(default_factory=dict)
    """How far each kind of communication reaches: in a node, in an engine's block, or beyond."""
    differs_from_miles: tuple[Difference, ...] = ()
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def allocated_nodes(self) -> int:
        return self.nodes + self.spares


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """`value` with each `{name}` replaced, through lists and mappings; other braces are left as
    they are.
    """
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda m: values.get(m[1], m[0]), value)
    if isinstance(value, Mapping):
        return {k: filled(v, values) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [filled(v, values) for v in value]
    return value
