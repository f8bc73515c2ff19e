"""Lists of names as NCCL and Gloo read them, and values on their way to the workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmmiles.env_launch import (
    exempt,
    judge_env_on_worker,
    judge_extra_env,
    judge_proxy,
    plain_extra_env,
)
from slurmmiles.env_names import (
    judge_hca_list,
    judge_hca_on_nodes,
    judge_ifname,
    judge_ifnames_on_nodes,
)
from slurmmiles.name_lists import (
    exact,
    interface_towards,
    parse_addresses,
    select_hcas,
    select_interfaces,
)

TABLES = Path(__file__).resolve().parents[1] / "recorded" / "preflight" / "tables"


def rules(name: str) -> list[tuple[str | None, list[str], str]]:
    """(value, or None for unset; names there are; names selected)."""
    lines = (TABLES / name).read_text().splitlines()[1:]
    cells = [line.split("\t") for line in lines]
    return [(None if v == "(unset)" else v, names.split(","), chosen) for v, names, chosen in cells]


@pytest.mark.parametrize(("value", "devices", "selected"), rules("hca-rules.tsv"))
def test_devices_are_selected_as_nccl_selects_them(
    value: str, devices: list[str], selected: str
) -> None:
    assert (",".join(select_hcas(value, devices)) or "(none)") == selected


@pytest.mark.parametrize(("value", "names", "selected"), rules("ifname-rules.tsv"))
def test_interfaces_are_selected_as_nccl_selects_them(
    value: str | None, names: list[str], selected: str
) -> None:
    assert (",".join(select_interfaces(value, names)) or "(none)") == selected


def test_a_list_that_does_not_mean_what_it_says_is_a_warning() -> None:
    judged = [judge_hca_list(value, devices) for value, devices, _ in rules("hca-rules.tsv")]
    assert [row for row, found in enumerate(judged, 1) if found] == [2, 5, 7, 9, 10, 11]
    assert {(f.code, f.verdict.value) for found in judged for f in found} == {
        ("hca_prefix_match", "WARN")
    }
    ifs = [judge_ifname(value, names) for value, names, _ in rules("ifname-rules.tsv")]
    assert {row: f.code for row, found in enumerate(ifs, 1) for f in found} == {
        4: "ifname_exclusion_readmits_lo",
        6: "ifname_exclusion_readmits_lo",
        7: "ifname_matches_nothing",
    }


@pytest.mark.parametrize(
    ("value", "devices", "trap"),
    [
        ("ibp2", ["ibp2", "ibp20", "ibp3"], True),
        ("ibp", ["ibp2", "ibp20", "ibp3"], False),
        ("mlx5_1", ["mlx5_0", "mlx5_1"], False),
        ("mlx5_1", ["mlx5_10", "mlx5_11"], True),
        ("=mlx5_1", ["mlx5_1", "mlx5_10"], False),
        ("=mlx5_0,mlx5_9", ["mlx5_0", "mlx5_1"], True),
        ("^mlx5_bond_0", ["mlx5_0", "mlx5_1"], False),
        ("^mlx5_1", ["mlx5_0", "mlx5_1", "mlx5_12"], True),
        ("mlx5_1:1", ["mlx5_1", "mlx5_10"], True),
        ("=mlx5_0:1:0:1", ["mlx5_0"], False),
        ("", ["mlx5_0"], True),
        ("^", ["mlx5_0"], True),
        ("mlx5_0,^mlx5_1", ["mlx5_0", "mlx5_1"], True),
    ],
)
def test_other_lists(value: str, devices: list[str], trap: bool) -> None:
    assert bool(judge_hca_list(value, devices)) is trap


def test_a_port_is_matched_with_the_ports_that_the_device_has() -> None:
    ports = {"mlx5_0": (1, 2)}
    assert select_hcas("=mlx5_0:2", ["mlx5_0"], ports) == ("mlx5_0",)
    assert judge_hca_list("=mlx5_0:2", ["mlx5_0"], ports=ports) == []


COMPUTE = {
    "n00": ["mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"],
    "n01": ["mlx5_0", "mlx5_3", "mlx5_5", "mlx5_8"],
    "n02": ["mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"],
}


def test_one_list_for_nodes_with_other_names_is_wrong_on_those_nodes() -> None:
    one = dict.fromkeys(COMPUTE, exact(COMPUTE["n00"]))
    (found,) = judge_hca_on_nodes(one, COMPUTE)
    assert (found.code, found.subject) == ("hca_list_invalid_on_node", "node=n01")
    assert "2 of its 4" in found.message
    assert "=mlx5_0,mlx5_3,mlx5_5,mlx5_8" in found.remedy
    own = {node: exact(names) for node, names in COMPUTE.items()}
    assert judge_hca_on_nodes(own, COMPUTE) == []
    assert judge_hca_on_nodes(dict.fromkeys(COMPUTE), COMPUTE) == []


def test_a_list_that_takes_a_storage_port_too_is_wrong() -> None:
    devices = {"n00": ["mlx5_0", "mlx5_1", "mlx5_bond_0"]}
    compute = {"n00": ["mlx5_0", "mlx5_1"]}
    assert judge_hca_on_nodes({"n00": "mlx5"}, compute, devices)
    assert not judge_hca_on_nodes({"n00": "mlx5_0,mlx5_1"}, compute, devices)


ADDRESSES = {
    "n00": """1: lo    inet 127.0.0.1/8 scope host lo
