from __future__ import annotations

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput
from slurmmiles.topology import Rollout, make_rollout

model = Catalog((shipped("configs"),)).model
ULTRA = model("nemotron-3-ultra-550b-a55b")
ENGINES = dict(nodes=16, ranks_per_node=8, gpus_per_engine=32, ep=32, dp=4)


def ultra(**changes: int) -> Rollout:
    return make_rollout(model=ULTRA, **{**ENGINES, **changes})


def test_nemotron_ultra_has_four_engines_of_four_nodes() -> None:
    r = ultra()
    assert (r.engines, r.gpus_per_engine, r.ep, r.dp, r.attn_tp, r.nodes_per_engine) == (
        4,
        32,
        32,
        4,
        8,
        4,
    )
    assert r.engine_nodes == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15))


def test_the_4_layer_slice_has_one_engine_on_one_node() -> None:
    part = model("nemotron-3-ultra-550b-a55b-4layer")
    r = make_rollout(model=part, nodes=1, ranks_per_node=8, gpus_per_engine=8, ep=8, dp=2)
    assert (r.engines, r.attn_tp, r.nodes_per_engine, r.engine_nodes) == (1, 4, 1, ((0,),))


def test_engines_smaller_than_a_node_share_it() -> None:
    r = make_rollout(model=model("qwen3-0.6b"), nodes=2, ranks_per_node=8, gpus_per_engine=2)
    assert (r.engines, r.nodes_per_engine) == (8, 1)
    assert r.engine_nodes == ((0,),) * 4 + ((1,),) * 4


@pytest.mark.parametrize(
    ("change", "what", "works"),
    [
        (
            {"nodes": 15},
            "120 GPUs (15 nodes x 8) do not divide into engines of 32",
            "nodes works at",
        ),
        (
            {"gpus_per_engine": 24},
            "do not divide into engines of 24",
            "gpus_per_engine works at 32",
        ),
        ({"gpus_per_engine": 12}, "neither spans whole nodes of 8 nor divides one", ""),
        (
            {"dp": 5},
            "an engine of 32 GPUs does not divide by data-parallel attention dp 5",
            "4, 8 or 16",
        ),
        ({"dp": 64}, "does not divide by data-parallel attention dp 64", "16 or 32"),
        (
            {"dp": 1},
            "n_groups 8 do not divide by attn_tp = gpus_per_engine / dp = 32 / 1 = 32",
            "4",
        ),
        ({"dp": 2}, "attn_tp = gpus_per_engine / dp = 32 / 2 = 16", "4 or 8"),
        ({"ep": 48}, "an engine of 32 GPUs does not divide by ep 48", "16 or 32"),
        ({"ep": 3}, "512 experts do not divide by ep 3", "rollout.ep works at"),
        ({"dp": 0}, "0 is not a count", ""),
        ({"gpus_per_engine": -8}, "-8 is not a count", ""),
        ({"nodes": 10**8}, "more than 131072", ""),
    ],
    ids=str,
)
def test_broken_engines_are_refused_with_their_numbers_and_what_works(
    change: dict[str, int], what: str, works: str
) -> None:
    with pytest.raises(BadInput) as caught:
        ultra(**change)
    assert what in caught.value.what
    assert works in caught.value.fix
    assert caught.value.fix and caught.value.where and caught.value.exit_code == 2


def test_kv_heads_and_attention_heads_limit_attn_tp() -> None:
    with pytest.raises(BadInput, match="16 attention heads do not divide by attn_tp"):
        make_rollout(model=model("qwen3-0.6b"), nodes=4, ranks_per_node=8, gpus_per_engine=32)


def test_a_dense_model_has_no_expert_parallel_rollout() -> None:
    with pytest.raises(BadInput, match="qwen3-0.6b has no experts, so rollout.ep 2 must be 1"):
        make_rollout(model=model("qwen3-0.6b"), nodes=1, ranks_per_node=8, gpus_per_engine=2, ep=2)


def test_an_expert_divides_over_what_expert_parallelism_leaves_of_the_engine() -> None:
    with pytest.raises(BadInput, match="does not divide by gpus_per_engine / ep = 48"):
        make_rollout(
            model=model("inkling-small"),
            nodes=12,
            ranks_per_node=8,
            gpus_per_engine=96,
            ep=2,
            dp=12,
        )


def test_the_rollout_survives_json() -> None:
    assert Rollout.model_validate_json(ultra().model_dump_json()) == ultra()
