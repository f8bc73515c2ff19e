"""What to run: the sections of a recipe file, which are also the keys of `--set`.

Names are the field's own: Megatron's for the layout, SGLang's and miles' for the rollout, Slurm's
for the request. A value that a recipe leaves out (None) is decided in `plan.py`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

WALL_TIME = re.compile(r"(\d{1,3}-)?\d{1,3}:[0-5]\d:[0-5]\d", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
MAX_RANKS = 131_072  # 8192 nodes of 16 GPUs: bounds every size, so that no plan takes minutes
MAX_GPUS_PER_NODE = 64
MAX_LINE = 4096


def _line(text: str) -> str:
    """A newline on an `#SBATCH` line or in an environment would start a line of its own."""
    if not text.isprintable():
        raise ValueError("control characters are not allowed here")
    if len(text) > MAX_LINE:
        raise ValueError(f"it has {len(text)} characters, and {MAX_LINE} are allowed")
    return text


def _name(text: str) -> str:
    """A name becomes a directory, a job name and a part of the script: nothing to quote in it."""
    if not NAME.fullmatch(text):
        raise ValueError(
            "a name (the key `name`, or else the file's own) has at most 64 letters, digits, '.',"
            " '_' and '-', and begins with a letter or digit"
        )
    return text


def _wall_time(value: Any) -> Any:
    """One form only: Slurm reads 30 and 30:00 as minutes, and others read them as something else.

    Zero is no limit at all to Slurm (man sbatch, --time), and would make the plan's cost untrue.
    """
    if not isinstance(value, str) or not WALL_TIME.fullmatch(value):
        raise ValueError("a time limit is written [DAYS-]HOURS:MINUTES:SECONDS, like 04:00:00")
    if not any(c in "123456789" for c in value):
        raise ValueError("to Slurm a time limit of zero is no limit")
    return value


def _env_name(text: str) -> str:
    if not ENV_NAME.fullmatch(text):
        raise ValueError("a variable's name has letters, digits and '_', and no digit in front")
    return text


FlagValue = str | int | float | bool | list[str | int | float] | None
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Size = Annotated[int, Field(ge=1, le=MAX_RANKS)]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Line = Annotated[str, AfterValidator(_line)]
Name = Annotated[str, AfterValidator(_name)]
WallTime = Annotated[str, BeforeValidator(_wall_time)]
EnvName = Annotated[str, AfterValidator(_env_name)]


class Section(BaseModel):
    """A section of a recipe: frozen, and a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Model(Section):
    """Which model; `facts` names a file of configs/models, `hf_checkpoint` a Hugging Face directory
    or id. Paths may hold {models} and {data}, which the site or `--var` gives.
    """

    facts: Line | None = None
    hf_checkpoint: Line | None = None
    ref_load: Line | None = None
    """Weights of the first start (miles' --ref-load); None: hf_checkpoint, in bridge mode."""
    init_method_std: Annotated[float, Field(gt=0.0, le=10.0)] | None = None
    """Of the native trainer's random weights; None: Megatron's own default."""
    miles_type: Line | None = None
    """The MODEL_TYPE of miles' model_args_utils.py, when the driver is miles."""


class Parallel(Section):
    """Megatron's layout; data parallelism is what is left of the world size."""

    tp: Size = 1
    pp: Size = 1
    cp: Size = 1
    ep: Size = 1
    etp: Size = 1
    layers_first: Size | None = None
    layers_last: Size | None = None
    sequence_parallel: bool | None = None


class Rollout(Section):
    """SGLang's engines and what each step generates."""

    gpus_per_engine: Size | None = None
    ep: Size = 1
    dp: Size = 1
    mem_fraction: Share = 0.7
    context_length: Count | None = None
    max_response_len: Count = 1024
    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    rollout_batch_size: Count = 32
    n_samples_per_prompt: Count = 8
    health_check_first_wait_s: Annotated[int, Field(ge=0)] | None = None


class Optimizer(Section):
    """Adam and where its states live; `cpu_offload` is the share of the states on the host."""

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
    kl_loss_coef: Annotated[float, Field(ge=0.0)] | None = None
    entropy_coef: float | None = None
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
    check, a command, the run block of an OpenRecipes file.
    """

    entry: Literal["train", "script", "native", "gate-check", "command", "openrecipes"] = "native"
    argv: list[Line] = Field(default_factory=list)
    script: Line | None = None
    """miles' launcher below its own directory, for entry script."""
    script_args: list[Line] = Field(default_factory=list)
    """Options of that launcher beyond those that every one has."""
    miles_dir: Line | None = None
    megatron_dir: Line | None = None


class Slurm(Section):
    """The request. `gpus_per_node: 0` runs on CPUs; `extra` holds any other sbatch long option."""

    nodes: Count = 1
    gpus_per_node: Annotated[int, Field(ge=0, le=MAX_GPUS_PER_NODE)] = 8
    ranks_per_node: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)] | None = None
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
    image: Line | None = None
    """The container image, in place of the site's."""
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

    name: Name
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
    """Any flag of miles; true: without a value; null, false or empty: left out of the command."""
    env: dict[EnvName, Line | int | float | bool] = Field(default_factory=dict)
    driver: Driver = Driver()
    slurm: Slurm = Slurm()
    preflight: Preflight = Preflight()
    usd_per_gpu_hour: Annotated[float, Field(ge=0)] | None = None
    """Used when the site gives no price."""
