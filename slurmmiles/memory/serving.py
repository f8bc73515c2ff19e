"""Bytes of one GPU of a rollout engine: SGLang's weights, and what is left for its caches.

`--mem-fraction-static` is SGLang's share of the card for weights and pool together. How it shards
shared experts and embeddings under data-parallel attention is not certain, so there are two counts:
`weights` with shared experts and the input embedding on every GPU, `weights_best` with both split
over the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurmmiles.models import ModelFacts
from slurmmiles.parameters import count_parameters


@dataclass(frozen=True, slots=True)
class EngineShape:
    """GPUs of an engine, and its data-parallel attention."""

    gpus: int
    dp: int

    @property
    def attn_tp(self) -> int:
        return self.gpus // self.dp


def engine_weight_bytes(
    model: ModelFacts, engine: EngineShape, param_bytes: int = 2
) -> tuple[float, float]:
    """(worst, best) weight bytes of one GPU of the engine; they agree when dp is 1."""
    count = count_parameters(model)
    gpus, attn_tp = engine.gpus, engine.attn_tp
    always = count.routed / gpus + (count.mamba + count.attention + count.mlp) / attn_tp
    always += count.latent + count.router + count.norms + count.extras / attn_tp
    split = (count.shared + count.embedding + count.output) / gpus
    if engine.dp == 1:
        return param_bytes * (always + split), param_bytes * (always + split)
    whole = count.shared + count.embedding + count.output / attn_tp
    return param_bytes * (always + whole), param_bytes * (always + split)


def kv_bytes_per_token(model: ModelFacts, attn_tp: int, cache_bytes: int = 2) -> int:
    """KV cache of one token on one GPU, of the layers whose cache grows with the context."""
    a = model.attention
    if a is None:
        return 0
    growing = model.count_blocks("*") - a.sliding_window_layers
    return growing * 2 * max(1, a.num_query_groups // attn_tp) * a.kv_channels * cache_bytes


def mamba_bytes_per_request(model: ModelFacts, attn_tp: int) -> float:
    """Mamba-2's state of one request on one GPU: fp32 state, bf16 convolution window."""
    m = model.mamba
    if m is None:
        return 0.0
    inner = m.num_heads * m.head_dim
    channels = inner + 2 * m.num_groups * m.state_dim
    state = 4 * inner * m.state_dim + 2 * channels * (m.conv_kernel - 1)
    return model.count_blocks("M") * state / attn_tp
