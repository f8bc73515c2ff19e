"""What a model is, as far as a plan needs it: the schema of `configs/models/*.yaml`.

Pure data: reading the file is `yamlfile`'s work, counting parameters is `parameters`'s. A layer is
one or two blocks, written with Nemotron-H's letters: `M` Mamba-2, `*` attention, `E` mixture of
experts, `-` dense MLP. A transformer layer is `*-` or `*E`; a hybrid model has one letter a layer.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Block = Literal["M", "*", "E", "-"]
BLOCK_NAMES: dict[str, str] = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
FlagValue = str | int | float | bool


class Facts(BaseModel):
    """A section of a model file: frozen, and a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Attention(Facts):
    """Grouped-query attention; names as Megatron's flags."""

    num_attention_heads: int = Field(gt=0)
    num_query_groups: int = Field(gt=0)
    kv_channels: int = Field(gt=0)
    qk_layernorm: bool = False
    sliding_window_layers: int = Field(default=0, ge=0)
    """Layers whose KV cache is bounded by a window, so that they do not grow with the context."""


class Mamba(Facts):
    """Mamba-2; names as Megatron's `--mamba-*` flags."""

    num_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    state_dim: int = Field(gt=0)
    num_groups: int = Field(gt=0)
    conv_kernel: int = Field(gt=0)


class Moe(Facts):
    """Routed and shared experts of one layer."""

    num_experts: int = Field(gt=0)
    router_topk: int = Field(gt=0)
    ffn_hidden_size: int = Field(gt=0)
    latent_size: int | None = Field(default=None, gt=0)
    """Routed experts work at this width, between two projections from and to the hidden size."""
    shared_experts: int = Field(default=0, ge=0)
    shared_ffn_hidden_size: int = Field(default=0, ge=0)
    """Of one shared expert."""
    router_scores_shared: bool = False
    """The router has one output more for each shared expert (Inkling's shared-expert sink)."""


class Extra(Facts):
    """Parameters of a block beyond the standard shapes, for example a short convolution."""

    what: str
    block: Block
    parameters: int = Field(gt=0)
    sharded: bool
    """Split over tensor-parallel ranks, else present on each."""
    layers: tuple[int, ...] | None = Field(default=None, strict=False)
    """Only in these layers (from 0); None: in each layer that has the block."""


class LayerGroup(Facts):
    """`count` equal layers of the given blocks."""

    blocks: str = Field(pattern=r"^[M*E\-]{1,2}$")
    count: int = Field(gt=0, le=4096)


class Calibration(Facts):
    """A measured correction of the memory estimate: not derived, so printed with its source."""

    train_reserve_gb: float = Field(gt=0)
    """All that a training GPU needs beyond weights, gradients and optimizer states."""
    source: str


class ModelFacts(Facts):
    """One model, as trained; `untrained` says in words what its checkpoint has besides."""

    name: str
    hf_id: str | None = None
    miles_type: str | None = None
    hidden_size: int = Field(gt=0)
    ffn_hidden_size: int | None = Field(default=None, gt=0)
    gated: bool
    """SwiGLU-like MLPs with three matrices, else two (squared ReLU)."""
    vocab_size: int = Field(gt=0)
    tied_embeddings: bool
    hybrid_pattern: str | None = Field(default=None, pattern=r"^[M*E\-]+$")
    layer_groups: tuple[LayerGroup, ...] = Field(default=(), strict=False)
    attention: Attention | None = None
    mamba: Mamba | None = None
    moe: Moe | None = None
    extras: tuple[Extra, ...] = Field(default=(), strict=False)
    embedding_norm: bool = False
    honours_recompute: bool = True
    """False: the model's code takes no activation-recompute settings, whatever the flags say."""
    untrained: str = ""
    max_context: int | None = Field(default=None, gt=0)
    calibration: Calibration | None = None
    miles_args: dict[str, FlagValue] = Field(default_factory=dict)
    """Megatron's model flags as miles prints them for this model; true: a flag without a value."""

    @model_validator(mode="after")
    def _whole(self) -> ModelFacts:
        if (self.hybrid_pattern is None) == (not self.layer_groups):
            raise ValueError("give the layers either as hybrid_pattern or as layer_groups")
        blocks = set("".join(self.layers))
        needs = {"*": self.attention, "M": self.mamba, "E": self.moe, "-": self.ffn_hidden_size}
        for block, section in needs.items():
            if block in blocks and section is None:
                raise ValueError(
                    f"layers have {BLOCK_NAMES[block]} blocks ({block}) of no given size"
                )
        if self.moe and self.moe.router_topk > self.moe.num_experts:
            raise ValueError(
                f"router_topk {self.moe.router_topk} is more than {self.moe.num_experts} experts"
            )
        if self.attention:
            heads, groups = self.attention.num_attention_heads, self.attention.num_query_groups
            if heads % groups:
                raise ValueError(f"{heads} attention heads do not divide into {groups} groups")
        return self

    @property
    def layers(self) -> tuple[str, ...]:
        """The blocks of each layer, in order: `('M', 'E', ...)` or `('*-', '*E', ...)`."""
        if self.hybrid_pattern is not None:
            return tuple(self.hybrid_pattern)
        return tuple(g.blocks for g in self.layer_groups for _ in range(g.count))

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def count_blocks(self, block: str) -> int:
        """How many layers have this block."""
        return sum(block in blocks for blocks in self.layers)
