"""What must agree between nodes: versions, environment, MTU, GIDs; a subnet manager for all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurmmiles.nics import Gid, NicFacts, NicKind
from slurmmiles.preflight.ib import judge_ports_on_nodes, parse_ibstat
from slurmmiles.preflight.roce import PortMtu, judge_gids, judge_mtu
from slurmmiles.preflight.software import Software, judge_software
from slurmmiles.report import Finding
from tests.unit.preflight.made import ibstat, rows, table


def said(findings: list[Finding]) -> set[tuple[str, str, str]]:
    return {(f.code, f.verdict.value, f.subject) for f in findings}


def four_nodes() -> dict[str, Software]:
    raw: dict[str, dict[str, Any]] = json.loads(table("versions-of-four-nodes.json"))
    return {
        n: Software({k: v for k, v in said.items() if k != "env"}, said["env"])
        for n, said in raw.items()
    }


def test_each_node_that_differs_is_named_with_what_differs() -> None:
    assert said(judge_software(four_nodes())) == {
        ("driver_skew", "FAIL", "node=n01"),
        ("fabricmanager_driver_mismatch", "FAIL", "node=n02"),
        ("nvshmem_host_device_mismatch", "FAIL", "node=n03"),
        ("env_skew", "FAIL", "node=n03,var=NCCL_ALGO"),
        ("nccl_version_mismatch", "FAIL", "node=n00"),
        ("version_skew", "WARN", "node=n00"),
    }


def test_two_nccls_matter_less_when_nothing_is_colocated() -> None:
    found = said(judge_software(four_nodes(), colocate=False))
    assert ("nccl_version_mismatch", "WARN", "node=n00") in found


def test_names_of_interfaces_may_differ() -> None:
    nodes = {
        n: Software({}, {"NCCL_IB_HCA": f"={n}", "GLOO_SOCKET_IFNAME": n, "NCCL_NET": "IB"})
        for n in ("a", "b", "c")
    }
    assert judge_software(nodes) == []


def test_without_a_majority_the_head_is_not_the_reference() -> None:
    two = {"head": Software({"driver": "570.1"}), "n01": Software({"driver": "550.1"})}
    assert said(judge_software(two)) == {("driver_skew", "FAIL", "job=driver")}
    env = {"head": Software({}, {"NCCL_ALGO": "RING"}), "n01": Software({}, {"NCCL_DEBUG": None})}
    assert said(judge_software(env)) == {
        ("env_skew", "FAIL", "node=head,var=NCCL_ALGO"),
        ("env_skew", "FAIL", "node=n01,var=NCCL_ALGO"),
    }


def test_what_a_node_does_not_say_is_not_judged() -> None:
    nodes = {"a": Software({"driver": "570.1"}), "b": Software({"driver": None}), "c": Software({})}
    assert judge_software(nodes) == []


MTU = [
    PortMtu("n00", "mlx5_0", "Ethernet", 4096, 9000),
    PortMtu("n01", "mlx5_0", "Ethernet", 4096, 9000),
    PortMtu("n02", "mlx5_0", "Ethernet", 1024, 1500),
    PortMtu("n03", "mlx5_1", "InfiniBand", 4096, 2044),
]


def test_an_mtu_is_compared_with_ports_of_its_own_kind() -> None:
    assert said(judge_mtu(MTU)) == {("mtu_mismatch", "FAIL", "node=n02,nic=mlx5_0")}
    assert judge_mtu(MTU[:2]) == judge_mtu([]) == []
    pair = [MTU[2], MTU[0]]
    assert said(judge_mtu(pair)) == {("mtu_mismatch", "FAIL", "node=n02,nic=mlx5_0")}
    ib = [PortMtu(f"i{n}", "mlx5_0", "InfiniBand", 4096 if n else 2048, 2044) for n in range(3)]
    assert said(judge_mtu(ib)) == {("mtu_mismatch", "FAIL", "node=i0,nic=mlx5_0")}


def gid_nodes() -> dict[str, list[NicFacts]]:
    nodes: dict[str, list[NicFacts]] = {}
    for row in rows("gids.tsv"):
        gids = nodes.setdefault(row["node"], [NicFacts(name=row["dev"], kind=NicKind.ROCE)])[0].gids
        gid = Gid(index=int(row["index"]), value=row["gid"], type=row["type"], netdev=row["ndev"])
        nodes[row["node"]] = [NicFacts(name=row["dev"], kind=NicKind.ROCE, gids=(*gids, gid))]
    return nodes


def test_a_gid_index_is_right_on_one_node_and_wrong_on_another() -> None:
    assert said(judge_gids(gid_nodes(), dict.fromkeys(("a0", "a1", "a2"), "3"))) == {
        ("roce_gid_index_mismatch", "FAIL", "node=a1,nic=mlx5_0"),
        ("roce_no_routable_gid", "FAIL", "node=a2,nic=mlx5_0"),
    }
    assert [n[0].gid_index for n in gid_nodes().values()] == [3, 5, None]


@pytest.mark.parametrize("value", [None, "", "-1"])
def test_leaving_the_index_to_nccl_leaves_only_what_no_index_mends(value: str | None) -> None:
    found = judge_gids(gid_nodes(), dict.fromkeys(("a0", "a1", "a2"), value))
    assert [f.code for f in found] == ["roce_no_routable_gid"]


@pytest.mark.parametrize(
    ("gids", "index"),
    [
        ([(0, "fe80::1", "RoCE v2"), (4, "fd00::1:2", "RoCE v2")], 4),
        ([(2, "2001:db8::9", "RoCE v2"), (3, "::ffff:10.0.0.1", "RoCE v2")], 3),
        ([(1, "::ffff:169.254.3.4", "RoCE v2")], None),
        ([(1, "::ffff:10.0.0.1", "IB/RoCE v1")], None),
        ([(0, "::", "RoCE v2"), (1, "no address", "RoCE v2")], None),
    ],
)
def test_the_right_index_is_of_a_routable_address(
    gids: list[tuple[int, str, str]], index: int | None
) -> None:
    entries = tuple(Gid(index=i, value=v, type=t) for i, v, t in gids)
    assert NicFacts(name="mlx5_0", kind=NicKind.ROCE, gids=entries).gid_index == index


def waiting(nodes: int) -> dict[str, tuple[NicFacts, ...]]:
    up = ("mlx5_0", "Active", "LinkUp", 400, "InfiniBand")
    wait = ("mlx5_1", "Initializing", "LinkUp", 400, "InfiniBand")
    down = ("mlx5_2", "Down", "Polling", 10, "InfiniBand")
    return {
        f"n{i:02}": parse_ibstat(ibstat([up, wait, down] if i == 0 else [up, wait]))
        for i in range(nodes)
    }


def test_many_ports_that_wait_are_the_subnet_managers_and_not_the_nodes() -> None:
    assert {f.subject for f in judge_ports_on_nodes(waiting(2))} == {
        "node=n00,nic=mlx5_1",
        "node=n00,nic=mlx5_2",
        "node=n01,nic=mlx5_1",
    }
    assert said(judge_ports_on_nodes(waiting(3))) == {
        ("ib_port_not_active", "FAIL", "fabric=subnet-manager"),
        ("ib_port_not_active", "FAIL", "node=n00,nic=mlx5_2"),
    }
