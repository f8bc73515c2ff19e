"""How many parameters a model has, by the way in which they are split over ranks.

Shapes are Megatron's and Nemotron-H's: attention (q, k, v, output), Mamba-2 (input and output
projection, causal convolution, per-head scalars, gated norm), experts of two or three matrices,
router, latent projections, RMSNorms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurmmiles.models import ModelFacts, Moe


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by splitting: `routed` over EP x ETP, `sharded` over TP, the rest everywhere."""

    routed: int = 0
    sharded: int = 0
    duplicated: int = 0
    vectors: int = 0
    """Of `sharded` and `duplicated`: norms, biases and per-head scalars, in no matrix product."""

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(
            self.routed + other.routed,
            self.sharded + other.sharded,
            self.duplicated + other.duplicated,
            self.vectors + other.vectors,
        )

    @property
    def total(self) -> int:
        return self.routed + self.sharded + self.duplicated


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """A model's parameters by kind; `active` are those that one token uses."""

    attention: int
    mamba: int
    mlp: int
    routed: int
    shared: int
    latent: int
    router: int
    norms: int
    extras: int
    embedding: int
    output: int
    """0 where the output layer is the embedding."""
    total: int
    active: int
    flops: int
    """N of the `6 N` FLOPs a token: active less the input embedding (a lookup) and vectors."""


def attention_parameters(model: ModelFacts) -> int:
    """Query, key, value and output matrices of one attention block."""
    a = model.attention
    if a is None:
        return 0
    return 2 * model.hidden_size * a.kv_channels * (a.num_attention_heads + a.num_query_groups)


def mamba_parameters(model: ModelFacts) -> tuple[int, int]:
    """(matrices and convolution, vectors) of one Mamba-2 block."""
    m = model.mamba
    if m is None:
        return 0, 0
    inner = m.num_heads * m.head_dim
    channels = inner + 2 * m.num_groups * m.state_dim
    projections = model.hidden_size * (inner + channels + m.num_heads) + inner * model.hidden_size
    # Convolution bias; A_log, D and dt_bias of each head; the gated norm.
    return projections + channels * m.conv_kernel, channels + 3 * m.num_heads + inner


def mlp_parameters(width: int, hidden: int, gated: bool) -> int:
    """An MLP from `width` to `hidden` and back: three matrices when gated, else two."""
    return (3 if gated else 2) * width * hidden


def expert_parameters(model: ModelFacts, moe: Moe) -> int:
    """One routed expert."""
    return mlp_parameters(moe.latent_size or model.hidden_size, moe.ffn_hidden_size, model.gated)


def shared_parameters(model: ModelFacts, moe: Moe) -> int:
    """All shared experts of one layer."""
    return moe.shared_experts * mlp_parameters(
        model.hidden_size, moe.shared_ffn_hidden_size, model.gated
    )


def latent_parameters(model: ModelFacts, moe: Moe) -> int:
    """The two projections to and from the experts' latent width."""
    return 2 * model.hidden_size * moe.latent_size if moe.latent_size else 0


def router_parameters(model: ModelFacts, moe: Moe) -> int:
    """The gate's matrix; its expert bias is a vector and is not learned by gradients."""
    outputs = moe.num_experts + (moe.shared_experts if moe.router_scores_shared else 0)
    return model.hidden_size * outputs


def block_parameters(model: ModelFacts, block: str) -> Parameters:
    """One block with its RMSNorm, without extras."""
    norm = model.hidden_size
    if block == "*":
        qk = (
            2 * model.attention.kv_channels
            if model.attention and model.attention.qk_layernorm
            else 0
        )
        return Parameters(
            sharded=attention_parameters(model), duplicated=norm + qk, vectors=norm + qk
        )
    if block == "M":
        matrices, vectors = mamba_parameters(model)
        return Parameters(sharded=matrices + vectors, duplicated=norm, vectors=vectors + norm)
    if block == "-":
        ffn = mlp_parameters(model.hidden_size, model.ffn_hidden_size or 0, model.gated)
        return Parameters(sharded=ffn, duplicated=norm, vectors=norm)
    moe = model.moe
    if moe is None:
        return Parameters(duplicated=norm, vectors=norm)
    return Parameters(
        routed=moe.num_experts * expert_parameters(model, moe),
        sharded=shared_parameters(model, moe),
        duplicated=latent_parameters(model, moe) + router_parameters(model, moe) + norm,
        vectors=norm,
    )


def layer_parameters(model: ModelFacts, index: int) -> Parameters:
    """Layer `index` (from 0), its blocks and their extras."""
    blocks = model.layers[index]
    found = sum((block_parameters(model, block) for block in blocks), Parameters())
    for extra in model.extras:
        if extra.block in blocks and (extra.layers is None or index in extra.layers):
            sharded, duplicated = (extra.parameters, 0) if extra.sharded else (0, extra.parameters)
            found += Parameters(sharded=sharded, duplicated=duplicated)
    return found


def layers_parameters(model: ModelFacts, indices: Iterable[int]) -> Parameters:
    """The sum over layers, for example of one pipeline stage."""
    return sum((layer_parameters(model, i) for i in indices), Parameters())


def embedding_parameters(model: ModelFacts) -> int:
    """One table of vocabulary x hidden."""
    return model.vocab_size * model.hidden_size


def count_parameters(model: ModelFacts) -> ParameterCount:
    """Every parameter of the trained model, by kind, and what one token uses of them."""
    every = layers_parameters(model, range(model.num_layers))
    final_norms = model.hidden_size * (2 if model.embedding_norm else 1)
    table = embedding_parameters(model)
    output = 0 if model.tied_embeddings else table
    moe, moe_layers = model.moe, model.count_blocks("E")
    kinds = {
        "attention": attention_parameters(model) * model.count_blocks("*"),
        "mamba": mamba_parameters(model)[0] * model.count_blocks("M"),
        "mlp": (
            mlp_parameters(model.hidden_size, model.ffn_hidden_size or 0, model.gated)
            * model.count_blocks("-")
        ),
        "routed": every.routed,
        "shared": shared_parameters(model, moe) * moe_layers if moe else 0,
        "latent": latent_parameters(model, moe) * moe_layers if moe else 0,
        "router": router_parameters(model, moe) * moe_layers if moe else 0,
        "norms": every.vectors + final_norms,
    }
    total = every.total + final_norms + table + output
    used = every.routed * moe.router_topk // moe.num_experts if moe else 0
    active = total - every.routed + used
    return ParameterCount(
        **kinds,
        extras=every.total - sum(kinds.values()) + final_norms,
        embedding=table,
        output=output,
        total=total,
        active=active,
        flops=active - kinds["norms"] - (table if output else 0),
    )
