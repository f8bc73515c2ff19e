"""NVLinks and ports of other products, and other faults in them."""

from __future__ import annotations

import pytest

from tests.unit.preflight.made import ibstat, judged, nvlink

HOPPER, BLACKWELL = 26.562, 53.125
NVL = [None if n % 6 > 3 else HOPPER for n in range(18)]
NVLINKS = {
    "eight b200": ([("NVIDIA B200", [BLACKWELL] * 18)] * 8, "PASS", set()),
    "four a100": ([("NVIDIA A100-SXM4-40GB", [25.0] * 12)] * 4, "PASS", set()),
    "inactive by design": ([("NVIDIA H100 NVL", NVL)] * 2, "PASS", set()),
    "cards without a bridge": ([("NVIDIA H100 PCIe", [None] * 18)] * 4, "PASS", set()),
    "a superchip alone": ([("NVIDIA GH200 480GB", [None] * 18)], "PASS", set()),
    "no links by product": ([("NVIDIA L40S", [])] * 8, "PASS", set()),
    "h800": ([("NVIDIA H800", [HOPPER] * 8)] * 8, "PASS", set()),
    "a gpu without lines": (
        [("NVIDIA H200", [HOPPER] * 18), ("NVIDIA H200", []), ("NVIDIA H200", [HOPPER] * 18)],
        "FAIL",
        {"gpu=1"},
    ),
    "the last gpu without lines": (
        [("NVIDIA B200", [BLACKWELL] * 18), ("NVIDIA B200", [])],
        "FAIL",
        {"gpu=1"},
    ),
    "a bridge that lost a link": (
        [("NVIDIA H100 NVL", NVL), ("NVIDIA H100 NVL", [None, *NVL[1:]])],
        "FAIL",
        {f"gpu=1,link={n}" for n in (0, 4, 5, 10, 11, 16, 17)},
    ),
    "v100 against its peers": (
        [("Tesla V100-SXM2-32GB", [25.781] * 6), ("Tesla V100-SXM2-32GB", [25.781] * 5 + [None])],
        "FAIL",
        {"gpu=1,link=5"},
    ),
}


@pytest.mark.parametrize("name", NVLINKS)
def test_links_of_other_products(name: str) -> None:
    gpus, verdict, subjects = NVLINKS[name]
    found = judged({"nvlink-s.txt": nvlink(gpus)})
    assert found[0] == verdict
    if verdict == "FAIL":
        assert found[1:] == ({"nvlink_inactive"}, subjects)


def test_a_link_at_half_its_rate_is_a_warning() -> None:
    slow = [("NVIDIA H200", [HOPPER] * 18), ("NVIDIA H200", [HOPPER] * 17 + [HOPPER / 2])]
    found = judged({"nvlink-s.txt": nvlink(slow)})
    assert found == ("WARN", {"nvlink_slow"}, {"gpu=1,link=17"})


ACTIVE = ("Active", "LinkUp", 400, "InfiniBand")
IBSTATS = {
    "all active": ([(f"mlx5_{i}", *ACTIVE) for i in range(8)], "", "PASS", set()),
    "armed": (
        [("mlx5_0", *ACTIVE), ("mlx5_1", "Armed", "LinkUp", 400, "InfiniBand")],
        "",
        "FAIL",
        {"nic=mlx5_1"},
    ),
    "no cable": (
        [("ibp0", *ACTIVE), ("ibp1", "Down", "Polling", 10, "InfiniBand")],
        "=ibp0,ibp1",
        "FAIL",
        {"nic=ibp1"},
    ),
    "a port that the list leaves out": (
        [("mlx5_0", *ACTIVE), ("mlx5_1", "Down", "Disabled", 10, "InfiniBand")],
        "=mlx5_0",
        "PASS",
        set(),
    ),
    "an Ethernet port that is down": (
        [("mlx5_0", *ACTIVE), ("mlx5_bond_0", "Down", "Polling", 25, "Ethernet")],
        "=mlx5_0",
        "PASS",
        set(),
    ),
    "an Ethernet port beside InfiniBand": (
        [("mlx5_0", *ACTIVE), ("mlx5_1", "Down", "Disabled", 100, "Ethernet")],
        "",
        "PASS",
        set(),
    ),
    "a RoCE node with a dead port": (
        [
            ("mlx5_0", "Active", "LinkUp", 400, "Ethernet"),
            ("mlx5_1", "Down", "Disabled", 40, "Ethernet"),
        ],
        "",
        "FAIL",
        {"nic=mlx5_1"},
    ),
    "an excluded port": (
        [("mlx5_0", *ACTIVE), ("mlx5_1", "Initializing", "LinkUp", 400, "InfiniBand")],
        "^=mlx5_1",
        "PASS",
        set(),
    ),
}


@pytest.mark.parametrize("name", IBSTATS)
def test_ports_by_ibstat(name: str) -> None:
    ports, listed, verdict, subjects = IBSTATS[name]
    files = {"ibstat.txt": ibstat(ports)}
    if listed:
        files["env.txt"] = f"NCCL_IB_HCA={listed}\n"
    found = judged(files)
    assert found[0] == verdict
    assert found[2] == subjects
    if verdict == "FAIL":
        assert found[1] == {"ib_port_not_active"}


def test_a_slow_port_of_the_list_fails() -> None:
    ports = [
        (f"mlx5_{i}", "Active", "LinkUp", 200 if i == 3 else 400, "InfiniBand") for i in range(8)
    ]
    found = judged({"ibstat.txt": ibstat(ports), "env.txt": "NCCL_IB_HCA=mlx5\n"})
    assert found == ("FAIL", {"ib_rate_low"}, {"nic=mlx5_3"})


def test_a_listed_port_that_is_not_shown_is_unknown() -> None:
    ports = [("mlx5_0", *ACTIVE)]
    files = {"ibstat.txt": ibstat(ports), "env.txt": "NCCL_IB_HCA==mlx5_0,mlx5_1\n"}
    assert judged(files) == ("UNKNOWN", {"ib_device_not_shown"}, {"nic=mlx5_1"})


def test_the_second_port_of_a_card_may_be_unused() -> None:
    card = ibstat([("mlx5_0", *ACTIVE)])
    second = card[card.index("\tPort 1:") :].replace("Port 1:", "Port 2:")
    unused = second.replace("Active", "Down").replace("LinkUp", "Disabled")
    waits = second.replace("Active", "Initializing")
    assert judged({"ibstat.txt": card + unused})[0] == "PASS"
    assert judged({"ibstat.txt": card + waits}) == (
        "FAIL",
        {"ib_port_not_active"},
        {"nic=mlx5_0,port=2"},
    )
    first = {"ibstat.txt": card + waits, "env.txt": "NCCL_IB_HCA==mlx5_0:1\n"}
    assert judged(first)[0] == "PASS"


def test_an_idle_port_of_another_kind_of_card_is_of_another_network() -> None:
    ports = ibstat([(f"mlx5_{i}", *ACTIVE) for i in range(4)])
    other = ibstat([("mlx5_9", "Down", "Polling", 10, "InfiniBand")]).replace("MT4129", "MT4123")
    assert judged({"ibstat.txt": ports + other})[0] == "PASS"
    listed = {"ibstat.txt": ports + other, "env.txt": "NCCL_IB_HCA=mlx5\n"}
    assert judged(listed)[2] == {"nic=mlx5_9"}
