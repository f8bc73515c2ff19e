from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.models import ModelFacts
from slurmmiles.parameters import count_parameters, layers_parameters

CATALOG = Catalog((shipped("configs"),))
MODELS = list(CATALOG.files("models").values())
GPUS = list(CATALOG.files("gpus").values())
model, gpu = CATALOG.model, CATALOG.gpu


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_a_shipped_model_is_named_as_its_file_and_counts_to_its_parts(path: Path) -> None:
    facts = model(path.stem)
    count = count_parameters(facts)
    assert facts.name == path.stem
    kinds = (count.attention, count.mamba, count.mlp, count.routed, count.shared, count.latent)
    rest = (count.router, count.norms, count.extras, count.embedding, count.output)
    assert count.total == sum(kinds) + sum(rest)
    assert 0 < count.flops <= count.active <= count.total


@pytest.mark.parametrize("path", GPUS, ids=lambda p: p.stem)
def test_a_shipped_gpu_is_named_as_its_file_and_has_less_than_its_name_promises(path: Path) -> None:
    facts = gpu(path.stem)
    assert facts.name.lower() == path.stem
    assert facts.supports_fp8 == (facts.architecture != "ampere")
    assert facts.fp8_tflops is None or facts.fp8_tflops == pytest.approx(
        2 * facts.bf16_tflops, rel=0.02
    )


