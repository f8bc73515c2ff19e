from __future__ import annotations

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput
from slurmmiles.topology import (
    Topology,
    check_batches,
    flat_topology,
    make_topology,
    split_layers,
    warnings,
)

model = Catalog((shipped("configs"),)).model
ULTRA = model("nemotron-3-ultra-550b-a55b")
INKLING = model("inkling-small")
QWEN = model("qwen3-0.6b")
LAYOUT = dict(nodes=16, ranks_per_node=8, tp=8, pp=4, cp=1, ep=32, etp=1, sequence_parallel=True)
SMALL = dict(nodes=4, ranks_per_node=8, tp=4, cp=1, etp=1, sequence_parallel=True)


def ultra(**changes: object) -> Topology:
    return make_topology(model=ULTRA, **{**LAYOUT, **changes})  # type: ignore[arg-type]


def test_nemotron_ultra_on_16_nodes_is_as_miles_runs_it() -> None:
    t = ultra()
    assert (t.tp, t.pp, t.cp, t.ep, t.etp, t.dp, t.edp) == (8, 4, 1, 32, 1, 4, 1)
    assert (t.world_size, t.layers_per_stage) == (128, (27, 27, 27, 27))


def test_the_4_layer_slice_gives_every_rank_of_one_node_to_experts() -> None:
    part = model("nemotron-3-ultra-550b-a55b-4layer")
    t = make_topology(model=part, nodes=1, ranks_per_node=8, tp=1, pp=1, cp=1, ep=8, etp=1)
    assert (t.dp, t.edp, t.layers_per_stage) == (8, 1, (4,))


def test_inkling_small_has_the_measured_and_the_validated_layout() -> None:
    seed = make_topology(model=INKLING, pp=4, ep=8, layers_first=12, **SMALL)  # type: ignore[arg-type]
    assert (seed.dp, seed.layers_per_stage) == (2, (12, 10, 10, 10))
    miles = make_topology(model=INKLING, pp=8, ep=4, layers_last=7, **SMALL)  # type: ignore[arg-type]
    assert (miles.dp, miles.layers_per_stage) == (1, (5, 5, 5, 5, 5, 5, 5, 7))


def test_every_stage_of_the_measured_inkling_layout_has_ten_moe_layers() -> None:
    seed = make_topology(model=INKLING, pp=4, ep=8, layers_first=12, **SMALL)  # type: ignore[arg-type]
    counts = [sum("E" in INKLING.layers[i] for i in stage) for stage in seed.stages]
    assert counts == [10, 10, 10, 10]


def test_a_split_given_outright_is_taken_and_checked() -> None:
    given = ultra(layers_per_stage=(30, 26, 26, 26))
    assert given.layers_per_stage == (30, 26, 26, 26)
    for wrong in ((30, 26, 26), (30, 26, 26, 25), (108, 0, 0, 0)):
        with pytest.raises(BadInput, match="the layer split"):
            ultra(layers_per_stage=wrong)


@pytest.mark.parametrize(
    ("layers", "pp", "first", "last", "stages"),
    [
        (42, 4, 12, None, (12, 10, 10, 10)),
        (42, 8, None, 7, (5, 5, 5, 5, 5, 5, 5, 7)),
        (42, 4, 12, 10, (12, 10, 10, 10)),
        (10, 2, 4, 6, (4, 6)),
        (10, 1, None, None, (10,)),
        (10, 2, 4, 5, None),
        (10, 3, None, None, None),
        (10, 1, 10, None, (10,)),
        (10, 1, 5, 5, None),
        (10, 3, 9, None, None),
    ],
)
def test_layers_are_split_as_megatron_splits_them(
    layers: int, pp: int, first: int | None, last: int | None, stages: tuple[int, ...] | None
) -> None:
    assert split_layers(layers, pp, first, last) == stages


