"""`trainer.json` as frozen values: every key known, every cross-field rule checked before anything starts.

Keys have Megatron's and miles' flag names where those exist (`--rollout-batch-size` -> rollout_batch_size).
No torch import: a launcher can validate a file on a machine without the trainer's packages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.errors import ConfigError

Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]


class Section(BaseModel):
    """A frozen group of keys; an unknown key or a wrong type is refused, and nothing is coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Model(Section):
    """A Qwen3-style dense decoder: RMSNorm, grouped queries, q/k norm, RoPE, SwiGLU, no biases."""

    num_layers: Count
    hidden_size: Count
    ffn_hidden_size: Count
    num_attention_heads: Count
    num_query_groups: Count
    kv_channels: Count
    rope_theta: Positive = 10000.0
    norm_epsilon: Positive = 1e-6
    init_method_std: Positive = 0.02
    tie_word_embeddings: bool = False

    @model_validator(mode="after")
    def _shapes_divide(self) -> Model:
        if self.num_attention_heads % self.num_query_groups:
            raise ValueError("num_attention_heads must be a multiple of num_query_groups")
        if self.kv_channels % 2:
            raise ValueError("kv_channels must be even (rotary embedding rotates halves)")
        return self


class Parallel(Section):
    """Megatron's parallel sizes. On CPU only tp, pp (and the data parallelism left over) can be above 1."""

    tp: Count = 1
    pp: Count = 1
    cp: Literal[1] = 1
    ep: Literal[1] = 1
    etp: Literal[1] = 1
    sequence_parallel: Literal[False] = False


class Rollout(Section):
    """How SGLang generates: one engine per node, `rollout_batch_size` prompts x `n_samples_per_prompt`."""

    engines: Count = 1
    gpus_per_engine: Annotated[int, Field(ge=0)] = 0
    mem_fraction: Fraction = 0.1
    context_length: Count = 512
    max_response_len: Count = 8
    temperature: Positive = 1.0
    rollout_batch_size: Count = 16
    n_samples_per_prompt: Annotated[int, Field(ge=2)] = 8
    start_timeout_s: Positive = 120.0


class Optimizer(Section):
    """Adam in Megatron's distributed optimizer; the learning rate warms up linearly, then stays."""

    lr: Positive = 1e-3
    lr_warmup_steps: Annotated[int, Field(ge=0)] = 0
    weight_decay: NonNegative = 0.0
    adam_beta1: Fraction = 0.9
    adam_beta2: Fraction = 0.98
    clip_grad: NonNegative = 1.0


class Algorithm(Section):
    """GRPO: `num_rollout` steps, each of `num_steps_per_rollout` clipped updates on one batch of samples.

    `sft_steps` supervised steps of `sft_batch_size` examples may come first; they are not counted as steps.
    With `target_reward`, the run ends early once the mean reward was that high `target_steps` steps in a row.
    """

    num_rollout: Count = 100
    advantage_estimator: Literal["grpo"] = "grpo"
    num_steps_per_rollout: Count = 1
    micro_batch_size: Annotated[int, Field(ge=0)] = 0
    eps_clip: Fraction = 0.2
    eps_clip_high: Fraction = 0.28
    max_logprob_diff: Positive = 1e-3
    sft_steps: Annotated[int, Field(ge=0)] = 0
    sft_batch_size: Count = 64
    sft_lr: Positive = 1e-3
    target_reward: Fraction | None = None
    target_steps: Count = 5


class Data(Section):
    """The toy task; its prompts are a function of the run's seed and the step."""

    task: Literal["copy", "reverse", "addition"] = "copy"
    digits: Annotated[int, Field(ge=1, le=8)] = 3


class Checkpoint(Section):
    """Where and how often to save; `dir` must be shared by all nodes. `interval` 0 saves nothing."""

    dir: Path = Field(strict=False)
    interval: Annotated[int, Field(ge=0)] = 0
    resume: Literal["auto", "off"] = "auto"


class Config(Section):
    """One run, as read from `trainer.json`."""

    run_id: str
    metrics: Path = Field(strict=False)
    seed: Annotated[int, Field(ge=0)] = 0
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
    work_dir: Path = Field(strict=False)

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def dp(self) -> int:
        return self.world_size // (self.parallel.tp * self.parallel.pp)

    @property
    def samples_per_update(self) -> int:
        """Samples that one data-parallel rank trains on in one optimizer update."""
        samples = self.rollout.rollout_batch_size * self.rollout.n_samples_per_prompt
        return samples // (self.dp * self.algorithm.num_steps_per_rollout)


def load_config(path: Path) -> Config:
    """Read `path`; raises ConfigError with one `trainer.json: key: reason` sentence per bad key."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        config = Config.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError("\n".join(_sentences(path, error))) from None
    for key, reason in _conflicts(config):
        raise ConfigError(f"{path.name}: {key}: {reason}")
    return config


def _sentences(path: Path, error: ValidationError) -> list[str]:
    """One `file: key: reason` line per problem that pydantic found."""
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"]) or "(whole file)"
        reason = "unknown key" if problem["type"] == "extra_forbidden" else problem["msg"]
        lines.append(f"{path.name}: {key}: {reason}")
    return lines


def _conflicts(c: Config) -> list[tuple[str, str]]:
    """Every (key, reason) where values that are fine alone cannot work together."""
    p, m, r, a = c.parallel, c.model, c.rollout, c.algorithm
    samples = r.rollout_batch_size * r.n_samples_per_prompt
    local = c.dp * a.num_steps_per_rollout
    rules = [
        (c.world_size % (p.tp * p.pp) != 0, "parallel.tp",
         f"nodes x ranks_per_node = {c.world_size} is not a multiple of tp x pp = {p.tp * p.pp}"),
        (m.num_query_groups % p.tp != 0, "parallel.tp",
         f"tp = {p.tp} does not divide model.num_query_groups = {m.num_query_groups}"),
        (m.ffn_hidden_size % p.tp != 0, "parallel.tp",
         f"tp = {p.tp} does not divide model.ffn_hidden_size = {m.ffn_hidden_size}"),
        (m.num_layers % p.pp != 0, "parallel.pp",
         f"pp = {p.pp} does not divide model.num_layers = {m.num_layers}"),
        (r.engines != c.nodes * c.engines_per_node, "rollout.engines",
         f"{r.engines} engines on {c.nodes} nodes; one engine a node is {c.nodes * c.engines_per_node}"),
        (local == 0 or samples % local != 0, "rollout.rollout_batch_size",
         f"{samples} samples a step do not split over dp x num_steps_per_rollout = {local}"),
        (a.sft_steps > 0 and c.dp > 0 and a.sft_batch_size % c.dp != 0, "algorithm.sft_batch_size",
         f"{a.sft_batch_size} examples do not split over dp = {c.dp}"),
    ]
    return [(key, reason) for broken, key, reason in rules if broken]
