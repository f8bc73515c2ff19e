"""Topology tables of other products, and other faults in them."""

from __future__ import annotations

import pytest

from tests.unit.preflight.made import gpus_csv, judged, per_gpu, topo


def pairs_of(a: int, b: int) -> str:
    """Bridges between neighbours: 0-1, 2-3, ..."""
    return "NV12" if a // 2 == b // 2 else "SYS"


H200, H100, A100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
TOPOLOGIES = {
    "l40s": (topo(8, "NODE", per_gpu(2)), gpus_csv(8, "NVIDIA L40S"), "PASS", set()),
    "l40s by one switch": (topo(4, "PIX"), gpus_csv(4, "NVIDIA L40S"), "PASS", set()),
    "rtx pro": (
        topo(8, "PHB"),
        gpus_csv(8, "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        "PASS",
        set(),
    ),
    "h100 nvl in pairs": (topo(8, pairs_of), gpus_csv(8, "NVIDIA H100 NVL"), "PASS", set()),
    "h100 nvl without bridges": (
        topo(2, "SYS"),
        gpus_csv(2, "NVIDIA H100 NVL"),
        "WARN",
        {"nvlink_bridge_missing"},
    ),
    "h100 pcie": (topo(4, "SYS"), gpus_csv(4, "NVIDIA H100 PCIe"), "PASS", set()),
    "a100 pcie": (
        topo(4, "SYS"),
        gpus_csv(4, "NVIDIA A100 80GB PCIe"),
        "PASS",
        {"fp8_unsupported_info"},
    ),
    "h200 nvl in fours": (
        topo(8, lambda a, b: "NV6" if a // 4 == b // 4 else "SYS"),
        gpus_csv(8, "NVIDIA H200 NVL"),
        "PASS",
        set(),
    ),
    "b200": (topo(8, "NV18", per_gpu(8)), gpus_csv(8, "NVIDIA B200"), "PASS", set()),
    "b300": (topo(8, "NV18", per_gpu(8)), gpus_csv(8, "NVIDIA B300 SXM6 AC"), "PASS", set()),
    "gb200 of a rack": (
        topo(4, "NV18", per_gpu(4), near="NODE"),
        gpus_csv(4, "NVIDIA GB200"),
        "PASS",
        set(),
    ),
    "gb200 nvl4": (topo(4, "NV6", per_gpu(4)), gpus_csv(4, "NVIDIA GB200"), "PASS", set()),
    "gb300": (topo(4, "NV18"), gpus_csv(4, "NVIDIA GB300"), "PASS", set()),
    "four gh200": (topo(4, "NV6"), gpus_csv(4, "NVIDIA GH200 120GB"), "PASS", set()),
    "one gh200": (topo(1, "X"), gpus_csv(1, "NVIDIA GH200 480GB"), "PASS", set()),
    "four h100 wired directly": (topo(4, "NV6", per_gpu(4)), gpus_csv(4, H100), "PASS", set()),
    "four a100 wired directly": (
        topo(4, "NV4"),
        gpus_csv(4, "NVIDIA A100-SXM-64GB"),
        "PASS",
        {"fp8_unsupported_info"},
    ),
    "two of eight h200": (topo(2, "NV18"), gpus_csv(2, H200), "PASS", set()),
    "h800": (topo(8, "NV8"), gpus_csv(8, "NVIDIA H800"), "PASS", set()),
    "h20": (topo(8, "NV18"), gpus_csv(8, "NVIDIA H20"), "PASS", set()),
    "a800": (
        topo(8, "NV8"),
        gpus_csv(8, "NVIDIA A800-SXM4-80GB"),
        "PASS",
        {"fp8_unsupported_info"},
    ),
    "v100 mesh": (
        topo(4, lambda a, b: "NV1" if (a + b) % 2 else "NV2"),
        gpus_csv(4, "Tesla V100-SXM2-32GB"),
        "PASS",
        {"fp8_unsupported_info"},
    ),
    "names of NICs as columns": (
        topo(8, "NV18", per_gpu(8), columns=[f"mlx5_{i}" for i in range(8)]),
        gpus_csv(8, H200),
        "PASS",
        set(),
    ),
    "escapes and carriage returns": (
        topo(8, "NV18", per_gpu(8), underline=True).replace("\n", "\r\n"),
        gpus_csv(8, H200).replace("\n", "\r\n"),
        "PASS",
        set(),
    ),
    "a header and more columns": (
        topo(2, "NV18"),
        "index, name, driver_version\n1, NVIDIA H200, 580.1\n0, NVIDIA H200, 580.1\n",
        "PASS",
        set(),
    ),
    "half the links everywhere": (
        topo(8, "NV9"),
        gpus_csv(8, H100),
        "FAIL",
        {"nvlink_count_low"},
    ),
    "b200 without nvlink": (
        topo(8, "NODE", per_gpu(8)),
        gpus_csv(8, "NVIDIA B200"),
        "FAIL",
        {"nvlink_missing"},
    ),
    "a100 without nvlink": (topo(4, "SYS"), gpus_csv(4, A100), "FAIL", {"nvlink_missing"}),
    "gb200 without nvlink": (
        topo(4, "SYS"),
        gpus_csv(4, "NVIDIA GB200"),
        "FAIL",
        {"nvlink_missing"},
    ),
    "a pair lost a link": (
        topo(4, lambda a, b: "NV5" if {a, b} == {1, 3} else "NV6"),
        gpus_csv(4, H100),
        "FAIL",
        {"nvlink_unequal"},
    ),
    "bridges of unequal width": (
        topo(4, lambda a, b: ("NV12" if a < 2 else "NV8") if a // 2 == b // 2 else "SYS"),
        gpus_csv(4, "NVIDIA H100 NVL"),
        "FAIL",
        {"nvlink_unequal"},
    ),
    "a GPU without its NIC": (
        topo(8, "NV18", per_gpu(7)),
        gpus_csv(8, H200),
        "WARN",
        {"gpu_without_nic"},
    ),
    "a product nobody knows": (
        topo(8, "NV18"),
        gpus_csv(8, "NVIDIA Z9000"),
        "UNKNOWN",
        {"gpu_product_unknown"},
    ),
    "a GPU fewer in one file": (
        topo(8, "NV18"),
        gpus_csv(7, H200),
        "UNKNOWN",
        {"evidence_unreadable"},
    ),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_topologies_of_other_products_and_faults(name: str) -> None:
    table, gpus, verdict, codes = TOPOLOGIES[name]
    assert judged({"topo.txt": table, "gpus.csv": gpus})[:2] == (verdict, codes)


@pytest.mark.parametrize("bad", [{0}, {7}, {2, 6}, {0, 1, 2, 3, 4}])
def test_each_gpu_that_lost_links_is_named_and_no_other(bad: set[int]) -> None:
    table = topo(8, lambda a, b: "NV17" if {a, b} & bad else "NV18", per_gpu(8))
    found = judged({"topo.txt": table, "gpus.csv": gpus_csv(8, H200)})
    assert found == ("FAIL", {"nvlink_unequal"}, {f"gpu={g}" for g in bad})


def test_a_gpu_that_goes_over_pcie_alone_is_named() -> None:
    table = topo(8, lambda a, b: "PHB" if 3 in (a, b) else "NV18")
    found = judged({"topo.txt": table, "gpus.csv": gpus_csv(8, H100)})
    assert found == ("FAIL", {"nvlink_missing"}, {"gpu=3"})


def test_without_a_product_the_pairs_are_compared_with_each_other() -> None:
    assert judged({"topo.txt": topo(8, "NV18")})[0] == "PASS"
    assert judged({"topo.txt": topo(8, "NODE")})[0] == "PASS"
    low = topo(8, lambda a, b: "NV10" if 4 in (a, b) else "NV12")
    assert judged({"topo.txt": low}) == ("FAIL", {"nvlink_unequal"}, {"gpu=4"})
