"""Megatron's names and fused layouts map to Hugging Face's and back without a bit of difference."""

from __future__ import annotations

import pytest
from needs import needs

needs("torch", "transformers")

import torch  # noqa: E402
from worlds import MODEL, make_config, reference_weights  # noqa: E402

from trainer.weight_names import from_hf, to_hf, with_layer_offset  # noqa: E402

LAYER = (
    "input_layernorm.weight",
    "self_attention.linear_qkv.weight",
    "self_attention.q_layernorm.weight",
    "self_attention.k_layernorm.weight",
    "self_attention.linear_proj.weight",
    "pre_mlp_layernorm.weight",
    "mlp.linear_fc1.weight",
    "mlp.linear_fc2.weight",
)


def megatron_names(layers: int) -> list[str]:
    return [
        "embedding.word_embeddings.weight",
        *(f"decoder.layers.{layer}.{name}" for layer in range(layers) for name in LAYER),
        "decoder.final_layernorm.weight",
        "output_layer.weight",
    ]


@pytest.mark.parametrize("groups", [1, 2, 4], ids="groups-{}".format)
def test_hf_to_megatron_to_hf_is_exact_and_leaves_nothing_out(groups: int) -> None:
    config = make_config(model=MODEL | {"num_query_groups": groups})
    weights = reference_weights(config)
    fused = {
        name: from_hf(name, weights, config.model)
        for name in megatron_names(config.model.num_layers)
    }
    back = dict(
        pair for name, weight in fused.items() for pair in to_hf(name, weight, config.model)
    )
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)


def test_fused_qkv_is_by_query_group_heads_then_key_then_value() -> None:
    config = make_config(model=MODEL | {"num_attention_heads": 4, "kv_channels": 2})
    prefix = "model.layers.0.self_attn"
    rows = {"q": range(100, 108), "k": range(200, 204), "v": range(300, 304)}
    weights = {
        f"{prefix}.{part}_proj.weight": torch.tensor([[float(i)] for i in values])
        for part, values in rows.items()
    }
    fused = from_hf("decoder.layers.0.self_attention.linear_qkv.weight", weights, config.model)
    first = [*range(100, 104), 200, 201, 300, 301]
    second = [*range(104, 108), 202, 203, 302, 303]
    assert fused.flatten().tolist() == first + second


def test_a_stage_numbers_its_layers_from_its_offset() -> None:
    name = "decoder.layers.1.mlp.linear_fc2.weight"
    assert with_layer_offset(name, 4) == "decoder.layers.5.mlp.linear_fc2.weight"
    assert with_layer_offset("output_layer.weight", 4) == "output_layer.weight"


@pytest.mark.parametrize("name", ["decoder.layers.0.mlp.router.weight", "mtp.weight"])
def test_an_unknown_name_is_an_error(name: str) -> None:
    config = make_config()
    with pytest.raises(KeyError):
        list(to_hf(name, torch.zeros(2, 2), config.model))
    with pytest.raises(KeyError):
        from_hf(name, {}, config.model)
