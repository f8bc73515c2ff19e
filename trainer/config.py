"""`trainer.json` as frozen values: every key known, every rule across keys checked before a start.

Keys have the names of Megatron's and miles' flags where those exist (`--rollout-batch-size` ->
rollout_batch_size). Nothing here imports torch: a file can be checked where it is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.errors import ConfigError

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
VOCAB_MULTIPLE = 16  # the vocabulary is padded to it, so that tensor-parallel ranks can split it
FilePath = Annotated[Path, Field(strict=False)]  # JSON has no paths, only strings


class Section(BaseModel):
    """A frozen group of keys: an unknown key or a wrong type is refused, nothing is coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Model(Section):
    """A Qwen3-style dense decoder: RMSNorm, grouped queries, q/k norm, RoPE, SwiGLU, no biases."""

    num_layers: Count
    hidden_size: Count
    ffn_hidden_size: Count
    num_attention_heads: Count
    num_query_groups: Count
    kv_channels: Count
    rope_theta: Count = 100  # texts are short; the usual 10000 hardly tells neighbours apart
    norm_epsilon: Positive = 1e-6
    init_method_std: Positive = 0.02
    tie_word_embeddings: bool = False

    @model_validator(mode="after")
    def _shapes_fit(self) -> Model:
        if self.num_attention_heads % self.num_query_groups:
            raise ValueError("num_attention_heads must be a multiple of num_query_groups")
        if self.kv_channels % 2:
            raise ValueError("kv_channels must be even (rotary embedding rotates halves)")
        return self


class Parallel(Section):
    """Megatron's parallel sizes; what tp and pp leave over is data parallelism."""

    tp: Count = 1
    pp: Count = 1
    cp: Literal[1] = 1
    ep: Literal[1] = 1
    etp: Literal[1] = 1
    sequence_parallel: Literal[False] = False


class Rollout(Section):
    """How SGLang generates: `rollout_batch_size` prompts a step, `n_samples_per_prompt` of each.

    `temperature` is used by both halves: log-probs are those of the logits divided by it.
    """

    engines: Count = 1
    gpus_per_engine: Natural = 0
    mem_fraction: Fraction = 0.1
    context_length: Count = 512
    max_response_len: Count = 4
    temperature: Positive = 1.0
    rollout_batch_size: Count = 32
    n_samples_per_prompt: Annotated[int, Field(ge=2)] = 8
    start_timeout_s: Positive = 300.0


class Optimizer(Section):
    """Adam in Megatron's distributed optimizer; the rate warms up linearly, then stays."""

    lr: Positive = 3e-4
    lr_warmup_iters: Natural = 0
    weight_decay: NonNegative = 0.0
    adam_beta1: Fraction = 0.9
    adam_beta2: Fraction = 0.98
    clip_grad: Positive = 1.0


class Algorithm(Section):
    """GRPO: `num_rollout` steps, each of `num_steps_per_rollout` clipped updates on its samples.

    `micro_batch_size` 0 takes all samples of a rank's update at once. `kl_loss_coef` weighs the KL
    divergence from the policy before step 0. `sft_steps` supervised updates may come first; they
    are not counted as steps. With `target_reward` the run ends early, once the mean reward was that
    high in `target_steps` steps in a row.
    """

    num_rollout: Count = 100
    advantage_estimator: Literal["grpo"] = "grpo"
    num_steps_per_rollout: Count = 1
    micro_batch_size: Natural = 0
    eps_clip: Fraction = 0.2
    eps_clip_high: Fraction = 0.28
    kl_loss_coef: NonNegative = 0.0
    max_logprob_diff: Positive = 1e-3
    sft_steps: Natural = 0
    sft_batch_size: Count = 64
    sft_lr: Positive = 1e-3
    target_reward: Fraction | None = None
    target_steps: Count = 5


class Data(Section):
    """The toy task; its prompts are a function of the run's seed and the step."""

    task: Literal["copy", "reverse", "addition"] = "copy"
    digits: Annotated[int, Field(ge=1, le=8)] = 3


