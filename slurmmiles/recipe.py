"""What to run: the sections of a recipe file, which are also the keys of `--set`.

Names are the field's own: Megatron's for the layout, SGLang's and miles' for the rollout, Slurm's
for the request.
A value that a recipe leaves out (None) is decided in `plan.py`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

WALL_TIME = r"^(\d+-)?\d{1,3}:[0-5]\d:[0-5]\d$"
FlagValue = str | int | float | bool | list[str | int | float] | None
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]


def _no_newline(text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ValueError("control characters are not allowed here")
    return text


# Text that ends up on an `#SBATCH` line or in an environment: a newline there would start a line of
# its own.
Line = Annotated[str, AfterValidator(_no_newline)]
WallTime = Annotated[str, StringConstraints(pattern=WALL_TIME)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Section(BaseModel):
    """A section of a recipe: frozen, and a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Model(Section):
    """Which model; `facts` names a file of configs/models, `hf_checkpoint` a Hugging Face directory
    or id.
    """

    facts: Line | None = None
    hf_checkpoint: Line | None = None
    miles_type: Line | None = None
    """The MODEL_TYPE of miles' model_args_utils.py, when the driver is miles."""


class Parallel(Section):
    """Megatron's layout; data parallelism is what is left of the world size."""

    tp: Count = 1
    pp: Count = 1
    cp: Count = 1
    ep: Count = 1
    etp: Count = 1
    layers_first: Count | None = None
    layers_last: Count | None = None
    sequence_parallel: bool | None = None


class Rollout(Section):
    """SGLang's engines and what each step generates."""

    gpus_per_engine: Count | None = None
    ep: Count = 1
    dp: Count = 1
    mem_fraction: Share = 0.7
    context_length: Count | None = None
    max_response_len: Count = 1024
    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    rollout_batch_size: Count = 32
    n_samples_per_prompt: Count = 8
    health_check_first_wait_s: Annotated[int, Field(ge=0)] | None = None


class Optimizer(Section):
    """Adam and where its states live."""

    lr: Annotated[float, Field(gt=0.0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.1
    adam_beta1: Share = 0.9
    adam_beta2: Share = 0.98
    clip_grad: Annotated[float, Field(gt=0.0)] = 1.0
    cpu_offload: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    precision_aware: bool = False


class Algorithm(Section):
    """GRPO (or SFT) and how a step is cut into micro-batches."""

    kind: Literal["grpo", "sft"] = "grpo"
    num_rollout: Count = 30
    global_batch_size: Count | None = None
    micro_batch_size: Count = 1
    max_tokens_per_gpu: Count | None = None
    log_probs_chunk_size: Count | None = None
    recompute: Literal["full", "selective", "none"] = "none"
    eps_clip: Share = 0.2
    eps_clip_high: Share = 0.28
    kl_loss_coef: Annotated[float, Field(ge=0.0)] = 0.0
    entropy_coef: float = 0.0
    sft_steps: Annotated[int, Field(ge=0)] = 0
    target_reward: float | None = None
    max_logprob_diff: Annotated[float, Field(gt=0.0)] = 0.05
    seed: int = 1234


class Data(Section):
    """Prompts: a task of the native trainer, or a jsonl file."""

    task: Line | None = None
    options: dict[str, int | float | str | bool] = Field(default_factory=dict)
    prompt_data: Line | None = None
    input_key: Line = "prompt"
    label_key: Line = "label"
    rm_type: Line | None = None


class Checkpoint(Section):
    """Where checkpoints go (default: the run directory) and how often, in steps."""

    dir: Line | None = None
    interval: Count | None = None


class Driver(Section):
    """What is started on the Ray cluster: miles' train.py, miles' launcher, `python -m trainer`, a
    check, a command.
    """

    entry: Literal["train", "script", "native", "gate-check", "command"] = "native"
    argv: list[Line] = Field(default_factory=list)
    miles_dir: Line | None = None
    megatron_dir: Line | None = None


class Slurm(Section):
    """The request. `gpus_per_node: 0` runs on CPUs; `extra` holds any other sbatch long option."""

    nodes: Count = 1
    gpus_per_node: Annotated[int, Field(ge=0)] = 8
    ranks_per_node: Count | None = None
    time: WallTime = "04:00:00"
    cpus_per_task: Count | None = None
    mem: Line | None = None
    exclusive: bool | None = None
    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    constraint: Line | None = None
    reservation: Line | None = None
    exclude: Line | None = None
    extra: dict[str, Line | int | bool] = Field(default_factory=dict)


class Preflight(Section):
    """Deadlines in seconds and floors in Gbit/s and milliseconds; None is not judged."""

    join_deadline_s: Annotated[float, Field(gt=0)] = 300.0
    deadline_s: Annotated[float, Field(gt=0)] = 120.0
    min_tcp_gbit_s: Annotated[float, Field(gt=0)] | None = None
    max_tcp_latency_ms: Annotated[float, Field(gt=0)] | None = None
    min_nofile: Count = 4096


class Recipe(Section):
    """One recipe file, whole."""

    name: Line
    description: Line = ""
    model: Model = Model()
    parallel: Parallel = Parallel()
    rollout: Rollout = Rollout()
    optimizer: Optimizer = Optimizer()
    algorithm: Algorithm = Algorithm()
    data: Data = Data()
    checkpoint: Checkpoint = Checkpoint()
    resume: Literal["auto", "off"] = "auto"
    flags: dict[str, FlagValue] = Field(default_factory=dict)
    env: dict[EnvName, Line | int | float | bool] = Field(default_factory=dict)
    driver: Driver = Driver()
    slurm: Slurm = Slurm()
    preflight: Preflight = Preflight()
