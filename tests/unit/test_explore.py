"""Ranked layouts: what is valid, what comes first, and why."""

from __future__ import annotations

from functools import cache

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.costmodel import micro_batches, step_seconds
from slurmmiles.errors import BadInput
from slurmmiles.explore import Exploration, RankedLayout, explore
from slurmmiles.layouts import shape_of
from slurmmiles.topology import split_layers

CATALOG = Catalog((shipped("configs"),))


@cache
def found(name: str, gpu: str = "h200", nodes: int | None = None) -> Exploration:
    recipe = CATALOG.recipe(name)
    model = CATALOG.model(recipe.model.facts or "")
    return explore(recipe, model, CATALOG.gpu(gpu), nodes=nodes or recipe.slurm.nodes, gpus=8)


def layout(among: Exploration, tp: int, pp: int, ep: int) -> RankedLayout:
    return next(r for r in among.layouts if (r.tp, r.pp, r.ep) == (tp, pp, ep))


def test_the_measured_inkling_layout_ranks_above_miles_own_on_32_h200() -> None:
    among = found("inkling-small")
    measured, own = layout(among, 4, 4, 8), layout(among, 4, 8, 4)
    assert measured.rank < own.rank
    assert measured.verdict == own.verdict == "fits"
    assert own.is_recipe and own.layers_per_stage == (5, 5, 5, 5, 5, 5, 5, 7)
    assert measured.dp == 2 and own.dp == 1


def test_the_model_gives_the_measured_direction_and_about_its_size() -> None:
    """616.67 against 396.9 tokens/s/GPU were measured, in supervised fine-tuning."""
    among = found("inkling-small")
    faster = layout(among, 4, 8, 4).step_s / layout(among, 4, 4, 8).step_s
    assert 1.2 < faster < 2.0


def test_the_nemotron_layout_is_among_the_valid_ones_of_128_and_fits() -> None:
    own = layout(found("nemotron-ultra"), 8, 4, 32)
    assert own.is_recipe and own.verdict == "fits"
    assert own.all_to_all == "in a block" and "all-to-all of 32 inside an engine's nodes" in own.why


@pytest.mark.parametrize("name", ["nemotron-ultra", "inkling-small", "nemotron-super"])
def test_layouts_are_ranked_by_verdict_and_then_by_time(name: str) -> None:
    among = found(name).layouts
    order = ["fits", "tight", "does not fit"]
    keys = [(order.index(r.verdict), r.step_s) for r in among]
    assert keys == sorted(keys)
    assert [r.rank for r in among] == list(range(1, len(among) + 1))


@pytest.mark.parametrize("name", ["nemotron-ultra", "inkling-small", "nemotron-super"])
def test_each_layout_is_there_once_and_uses_every_gpu(name: str) -> None:
    among = found(name)
    keys = [(r.tp, r.pp, r.cp, r.ep, r.etp) for r in among.layouts]
    assert len(keys) == len(set(keys))
    assert {r.tp * r.pp * r.cp * r.dp for r in among.layouts} == {among.nodes * 8}


@pytest.mark.parametrize("name", ["nemotron-ultra", "inkling-small"])
def test_every_layout_obeys_the_rules_that_a_plan_enforces(name: str) -> None:
    recipe = CATALOG.recipe(name)
    model = CATALOG.model(recipe.model.facts or "")
    for r in found(name).layouts:
        first, last = r.layers_per_stage[0], r.layers_per_stage[-1]
        ends = (first, last) if r.pp > 1 else (None, None)
        if split_layers(model.num_layers, r.pp) == r.layers_per_stage:
            ends = (None, None)
        parallel = recipe.parallel.model_copy(
            update={"tp": r.tp, "pp": r.pp, "ep": r.ep, "layers_first": ends[0],
                    "layers_last": ends[1], "sequence_parallel": None}
        )  # fmt: skip
        shape = shape_of(
            recipe.model_copy(update={"parallel": parallel}), model, CATALOG.gpu("h200"),
            nodes=recipe.slurm.nodes, gpus=8, ranks=8,
        )  # fmt: skip
        assert shape.topology.layers_per_stage == r.layers_per_stage


def test_mambas_groups_cap_tp_at_8() -> None:
    assert max(r.tp for r in found("nemotron-ultra").layouts) == 8


def test_on_h100_nothing_of_nemotron_fits_because_of_its_engines() -> None:
    assert {r.verdict for r in found("nemotron-ultra", "h100").layouts} == {"does not fit"}


def test_the_cost_model_is_stated() -> None:
    stated = "\n".join(found("nemotron-ultra").cost_model)
    for word in ("compute", "bubble", "tp:", "ep:", "dp:", "offload", "50 GB/s"):
        assert word in stated


def test_the_parts_of_a_step_add_up() -> None:
    for r in found("inkling-small").layouts:
        assert sum(r.seconds.values()) == pytest.approx(r.step_s, abs=0.01)


def test_an_all_to_all_inside_a_node_costs_less_than_one_across() -> None:
    among = found("nemotron-ultra")
    assert layout(among, 8, 4, 8).seconds["ep"] < layout(among, 8, 4, 16).seconds["ep"] / 3


def test_more_stages_have_a_larger_bubble() -> None:
    among = found("nemotron-ultra")
    assert layout(among, 8, 4, 8).seconds["bubble"] < layout(among, 8, 8, 8).seconds["bubble"]
    assert layout(among, 8, 1, 128).seconds["bubble"] == 0.0


def test_rows_are_packed_and_never_cut_into_micro_batches() -> None:
    recipe = CATALOG.recipe("nemotron-ultra", ["algorithm.max_tokens_per_gpu=16384"])
    model, gpu = CATALOG.model("nemotron-3-ultra-550b-a55b"), CATALOG.gpu("h200")
    shape = shape_of(recipe, model, gpu, nodes=16, gpus=8, ranks=8)
    assert micro_batches(recipe, shape.topology) == 128 / 4 / 2
    longer = CATALOG.recipe("nemotron-ultra")
    assert micro_batches(longer, shape.topology) == 128 / 4


def test_optimizer_states_on_the_gpu_take_no_host_link() -> None:
    recipe = CATALOG.recipe("nemotron-ultra", ["optimizer.cpu_offload=0.0"])
    model, gpu = CATALOG.model("nemotron-3-ultra-550b-a55b"), CATALOG.gpu("h200")
    shape = shape_of(recipe, model, gpu, nodes=16, gpus=8, ranks=8)
    assert step_seconds(recipe, shape, model, gpu).offload == 0.0


def test_a_run_without_a_model_has_no_layouts_to_rank() -> None:
    with pytest.raises(BadInput, match="no model on GPUs"):
        explore(CATALOG.recipe("gate-check"), None, CATALOG.gpu("h200"), nodes=1, gpus=8)


def test_gpus_on_which_no_layout_works_are_refused() -> None:
    recipe = CATALOG.recipe(
        "nemotron-ultra", ["rollout.gpus_per_engine=1", "rollout.ep=1", "rollout.dp=1"]
    )
    model = CATALOG.model("nemotron-3-ultra-550b-a55b")
    with pytest.raises(BadInput, match="obeys every rule"):
        explore(recipe, model, CATALOG.gpu("h200"), nodes=7, gpus=7)
