from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.topology import Topology, groups, make_topology, rank_grid, traffic

model = Catalog((shipped("configs"),)).model
POWERS = st.sampled_from([1, 2, 3, 4, 8])
DENSE = ("tp", "cp", "dp", "pp", "tp-cp", "dp-cp", "tp-pp", "tp-dp", "tp-dp-cp")
EXPERT = {"ep": "ep", "etp": "tp", "edp": "dp", "etp-ep": "tp-ep", "etp-ep-pp": "tp-ep-pp"}
ULTRA = dict(nodes=16, ranks_per_node=8, tp=8, pp=4, cp=1, ep=32, etp=1, sequence_parallel=True)


def plain(tp: int, cp: int, dp: int, pp: int, ep: int = 1, etp: int = 1) -> Topology:
    world = tp * cp * dp * pp
    return Topology(
        tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, etp=etp, edp=world // (ep * etp * pp),
        world_size=world, layers_per_stage=(1,) * pp,
    )  # fmt: skip


def check_against_megatron(t: Topology) -> None:
    """Every group of every kind, in order, as megatron-core's own generator builds it."""
    state = pytest.importorskip("megatron.core.parallel_state", reason="megatron-core is missing")
    order = "tp-cp-ep-dp-pp"
    dense = state.RankGenerator(tp=t.tp, ep=1, dp=t.dp, pp=t.pp, cp=t.cp, order=order)
    expert = state.RankGenerator(tp=t.etp, ep=t.ep, dp=t.edp, pp=t.pp, cp=1, order=order)
    for kind in DENSE:
        assert [list(g) for g in groups(t, kind)] == dense.get_ranks(kind), kind
    for kind, token in EXPERT.items():
        assert [list(g) for g in groups(t, kind)] == expert.get_ranks(token), kind


@settings(max_examples=60, deadline=None)
@given(tp=POWERS, cp=POWERS, dp=POWERS, pp=POWERS, data=st.data())
def test_groups_are_megatrons_own(tp: int, cp: int, dp: int, pp: int, data: st.DataObject) -> None:
    stage = tp * cp * dp
    etp = data.draw(st.sampled_from([d for d in (1, 2, 4, tp) if stage % d == 0]))
    ep = data.draw(st.sampled_from([d for d in range(1, stage + 1) if stage % (d * etp) == 0]))
    check_against_megatron(plain(tp, cp, dp, pp, ep, etp))


LARGE = [
    (8, 1, 32, 4, 32, 1), (8, 1, 16, 8, 64, 1), (4, 2, 32, 4, 16, 2), (1, 1, 1024, 1, 64, 1),
    (2, 4, 16, 8, 8, 2), (8, 2, 64, 1, 128, 1), (4, 1, 64, 4, 8, 4), (8, 8, 4, 4, 32, 8),
    (1, 16, 16, 4, 64, 4), (2, 1, 128, 4, 256, 1), (8, 1, 128, 1, 512, 2),
]  # fmt: skip


@pytest.mark.parametrize("sizes", LARGE, ids=str)
def test_groups_of_1024_gpus_are_megatrons_own(sizes: tuple[int, ...]) -> None:
    t = plain(*sizes)
    assert t.world_size == 1024
    check_against_megatron(t)


@settings(max_examples=60, deadline=None)
@given(tp=POWERS, cp=POWERS, dp=POWERS, pp=POWERS, data=st.data())
def test_a_rank_is_in_the_group_that_its_coordinates_name(
    tp: int, cp: int, dp: int, pp: int, data: st.DataObject
) -> None:
    stage = tp * cp * dp
    ep = data.draw(st.sampled_from([d for d in range(1, stage + 1) if stage % d == 0]))
    t = plain(tp, cp, dp, pp, ep)
    grid = rank_grid(t, ranks_per_node=8)
    assert [place.rank for place in grid] == list(range(t.world_size))
    for kind in ("tp", "cp", "dp", "pp", "ep", "etp", "edp"):
        found = groups(t, kind)
        assert sorted(rank for group in found for rank in group) == list(range(t.world_size))
        for group in found:
            assert [getattr(grid[rank], kind) for rank in group] == list(range(len(group)))


def test_ranks_fill_node_after_node() -> None:
    grid = rank_grid(make_topology(model=model("nemotron-3-ultra-550b-a55b"), **ULTRA), 8)  # type: ignore[arg-type]
    assert [(p.node, p.local_gpu) for p in grid] == [(r // 8, r % 8) for r in range(128)]


def test_stage_s_of_nemotron_ultra_is_nodes_4s_to_4s_plus_3() -> None:
    t = make_topology(model=model("nemotron-3-ultra-550b-a55b"), **ULTRA)  # type: ignore[arg-type]
    for place in rank_grid(t, 8):
        assert place.pp == place.node // 4
    assert traffic(t, 8, nodes_per_engine=4) == {
        "tp": "in a node",
        "cp": "none",
        "ep": "in a block",
        "etp": "none",
        "dp": "in a block",
        "edp": "none",
        "pp": "crosses blocks",
        "weights": "crosses blocks",
    }


def test_traffic_of_one_node_stays_there() -> None:
    t = plain(tp=2, cp=1, dp=4, pp=1, ep=8)
    reach = traffic(t, 8, nodes_per_engine=1)
    assert reach["ep"] == reach["tp"] == reach["dp"] == reach["weights"] == "in a node"


def test_an_unknown_kind_of_group_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        groups(plain(1, 1, 2, 1), "vp")