BROKEN = [
    (
        {"nodes": 15},
        "120 GPUs (15 nodes x 8) do not divide by tp x pp x cp = 8 x 4 x 1 = 32",
        "16 or 32",
    ),
    ({"tp": 16}, "the Mamba n_groups 8 do not divide by tp 16", "4 or 8"),
    ({"tp": 3}, "64 attention heads do not divide by tp 3", "parallel.tp works at"),
    ({"ep": 48}, "512 experts do not divide by ep 48", "parallel.ep works at 16 or 32"),
    ({"ep": 64}, "32 ranks of a pipeline stage do not divide by ep x etp = 64 x 1", "16 or 32"),
    ({"pp": 8}, "108 layers do not divide into 8 pipeline stages", "parallel.pp works at 2 or 4"),
    ({"cp": 3}, "tp x pp x cp = 8 x 4 x 3 = 96", "parallel.cp works at"),
    ({"etp": 3}, "the expert width 5120 does not divide by etp 3", ""),
    ({"layers_first": 29}, "108 layers with 29 in the first stage leave 79 layers for 3", "27"),
    ({"layers_last": 107}, "leave 1 layers for 3 other pipeline stages", "parallel.layers_last"),
    ({"layers_first": 54, "layers_last": 54}, "leave 0 layers for 2 other", ""),
    ({"sequence_parallel": False}, "experts with tp 8 need sequence parallelism", "true"),
    ({"tp": 1, "ep": 32}, "but tp is 1", "set it to false"),
    ({"nodes": 0}, "0 is not a count", ""),
    ({"nodes": -1}, "-1 is not a count", ""),
    ({"pp": 0}, "0 is not a count", ""),
    ({"cp": -3}, "-3 is not a count", ""),
    ({"ranks_per_node": 0}, "0 is not a count", ""),
    ({"nodes": 10**9}, "8000000000 ranks, more than 131072", ""),
]


@pytest.mark.parametrize(("change", "numbers", "works"), BROKEN, ids=lambda v: str(v)[:40])
def test_a_broken_layout_is_refused_with_its_numbers_and_what_works(
    change: dict[str, object], numbers: str, works: str
) -> None:
    with pytest.raises(BadInput) as caught:
        ultra(**change)
    assert numbers in caught.value.what
    assert works in caught.value.fix
    assert caught.value.fix and caught.value.where and caught.value.exit_code == 2


def test_all_broken_rules_are_told_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        ultra(tp=16, pp=5, ep=48)
    for part in ("4 rules", "tp x pp x cp", "pipeline stages", "n_groups", "512 experts"):
        assert part.replace("4 rules", "rules are broken") in caught.value.what


@pytest.mark.parametrize("change", [c for c, _, _ in BROKEN], ids=lambda v: str(v)[:40])
def test_every_value_that_an_error_suggests_works(change: dict[str, object]) -> None:
    names = {"nodes": "nodes"} | {
        f"parallel.{n}": n for n in ("tp", "pp", "cp", "ep", "etp", "layers_first", "layers_last")
    }
    with pytest.raises(BadInput) as caught:
        ultra(**change)
    for advice in caught.value.fix.split("; "):
        key, works, values = advice.partition(" works at ")
        if works and key in names:
            for value in values.replace(" or ", ", ").split(", "):
                fixed = {**change, names[key]: int(value)}
                if key == "parallel.tp":
                    fixed["sequence_parallel"] = int(value) > 1
                assert ultra(**fixed).world_size > 0


def test_a_dense_model_has_no_expert_parallelism() -> None:
    with pytest.raises(BadInput, match="qwen3-0.6b has no experts, so parallel.ep 2 must be 1"):
        make_topology(model=QWEN, nodes=1, ranks_per_node=8, tp=1, pp=1, cp=1, ep=2, etp=1)


def test_query_groups_may_be_a_divisor_of_tp() -> None:
    t = make_topology(
        model=QWEN,
        nodes=2,
        ranks_per_node=8,
        tp=16,
        pp=1,
        cp=1,
        ep=1,
        etp=1,
        sequence_parallel=True,
    )
    assert t.dp == 1
    assert "crosses nodes of 8 GPUs" in warnings(t, 8)[0]
    assert warnings(ultra(), 8) == []


def test_a_run_without_a_model_has_a_flat_layout() -> None:
    t = flat_topology(12)
    assert (t.dp, t.world_size, t.layers_per_stage, t.stages) == (12, 12, (), ())


def test_256_samples_in_batches_of_128_are_two_steps() -> None:
    steps = check_batches(
        rollout_batch_size=32, n_samples_per_prompt=8, global_batch_size=128, dp=4
    )
    assert steps == 2


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"global_batch_size": 100}, "256 samples do not divide into global batches of 100"),
        ({"dp": 3}, "a global batch of 128 does not divide by dp x micro_batch_size = 3 x 1"),
        ({"micro_batch_size": 64}, "= 4 x 64"),
        ({"global_batch_size": 512}, "256 samples do not divide into global batches of 512"),
        ({"global_batch_size": 0}, "0 is not a count"),
        ({"n_samples_per_prompt": -8}, "-8 is not a count"),
    ],
)
def test_batches_that_do_not_divide_are_refused(change: dict[str, int], what: str) -> None:
    sizes = dict(rollout_batch_size=32, n_samples_per_prompt=8, global_batch_size=128, dp=4)
    with pytest.raises(BadInput) as caught:
        check_batches(**{**sizes, **change})
    assert what in caught.value.what


def test_the_layout_survives_json() -> None:
    t = ultra()
    assert Topology.model_validate_json(t.model_dump_json()) == t
