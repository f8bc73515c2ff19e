from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmmiles.errors import BadInput
from slurmmiles.nodeorder import order_nodes, parse_topology, parse_topology_addr

# The forms of Slurm's own manual pages (topology.conf(5), scontrol(1)) and of a Slurm 23.11.
SCONTROL_TREE = """\
SwitchName=s0 Level=0 LinkSpeed=1 Nodes=tux[0-3]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=tux[4-7]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=tux[8-11]
SwitchName=s3 Level=0 LinkSpeed=1 Nodes=tux[12-15]
SwitchName=s4 Level=1 LinkSpeed=1 Nodes=tux[0-7] Switches=s[0-1]
SwitchName=s5 Level=1 LinkSpeed=1 Nodes=tux[8-15] Switches=s[2-3]
SwitchName=s6 Level=2 LinkSpeed=1 Nodes=tux[0-15] Switches=s[4-5]
"""
CONF_TREE = """\
# topology.conf
switchname=s0 Nodes=tux[0-3]   # first leaf
SwitchName=s1 nodes=tux[4-7]
SwitchName=s2 Nodes=tux[8-11]
SwitchName=s3 \\
  Nodes=tux[12-15]
SwitchName=s4 Switches=s[0-1]
SwitchName=s5 Switches=s2,s3
SwitchName=s6 Switches=s[4-5]
"""
BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=n[01-04] BlockSize=4
BlockName=b2 BlockIndex=1 Nodes=n[05-08] BlockSize=4
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[01-08] BlockSize=8
"""
CONF_BLOCKS = "BlockName=b1 Nodes=n[01-04]\nBlockName=b2 Nodes=n[05-08]\nBlockSizes=4,8\n"
LEAVES = {f"tux{i}": ("s6", "s4" if i < 8 else "s5", f"s{i // 4}") for i in range(16)}


@pytest.mark.parametrize("text", [SCONTROL_TREE, CONF_TREE], ids=["scontrol", "topology.conf"])
def test_a_tree_gives_each_node_its_switches_from_the_top(text: str) -> None:
    assert parse_topology(text) == LEAVES


def test_blocks_give_each_node_its_block_and_aggregated_block() -> None:
    assert parse_topology(CONF_BLOCKS) == {
        f"n0{i}": ("b1" if i < 5 else "b2",) for i in range(1, 9)
    }
    paths = parse_topology(BLOCKS)
    assert paths["n01"] == ("b[1-2]", "b1")
    assert paths["n08"] == ("b[1-2]", "b2")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No topology information available\n",
        "slurm_load_topo error: x\n",
        "TopologyPlugin=topology/flat",
    ],
)
def test_text_without_a_topology_gives_none(text: str) -> None:
    assert parse_topology(text) == {}


def test_two_spines_over_the_same_leaves_are_one_level_each() -> None:
    text = "SwitchName=l0 Nodes=a[0-1]\nSwitchName=l1 Nodes=a[2-3]\n"
    text += "SwitchName=sp0 Switches=l[0-1]\nSwitchName=sp1 Switches=l[0-1]\n"
    assert parse_topology(text)["a3"] == ("sp0", "sp1", "l1")


def test_switches_that_contain_each_other_do_not_loop() -> None:
    text = "SwitchName=a Switches=b Nodes=n1\nSwitchName=b Switches=a Nodes=n2\n"
    assert parse_topology(text) == {"n1": ("a", "b"), "n2": ("a", "b")}


def test_switch_names_that_are_no_host_names_are_taken() -> None:
    text = "SwitchName=MF0;x/L1 Nodes=n[1-2]\nSwitchName=top Switches=MF0;x/L1,other Nodes=n9\n"
    assert parse_topology(text)["n1"] == ("top", "MF0;x/L1")


def test_a_malformed_node_list_is_refused() -> None:
    with pytest.raises(BadInput, match="brackets"):
        parse_topology("SwitchName=s0 Nodes=n[1-")


@pytest.mark.parametrize(
    ("addr", "pattern", "node", "path"),
    [
        ("root_switch.CELL1.iswi1r4s0c1l1.belenos386", "switch.switch.switch.node", "belenos386",
         ("root_switch", "CELL1", "iswi1r4s0c1l1")),
        ("b1.n01", "block.node", "n01", ("b1",)),
        ("traverse-k01g2", "node", "traverse-k01g2", ()),
        ("s0.s1.n1", "", "n1", ("s0", "s1")),
        ("s[4-5].s0.tux1", "switch.switch.node", "tux1", ("s[4-5]", "s0")),
        ("s0.node1.example.org", "switch.node", "node1.example.org", ("s0",)),
    ],
)  # fmt: skip
def test_slurm_topology_addr_is_read_by_its_pattern(
    addr: str, pattern: str, node: str, path: tuple[str, ...]
) -> None:
    assert parse_topology_addr(addr, pattern) == (node, path)


@pytest.mark.parametrize(
    ("addr", "pattern"),
    [("", "node"), ("s0..n1", ""), ("n1", "switch.node"), (".n1", "switch.node")],
)
def test_an_addr_that_does_not_match_its_pattern_is_refused(addr: str, pattern: str) -> None:
    with pytest.raises(BadInput):
        parse_topology_addr(addr, pattern)


def test_unknown_topology_is_slurms_order_and_says_so() -> None:
    nodes = ("b", "a", "c")
    for paths in (None, {}, {"other": ("s0",)}):
        ordered = order_nodes(nodes, paths, 2)
        assert ordered.nodes == nodes
        assert ordered.reason == "Slurm's order: the switch topology is not known"


def test_each_engine_of_four_nodes_lies_under_one_leaf() -> None:
    shuffled = [f"tux{4 * (i % 4) + i // 4}" for i in range(16)]  # tux0 tux4 tux8 tux12 tux1 ...
    ordered = order_nodes(shuffled, LEAVES, 4)
    assert ordered.nodes == tuple(f"tux{i}" for i in range(16))
    assert (ordered.blocks, ordered.whole) == (4, 4)
    assert (
        ordered.reason
        == "by switch topology: each block of 4 nodes is under one leaf switch or block"
    )


def test_slurms_order_is_kept_where_it_is_as_good() -> None:
    nodes = [f"tux{i}" for i in (8, 9, 10, 11, 0, 1, 2, 3)]
    ordered = order_nodes(nodes, LEAVES, 4)
    assert ordered.nodes == tuple(nodes)
    assert ordered.reason.startswith("Slurm's order: each block of 4 nodes")


def test_a_block_that_must_cross_crosses_below_the_nearest_switch() -> None:
    """Three nodes of each leaf: the leftover ones pair below s4 and s5, not across them."""
    nodes = [f"tux{i}" for i in (0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14)]
    ordered = order_nodes(nodes, LEAVES, 2)
    pairs = [ordered.nodes[i : i + 2] for i in range(0, 12, 2)]
    assert sum(LEAVES[a] == LEAVES[b] for a, b in pairs) == 4
    assert all(LEAVES[a][:2] == LEAVES[b][:2] for a, b in pairs)
    assert "4 of 6 blocks of 2 nodes" in ordered.reason and "cross" in ordered.reason


def test_spares_are_the_nodes_that_complete_no_block() -> None:
    nodes = [f"tux{i}" for i in (4, 0, 1, 2, 3)]
    ordered = order_nodes(nodes, LEAVES, 4)
    assert ordered.nodes == ("tux0", "tux1", "tux2", "tux3", "tux4")


def test_nodes_outside_the_topology_come_after_known_blocks_and_are_counted() -> None:
    nodes = ["x1", "tux0", "x2", "tux1"]
    ordered = order_nodes(nodes, LEAVES, 2)
    assert ordered.nodes == ("tux0", "tux1", "x1", "x2")
    assert ordered.reason.endswith("2 nodes are not in the topology")


def test_engines_within_a_node_need_no_order() -> None:
    assert order_nodes(["tux4", "tux0"], LEAVES, 1).nodes == ("tux4", "tux0")


@settings(max_examples=200)
@given(
    nodes=st.lists(st.integers(0, 40), min_size=1, max_size=40, unique=True),
    per_leaf=st.integers(1, 7),
    block=st.integers(1, 6),
)
def test_an_order_keeps_every_node_and_has_as_many_whole_blocks_as_there_can_be(
    nodes: list[int], per_leaf: int, block: int
) -> None:
    names = [f"n{i}" for i in nodes]
    paths = {f"n{i}": ("top", f"leaf{i // per_leaf}") for i in range(41)}
    ordered = order_nodes(names, paths, block)
    assert sorted(ordered.nodes) == sorted(names)
    if block > 1:
        sizes = [sum(n // per_leaf == leaf for n in nodes) for leaf in range(41)]
        assert ordered.whole == sum(size // block for size in sizes)
        assert ordered.blocks == len(nodes) // block


LINES = st.from_regex(
    r"(Switch|Block|switch)[Nn]ame=[a-z]{1,3}"
    r"( Nodes=n\[?[0-9,-]{1,5}\]?)?( Switches=[a-z\[,\]0-9]{0,6})?",
    fullmatch=True,
)


@settings(max_examples=300)
@given(text=st.one_of(st.text(max_size=200), st.lists(LINES, max_size=8).map("\n".join)))
def test_any_text_is_a_topology_or_bad_input(text: str) -> None:
    try:
        paths = parse_topology(text)
    except BadInput:
        return
    assert all(node and path for node, path in paths.items())
    nodes = list(paths)
    assert sorted(order_nodes(nodes, paths, 2).nodes) == sorted(nodes)


@settings(max_examples=300)
@given(addr=st.text(max_size=60), pattern=st.sampled_from(["", "node", "switch.node", "a.b.c"]))
def test_any_addr_is_a_path_or_bad_input(addr: str, pattern: str) -> None:
    try:
        node, path = parse_topology_addr(addr, pattern)
    except BadInput:
        return
    assert node and all(path)
    assert ".".join((*path, node)) == addr.strip()
