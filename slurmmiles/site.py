"""Where to run: what is true of a cluster (or a laptop) and of no recipe."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from slurmmiles.recipe import MAX_GPUS_PER_NODE, Count, EnvName, Line, Name, Section


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"this is not a regular expression: {error}") from None
    return text


class Site(Section):
    """One site file, whole. None means: ask the machine, or leave it to Slurm's own default."""

    name: Name
    description: Line = ""
    host_pattern: Annotated[Line, AfterValidator(_pattern)] | None = None
    """A regular expression of the login nodes' host names, for `sites detect`."""
    fabric: Literal["auto", "infiniband", "roce", "slingshot", "efa", "tcp"] = "auto"
    interface: Line | None = None
    """The network interface of Ray, Gloo and NCCL's sockets; None: the one that routes to the head.
    """
    gpu: Line | None = None
    gpu_request: Literal["gpus-per-node", "gres"] = "gpus-per-node"
    """How this Slurm wants GPUs to be asked for."""
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
    setup: list[Line] = Field(default_factory=list)
    """Shell lines before the step, such as `module load cuda`."""
    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    exclusive: bool | None = None
    extra: dict[str, Line | int | bool] = Field(default_factory=dict)
    """Any other sbatch long option."""
    srun_args: list[Line] = Field(default_factory=list)
    env: dict[EnvName, Line | int | float | bool] = Field(default_factory=dict)
    usd_per_gpu_hour: Annotated[float, Field(ge=0)] | None = None
