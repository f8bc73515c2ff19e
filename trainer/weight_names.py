"""Megatron's parameter names and layouts <-> Hugging Face's Qwen3, for full (unsharded) tensors.

Megatron fuses q, k, v into `linear_qkv` by query group ([the group's q heads, k, v] for each) and
gate, up into `linear_fc1` ([gate; up]). Layer numbers are global: a pipeline stage adds its offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from trainer.config import Model

_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.+)")
_OUTSIDE = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}
_PLAIN = {
    "input_layernorm.weight": "input_layernorm.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
}
_QKV = "self_attention.linear_qkv.weight"
_FC1 = "mlp.linear_fc1.weight"


def to_hf(name: str, tensor: Tensor, model: Model) -> Iterator[tuple[str, Tensor]]:
    """The HF (name, tensor) pairs of one full Megatron parameter; KeyError for an unknown name."""
    if name in _OUTSIDE:
        yield _OUTSIDE[name], tensor
        return
    layer, rest = _split(name)
    prefix = f"model.layers.{layer}."
    if rest == _QKV:
        for part, weight in zip("qkv", _split_qkv(tensor, model), strict=True):
            yield f"{prefix}self_attn.{part}_proj.weight", weight
    elif rest == _FC1:
        gate, up = tensor.chunk(2)
        yield f"{prefix}mlp.gate_proj.weight", gate
        yield f"{prefix}mlp.up_proj.weight", up
    else:
        yield prefix + _PLAIN[rest], tensor


def from_hf(name: str, weights: dict[str, Tensor], model: Model) -> Tensor:
    """The full Megatron parameter `name`, built from HF `weights`; KeyError when one is missing."""
    if name in _OUTSIDE:
        return weights[_OUTSIDE[name]]
    layer, rest = _split(name)
    prefix = f"model.layers.{layer}."
    if rest == _QKV:
        return _fuse_qkv([weights[f"{prefix}self_attn.{p}_proj.weight"] for p in "qkv"], model)
    if rest == _FC1:
        return torch.cat([weights[f"{prefix}mlp.{p}_proj.weight"] for p in ("gate", "up")])
    return weights[prefix + _PLAIN[rest]]


def with_layer_offset(name: str, offset: int) -> str:
    """`name` of a pipeline stage's own numbering in the whole model's numbering."""
    match = _LAYER.fullmatch(name)
    return f"decoder.layers.{int(match[1]) + offset}.{match[2]}" if match else name


def is_gated(name: str) -> bool:
    """Whether a tensor-parallel shard of it holds a part of gate and then a part of up."""
    return name.endswith(_FC1)


def _split(name: str) -> tuple[str, str]:
    match = _LAYER.fullmatch(name)
    if match is None:
        raise KeyError(name)
    return match[1], match[2]


def _split_qkv(fused: Tensor, model: Model) -> list[Tensor]:
    groups, width = model.num_query_groups, model.kv_channels
    per_group = model.num_attention_heads // groups
    grouped = fused.view(groups, per_group + 2, width, -1)
    parts = torch.split(grouped, [per_group, 1, 1], dim=1)
    return [part.reshape(-1, fused.shape[-1]) for part in parts]


def _fuse_qkv(qkv: list[Tensor], model: Model) -> Tensor:
    groups, width = model.num_query_groups, model.kv_channels
    parts = [part.view(groups, -1, width, part.shape[-1]) for part in qkv]
    return torch.cat(parts, dim=1).reshape(-1, qkv[0].shape[-1])