class Checkpoint(Section):
    """Where and every how many steps to save (0: never); `dir` is shared by all nodes."""

    dir: FilePath
    interval: Natural = 0
    resume: Literal["auto", "off"] = "auto"


class Config(Section):
    """One run, as read from `trainer.json`; `work_dir` is scratch space, its own on every node."""

    run_id: str
    metrics: FilePath
    seed: Natural = 0
    device: Literal["cpu", "cuda"] = "cpu"
    nodes: Count = 1
    ranks_per_node: Count = 2
    engines_per_node: Literal[1] = 1
    model: Model
    parallel: Parallel = Parallel()
    rollout: Rollout = Rollout()
    optimizer: Optimizer = Optimizer()
    algorithm: Algorithm = Algorithm()
    data: Data = Data()
    checkpoint: Checkpoint
    work_dir: FilePath

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def dp(self) -> int:
        return self.world_size // (self.parallel.tp * self.parallel.pp)

    @property
    def samples_per_step(self) -> int:
        return self.rollout.rollout_batch_size * self.rollout.n_samples_per_prompt

    @property
    def samples_per_update(self) -> int:
        """Samples that one data-parallel rank trains on in one optimizer update."""
        return self.samples_per_step // (self.dp * self.algorithm.num_steps_per_rollout)


def load_config(path: Path) -> Config:
    """Read `path`; raises ConfigError with one `trainer.json: key: reason` line per bad key."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        config = Config.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError("\n".join(_lines(path.name, error))) from None
    for key, name, value, divisor_name, divisor in _divisions(config):
        if value % divisor:
            reason = f"{name} = {value} is not a multiple of {divisor_name} = {divisor}"
            raise ConfigError(f"{path.name}: {key}: {reason}")
    for key, broken, reason in _limits(config):
        if broken:
            raise ConfigError(f"{path.name}: {key}: {reason}")
    return config


def _lines(file: str, error: ValidationError) -> list[str]:
    """One `file: key: reason` per problem that pydantic found."""
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"]) or "(whole file)"
        reason = "unknown key" if problem["type"] == "extra_forbidden" else problem["msg"]
        lines.append(f"{file}: {key}: {reason}")
    return lines


def _divisions(c: Config) -> Iterator[tuple[str, str, int, str, int]]:
    """(key to blame, name, value, name, divisor) of every division that must leave nothing over.

    In this order: a later one may be meaningless where an earlier one fails.
    """
    p, m, a = c.parallel, c.model, c.algorithm
    yield "parallel.tp", "nodes x ranks_per_node", c.world_size, "tp x pp", p.tp * p.pp
    yield "parallel.tp", "model.num_query_groups", m.num_query_groups, "tp", p.tp
    yield "parallel.tp", "model.ffn_hidden_size", m.ffn_hidden_size, "tp", p.tp
    yield "parallel.tp", "the padded vocabulary", VOCAB_MULTIPLE, "tp", p.tp
    yield "parallel.pp", "model.num_layers", m.num_layers, "pp", p.pp
    updates = c.dp * a.num_steps_per_rollout
    key = "rollout.rollout_batch_size"
    yield key, "samples of a step", c.samples_per_step, "dp x num_steps_per_rollout", updates
    micro = a.micro_batch_size or 1
    key = "algorithm.micro_batch_size"
    yield key, "samples of a rank's update", c.samples_per_update, "micro_batch_size", micro
    if a.sft_steps:
        key = "algorithm.sft_batch_size"
        yield key, "sft_batch_size", a.sft_batch_size, "dp x micro_batch_size", c.dp * micro


def _limits(c: Config) -> Iterator[tuple[str, bool, str]]:
    """(key to blame, whether it is broken, reason) of every other rule across keys."""
    r, engines = c.rollout, c.nodes * c.engines_per_node
    yield (
        "rollout.engines",
        r.engines != engines,
        f"is {r.engines}, but nodes x engines_per_node = {engines}",
    )
    yield (
        "rollout.max_response_len",
        r.max_response_len >= r.context_length,
        f"{r.max_response_len} leaves no room for a prompt in context_length = {r.context_length}",
    )