@pytest.mark.parametrize("path", [*MODELS, *GPUS], ids=lambda p: p.stem)
def test_every_shipped_fact_states_its_source(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    bare = [
        line
        for line in text.splitlines()
        if line.startswith(("hidden_size", "vocab_size", "memory_mib", "bf16_tflops", "nvlink"))
        and "#" not in line
    ]
    assert bare == []


def test_the_gpus_of_the_issue_ship() -> None:
    wanted = {"a100-40", "a100-80", "h100", "h200", "b100", "b200", "gb200", "gb300", "l40s"}
    assert wanted <= {p.stem for p in GPUS}


def test_h200_shows_143771_mib_which_are_150_8_gb() -> None:
    assert gpu("h200").memory_gb == pytest.approx(150.8, abs=0.05)


def test_nemotron_ultra_has_549_3_b_parameters_of_which_56_1_b_are_active() -> None:
    count = count_parameters(model("nemotron-3-ultra-550b-a55b"))
    assert count.total / 1e9 == pytest.approx(549.3, abs=0.05)
    assert count.active / 1e9 == pytest.approx(56.1, abs=0.05)


def test_nemotron_ultra_and_its_mtp_head_make_up_the_released_checkpoint() -> None:
    """The bf16 checkpoint is 1,121 GB: the trained model and one attention and one MoE layer."""
    facts = model("nemotron-3-ultra-550b-a55b")
    head = layers_parameters(facts, [facts.layers.index("*"), facts.layers.index("E")]).total
    assert 2 * (count_parameters(facts).total + head) / 1e9 == pytest.approx(1121, abs=1)


def test_nemotron_ultra_has_48_mamba_48_moe_and_12_attention_layers_where_published() -> None:
    layers = model("nemotron-3-ultra-550b-a55b").layers
    assert len(layers) == 108
    assert (layers.count("M"), layers.count("E"), layers.count("*")) == (48, 48, 12)
    published = [7, 14, 23, 32, 39, 48, 57, 64, 73, 82, 89, 98]
    assert [i for i, block in enumerate(layers) if block == "*"] == published


def test_the_4_layer_slice_keeps_source_layers_0_1_7_and_8() -> None:
    whole = model("nemotron-3-ultra-550b-a55b")
    part = model("nemotron-3-ultra-550b-a55b-4layer")
    assert part.layers == tuple(whole.layers[i] for i in (0, 1, 7, 8))
    changed = {"name", "hf_id", "miles_type", "hybrid_pattern", "untrained", "miles_args"}
    assert whole.model_dump(exclude=changed) == part.model_dump(exclude=changed)
    assert part.miles_args == {**whole.miles_args, "--num-layers": 4}


def test_inkling_small_has_the_active_parameters_of_the_openrecipes_file_to_the_unit() -> None:
    assert count_parameters(model("inkling-small")).flops == 11_173_191_680


def test_inkling_small_and_its_mtp_layers_make_up_the_released_checkpoint() -> None:
    """532 GB in bf16, of which 4.46 GB are the eight MTP layers."""
    total = 2 * count_parameters(model("inkling-small")).total / 1e9
    assert total + 4.46 == pytest.approx(532, abs=0.5)


def test_qwen3_0_6b_has_its_published_number_of_parameters() -> None:
    assert count_parameters(model("qwen3-0.6b")).total == 596_049_920


def test_nemotron_super_is_120_b_with_12_b_active() -> None:
    count = count_parameters(model("nemotron-3-super-120b-a12b"))
    assert count.total / 1e9 == pytest.approx(120.7, abs=0.1)
    assert count.active / 1e9 == pytest.approx(12.8, abs=0.1)


@pytest.mark.parametrize(
    "name", [p.stem for p in MODELS if "miles_type:" in p.read_text(encoding="utf-8")]
)
def test_the_miles_arguments_agree_with_the_facts(name: str) -> None:
    facts = model(name)
    args, moe, attention = facts.miles_args, facts.moe, facts.attention
    assert moe is not None and attention is not None
    assert args["--num-layers"] == facts.num_layers
    assert args["--hidden-size"] == facts.hidden_size
    assert args["--vocab-size"] == facts.vocab_size
    assert args["--num-attention-heads"] == attention.num_attention_heads
    assert args["--num-query-groups"] == attention.num_query_groups
    assert args["--kv-channels"] == attention.kv_channels
    assert args["--num-experts"] == moe.num_experts
    assert args["--moe-router-topk"] == moe.router_topk
    assert args["--moe-ffn-hidden-size"] == moe.ffn_hidden_size
    assert args["--moe-shared-expert-intermediate-size"] == moe.shared_ffn_hidden_size
    assert args.get("--moe-latent-size") == moe.latent_size
    assert args.get("--swiglu", False) == facts.gated
    assert args["--untie-embeddings-and-output-weights"] != facts.tied_embeddings


TINY = {
    "name": "x",
    "hidden_size": 8,
    "ffn_hidden_size": 16,
    "gated": True,
    "vocab_size": 32,
    "tied_embeddings": False,
    "layer_groups": [{"blocks": "*-", "count": 2}],
    "attention": {"num_attention_heads": 2, "num_query_groups": 1, "kv_channels": 4},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_groups": []}, "either as hybrid_pattern or as layer_groups"),
        ({"hybrid_pattern": "M*"}, "either as hybrid_pattern or as layer_groups"),
        ({"layer_groups": [{"blocks": "M", "count": 1}]}, "mamba blocks"),
        ({"layer_groups": [{"blocks": "*E", "count": 1}]}, "moe blocks"),
        ({"attention": None}, "attention blocks"),
        ({"layer_groups": [{"blocks": "X", "count": 1}]}, "pattern"),
        ({"hidden_size": "8"}, "valid integer"),
        ({"hidden_size": -1}, "greater than 0"),
        ({"surprise": 1}, "Extra inputs"),
        (
            {"attention": {"num_attention_heads": 3, "num_query_groups": 2, "kv_channels": 4}},
            "3 attention heads do not divide into 2 groups",
        ),
        (
            {"moe": {"num_experts": 2, "router_topk": 3, "ffn_hidden_size": 4}},
            "router_topk 3 is more than 2 experts",
        ),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(change: dict[str, object], message: str) -> None:
    assert ModelFacts.model_validate(TINY).num_layers == 2
    with pytest.raises(ValidationError, match=message):
        ModelFacts.model_validate({**TINY, **change})