2: eno1    inet 10.20.0.10/16 brd 10.20.255.255 scope global eno1
3: docker0    inet 172.17.0.1/16 brd 172.17.255.255 scope global docker0
4: ib0    inet 10.30.0.10/16 brd 10.30.255.255 scope global ib0
""",
    "n01": """1: lo    inet 127.0.0.1/8 scope host lo
2: eth0    inet 10.20.0.11/16 brd 10.20.255.255 scope global eth0
3: virbr0    inet 192.168.122.1/24 brd 192.168.122.255 scope global virbr0
4: ib0    inet 10.30.0.11/16 brd 10.30.255.255 scope global ib0
""",
}
ROUTES = {
    "n00": "local 10.20.0.10 dev lo src 10.20.0.10 uid 0 \n",
    "n01": "10.20.0.10 dev eth0 src 10.20.0.11 uid 0 \n",
}


def test_the_interface_is_the_owner_of_the_source_address() -> None:
    found = {n: interface_towards(ROUTES[n], parse_addresses(ADDRESSES[n])) for n in ADDRESSES}
    assert found == {"n00": "eno1", "n01": "eth0"}
    own = parse_addresses(ADDRESSES["n00"])
    assert interface_towards("172.17.0.1 dev docker0 src 172.17.0.1 uid 0", own) is None
    assert interface_towards("RTNETLINK answers: Network is unreachable", own) is None
    vlan = parse_addresses("7: eth0.100@eth0    inet 10.9.0.1/24 scope global eth0.100\n")
    assert interface_towards("10.9.0.2 dev eth0.100 src 10.9.0.1", vlan) == "eth0.100"


def test_a_name_that_a_node_does_not_have_is_found_on_that_node() -> None:
    interfaces = {n: list(parse_addresses(text)) for n, text in ADDRESSES.items()}

    def nodes(**env: str) -> list[str]:
        return [
            f.subject for f in judge_ifnames_on_nodes(dict.fromkeys(interfaces, env), interfaces)
        ]

    assert nodes(NCCL_SOCKET_IFNAME="eno1", GLOO_SOCKET_IFNAME="eno1") == ["node=n01"]
    assert nodes(GLOO_SOCKET_IFNAME="eth0,ib0") == ["node=n00"]
    assert nodes(NCCL_SOCKET_IFNAME="=ib0", GLOO_SOCKET_IFNAME="ib0") == []
    assert nodes(NCCL_SOCKET_IFNAME="^lo,docker,virbr") == []
    assert nodes() == []


HEAD = {
    "NCCL_SOCKET_IFNAME": "eth0",
    "GLOO_SOCKET_IFNAME": "eth0",
    "NCCL_DEBUG": "WARN",
    "NCCL_IB_HCA": "=mlx5_0,mlx5_1",
    "NCCL_NET": "AWS Libfabric",
    "FI_CXI_DEFAULT_CQ_SIZE": "131072",
    "NVSHMEM_DISABLE_NCCL": "0",
}
FORWARDED = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_DEBUG", "NCCL_DEBUG_FILE")


def test_what_a_worker_does_not_have_is_named() -> None:
    (found,) = judge_env_on_worker("n01", HEAD, {"PATH": "/usr/bin"}, FORWARDED)
    assert (found.code, found.subject) == ("env_missing_on_worker", "node=n01")
    assert found.evidence["missing"] == (
        "NCCL_IB_HCA,NCCL_NET,FI_CXI_DEFAULT_CQ_SIZE,NVSHMEM_DISABLE_NCCL"
    )
    assert judge_env_on_worker("n00", HEAD, HEAD) == []


def test_another_value_counts_unless_nodes_may_differ_in_it() -> None:
    seen = {**HEAD, "NCCL_IB_HCA": "=ibp0", "GLOO_SOCKET_IFNAME": "eno1", "NCCL_NET": "IB"}
    (found,) = judge_env_on_worker("n01", HEAD, seen)
    assert (found.code, found.evidence["differs"]) == ("env_differs_on_worker", "NCCL_NET")


def test_the_plain_form_loses_what_has_an_equals_sign_or_a_blank() -> None:
    assert plain_extra_env("NCCL_DEBUG=WARN") == {"NCCL_DEBUG": "WARN"}
    assert plain_extra_env("NCCL_IB_HCA==mlx5_0,mlx5_1") == {"NCCL_IB_HCA": ""}
    assert plain_extra_env("TORCH_X=a=b") == {"TORCH_X": "a"}
    with pytest.raises(IndexError):
        plain_extra_env("NCCL_NET=AWS Libfabric")
    wanted = {**HEAD, "TORCH_X": "a=b"}
    lost = judge_extra_env(wanted)
    assert {f.code for f in lost} == {"env_value_lost_in_launcher"}
    assert {f.subject for f in lost} == {"var=NCCL_IB_HCA", "var=NCCL_NET", "var=TORCH_X"}
    assert judge_extra_env(wanted, json.dumps(wanted)) == []
    assert {f.subject for f in judge_extra_env({"A": "1"}, "[1]")} == {"var=A"}


PROXY = {"http_proxy": "http://proxy.site:3128", "https_proxy": "http://proxy.site:3128"}
NODES = ["n00", "10.20.0.10", "n01", "10.20.0.11"]


@pytest.mark.parametrize(
    ("env", "subject"),
    [
        ({**PROXY, "no_proxy": "localhost,127.0.0.1"}, "var=no_proxy"),
        (PROXY, "var=no_proxy"),
        ({**PROXY, "no_proxy": ",".join(NODES)}, None),
        ({**PROXY, "no_proxy": ",".join(NODES), "NO_PROXY": "localhost"}, "var=NO_PROXY"),
        ({**PROXY, "no_proxy": "*"}, None),
        ({**PROXY, "no_proxy": "n00,n01,10.20.0.0/16"}, "var=no_proxy"),
        ({"ALL_PROXY": "socks5://proxy:1080", "NO_PROXY": "n00"}, "var=NO_PROXY"),
        ({"no_proxy": "localhost"}, None),
        ({"http_proxy": ""}, None),
    ],
)
def test_a_proxy_must_not_stand_between_the_nodes(env: dict[str, str], subject: str | None) -> None:
    found = judge_proxy(env, NODES)
    assert [f.subject for f in found] == ([subject] if subject else [])
    assert {f.code for f in found} <= {"proxy_covers_cluster"}


def test_suffixes_exempt_hosts_of_a_domain() -> None:
    assert exempt("n00.cluster", ".cluster") and exempt("n00.cluster", "cluster")
    assert exempt("n00.a.cluster", "*.cluster") and not exempt("n00", "cluster")
    assert not exempt("n00.mycluster", "cluster")
