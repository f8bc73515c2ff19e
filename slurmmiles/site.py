"""Where to run: what is true of a cluster (or a laptop) and of no recipe.

A site may extend another (`extends: generic-ib`). What its documents do not say is left out, and
what a run cannot do without is listed in `ask`: submit refuses until a person has given it.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from slurmmiles.recipe import MAX_GPUS_PER_NODE, Count, EnvName, Line, Name, Section

Asked = Literal["account", "partition", "qos", "constraint", "gpu", "traffic_class", "image"]
Fabric = Literal["auto", "infiniband", "roce", "slingshot", "efa", "tcp"]
Runtime = Literal["pyxis", "apptainer", "podman", "environment-edf"]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"this is not a regular expression: {error}") from None
    return text


def _day(text: str) -> str:
    if not re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", text):
        raise ValueError("a day is written YYYY-MM-DD, in quotes")
    return text


def _mount(text: str) -> str:
    """SRC:DST[:FLAGS], as pyxis, apptainer and podman have it; a comma would end it for pyxis."""
    parts = text.split(":")
    if not 1 <= len(parts) <= 3 or not all(p.startswith("/") for p in parts[:2]) or "," in text:
        raise ValueError("a mount is written /SOURCE[:/TARGET[:FLAGS]], without a comma")
    return text


Mount = Annotated[Line, AfterValidator(_mount)]


class Source(Section):
    """A public document that a site's values come from, and the day when it was read."""

    title: Line
    organisation: Line
    read: Annotated[Line, AfterValidator(_day)]
    url: Line | None = None


class Container(Section):
    """The nodes' container runtime. Without an image a run uses the nodes' own Python."""

    runtime: Runtime
    image: Line | None = None
    """An image as the runtime names it; for environment-edf the name or path of an EDF file."""
    mounts: list[Mount] = Field(default_factory=list)
    """Beside the directory of runs, which is always there."""
    workdir: Line | None = None
    name: Line | None = None
    """pyxis: a container of this name stays on the node and is used again, without an import."""
    python: Line = "python3"
    """The Python in the image, which has slurmmiles installed."""
    options: list[Line] = Field(default_factory=list)
    """More options of the runtime, as they are."""


class Site(Section):
    """One site file, whole. None means: ask the machine, or leave it to Slurm's own default."""

    name: Name
    description: Line = ""
    sources: list[Source] = Field(default_factory=list)
    ask: list[Asked] = Field(default_factory=list)
    """Keys without which nothing is submitted: neither this file nor the recipe may lack them."""
    host_pattern: Annotated[Line, AfterValidator(_pattern)] | None = None
    """A regular expression of the login nodes' host names, for `sites detect`."""
    cluster_name: Line | None = None
    """Slurm's ClusterName, for `sites detect`."""
    fabric: Fabric = "auto"
    """The network between the nodes; auto: each node says what it has. tcp is slow, and only for
    who asks for it.
    """
    interface: Line | None = None
    """The network interface of Ray, Gloo and NCCL's sockets; None: the one that routes to the head.
    """
    traffic_class: Annotated[int, Field(ge=0, le=255)] | None = None
    """RoCE: the class that the switches treat as lossless (NCCL_IB_TC); only the site knows it."""
    gpu: Line | None = None
    gpu_request: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    """How this Slurm wants GPUs to be asked for; none: whole nodes, and no option may name GPUs."""
    gpus_per_node: Annotated[int, Field(ge=0, le=MAX_GPUS_PER_NODE)] | None = None
    cpus_per_node: Count | None = None
    host_memory_gb: Annotated[float, Field(gt=0)] | None = None
    runs: Line | None = None
    """The directory of runs, shared by all nodes; None: `runs` below the directory of the command.
    """
    scratch: Line = "/tmp"
    """A node-local directory with a short path (Ray's sockets must fit in 107 bytes)."""
    models: Line | None = None
    """The directory of model checkpoints, on every node: {models} in a recipe's paths."""
    data: Line | None = None
    """The directory of data sets: {data} in a recipe's paths."""
    miles: Line | None = None
    """The directory of miles (the one with train.py), as the nodes see it."""
    megatron: Line | None = None
    """The directory of Megatron-LM; None: the nodes' Python has megatron installed."""
    python: Line | None = None
    """The Python of the nodes; None: the one that runs slurmmiles."""
    venv: Line | None = None
    """A Python virtual environment that the script activates, shared by all nodes."""
    modules: list[Line] = Field(default_factory=list)
    """Environment modules to load before the step."""
    setup: list[Line] = Field(default_factory=list)
    """Shell lines before the step, after the modules."""
    container: Container | None = None
    template: Name | None = None
    """The script's template; None: that of the container, of the venv, or `base`."""
    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    constraint: Line | None = None
    exclusive: bool | None = None
    network: Line | None = None
    """sbatch --network, for the interconnect: `disable_rdzv_get` where Slingshot's profile needs
    it.
    """
    mpi: Line | None = None
    """srun --mpi: the agents are no MPI ranks, so `none` keeps a site's default from acting."""
    extra: dict[str, Line | int | bool] = Field(default_factory=dict)
    """Any other sbatch long option; false takes one of the plan's own back."""
    srun_args: list[Line] = Field(default_factory=list)
    env: dict[EnvName, Line | int | float | bool] = Field(default_factory=dict)
    usd_per_gpu_hour: Annotated[float, Field(ge=0)] | None = None
    _file: str = PrivateAttr(default="")

    @property
    def file(self) -> str:
        """Where it was read from; empty when it was made in another way."""
        return self._file

    def read_from(self, file: str) -> Site:
        """The same site, which knows its file."""
        copy = self.model_copy()
        copy._file = file
        return copy
