"""One node's kernel log, clock, limits, GPUDirect, counters, names and ports."""

from __future__ import annotations

from datetime import datetime

import pytest

from slurmmiles.preflight.clock import ClockProbe, judge_clock
from slurmmiles.preflight.gdr import GdrFacts, judge_gdr, read_modules
from slurmmiles.preflight.ib_counters import judge_counters, parse_counters
from slurmmiles.preflight.limits import (
    judge_memlock,
    judge_nofile,
    judge_shm,
    judge_stack,
    size_of,
)
from slurmmiles.preflight.pcie_acs import judge_acs, judge_iommu
from slurmmiles.preflight.xid import judge_xids, parse_now
from slurmmiles.report import Finding
from slurmmiles.systree import TextTree
from tests.unit.preflight.made import table

NOW, WINDOW = parse_now("2026-03-03T07:40:00\nwindow_seconds=7200\n")


def said(findings: list[Finding]) -> set[tuple[str, str, str]]:
    return {(f.code, f.verdict.value, f.subject) for f in findings}


def test_xids_are_judged_by_number_window_and_boot() -> None:
    assert (datetime(2026, 3, 3, 7, 40), 7200.0) == (NOW, WINDOW)
    assert said(judge_xids(table("dmesg-xids.txt"), NOW, WINDOW)) == {
        ("xid_info", "PASS", "gpu=0000:1b:00"),
        ("xid_warning", "WARN", "gpu=0000:43:00"),
        ("xid_info", "PASS", "gpu=0000:52:00"),
        ("xid_fatal", "FAIL", "gpu=0000:9d:00"),
        ("xid_unknown_code", "WARN", "gpu=0000:c3:00"),
    }


@pytest.mark.parametrize("code", [48, 64, 74, 79, 95, 119, 120])
def test_fatal_numbers_in_the_forms_of_the_kernels_log(code: int) -> None:
    message = f"NVRM: Xid (PCI:0000:3B:00): {code}, pid='<unknown>', name=<unknown>"
    for line in (
        f"[Tue Mar  3 07:31:00 2026] {message}",
        f"2026-03-03T07:31:00,123456+00:00 {message}",
        f"2026-03-03 07:31:00 n01 kernel: {message}",
        f"[12345.678901] {message}",
    ):
        assert said(judge_xids(line + "\n", NOW)) == {("xid_fatal", "FAIL", "gpu=0000:3b:00")}
    old = f"[Mon Mar  2 07:31:00 2026] {message}\n"
    assert said(judge_xids(old, NOW)) == {("xid_info", "PASS", "gpu=0000:3b:00")}
    assert said(judge_xids(old, None)) == {("xid_fatal", "FAIL", "gpu=0000:3b:00")}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "xid_fatal"),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "xid_fatal"),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "xid_info"),
    ],
)
def test_a_recovery_action_says_itself_what_it_asks(text: str, code: str) -> None:
    found = judge_xids(f"[1.5] NVRM: Xid (PCI:0000:3b:00): 154, {text}\n", None)
    assert [f.code for f in found] == [code]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dmesg: read kernel buffer failed: Operation not permitted\n",
        "sh: dmesg: command not found\n",
    ],
)
def test_a_log_that_cannot_be_read_is_unknown(text: str) -> None:
    assert said(judge_xids(text, NOW)) == {("xid_log_unreadable", "UNKNOWN", "node")}


def test_a_quiet_log_has_no_finding() -> None:
    assert judge_xids("[    0.737677] nvidia-nvlink: Nvlink Core is being initialized\n", NOW) == []


@pytest.mark.parametrize(
    ("t_node", "t1", "code"),
    [
        (1000.001, 1000.002, None),
        (1000.9, 1001.9, None),  # 0.05 s early, give or take 0.95: within the limit anyhow
        (1002.6, 1000.004, "clock_skew"),
        (1000.4, 1000.4, None),
        (997.0, 1000.01, "clock_skew"),
        (1002.0, 1003.0, "clock_unsure"),
        (1000.0, 999.0, "clock_unsure"),
    ],
)
def test_a_clock_is_off_only_beyond_what_the_round_trip_hides(
    t_node: float, t1: float, code: str | None
) -> None:
    found = judge_clock(ClockProbe("n02", 1000.0, t_node, t1))
    assert [f.code for f in found] == ([code] if code else [])
    assert all(f.subject == "node=n02" for f in found)


GIB = 2**30


def test_limits_of_a_step_are_judged_for_the_fabric_that_it_uses() -> None:
    assert judge_memlock(-1) == []
    assert said(judge_memlock(64 * 1024, "n01")) == {("memlock_low", "FAIL", "node=n01")}
    assert said(judge_memlock(8192 * 1024)) == {("memlock_low", "FAIL", "node")}
    assert said(judge_memlock(64 * 1024, rdma=False)) == {("memlock_low", "WARN", "node")}
    assert said(judge_memlock(512 * GIB)) == {("memlock_low", "WARN", "node")}
    assert said(judge_shm(64 * 2**20, "n02")) == {("shm_small", "FAIL", "node=n02")}
    assert said(judge_shm(16 * GIB)) == {("shm_small", "WARN", "node")}
    assert judge_shm(32 * 10**9) == judge_shm(1024 * GIB) == []
    assert said(judge_nofile(1024)) == {("nofile_low", "WARN", "node")}
    assert said(judge_nofile(1024, asked=4096)) == {("nofile_low", "FAIL", "node")}
    assert judge_nofile(4096, asked=4096) == judge_nofile(-1) == judge_nofile(1048576) == []
    assert said(judge_stack(8192 * 1024)) == {("stack_low", "WARN", "node")}
    assert judge_stack(-1) == judge_stack(64 * 2**20) == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("unlimited", -1),
        ("64M", 64 * 2**20),
        ("1.0T", 2**40),
        ("503G", 503 * GIB),
        ("64", 64),
        ("8Gi", 8 * GIB),
        ("-", None),
        ("", None),
    ],
)
def test_sizes_as_tools_write_them(text: str, size: int | None) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize(
    ("tree", "dmabuf", "kernel", "fabric", "code"),
    [
        ("/sys/module/nvidia_peermem/version = 570.124.06\n", True, "5.15", "infiniband", None),
        ("/sys/kernel/mm/memory_peers/nv_mem/version = 1.3\n", False, "4.18", "roce", None),
        ("", False, "4.18", "infiniband", "gdr_unavailable"),
        ("", True, "6.8.0-1015-nvidia", "infiniband", None),
        ("", True, "5.4.0-150", "infiniband", "gdr_unavailable"),
        ("", True, "5.12.0", "infiniband", None),
        ("", None, "6.8", "infiniband", "gdr_unknown"),
        ("", True, "", "infiniband", "gdr_unknown"),
        ("", False, "4.18", "slingshot", None),
        ("", False, "4.18", "efa", None),
    ],
)
def test_gpudirect_by_a_module_or_dma_buf(
    tree: str, dmabuf: bool | None, kernel: str, fabric: str, code: str | None
) -> None:
    peermem, peers = read_modules(TextTree.parse(tree))
    found = judge_gdr(GdrFacts(peermem, peers, dmabuf, kernel), "n01", fabric)
    assert [f.code for f in found] == ([code] if code else [])


def test_an_old_nvshmem_sees_only_the_old_path() -> None:
    found = judge_gdr(GdrFacts(True, False), "n00", old_nvshmem=True)
    assert said(found) == {("gdr_nvshmem_path", "WARN", "node=n00")}
    assert judge_gdr(GdrFacts(True, True), old_nvshmem=True) == []


BASE = "/sys/class/infiniband/{}/ports/1/counters/{} = {}\n"


def test_counters_are_judged_by_what_they_rose_by() -> None:
    before = [
        ("mlx5_0", "link_downed", 7),
        ("mlx5_0", "symbol_error", 120),
        ("mlx5_1", "link_downed", 0),
        ("mlx5_1", "symbol_error", 0),
        ("mlx5_2", "symbol_error", 65535),
        ("mlx5_3", "link_downed", 4),
        ("mlx5_3", "port_rcv_data", 10),
    ]
    after = [
        ("mlx5_0", "link_downed", 7),
        ("mlx5_0", "symbol_error", 120),
        ("mlx5_1", "link_downed", 1),
        ("mlx5_1", "symbol_error", 3),
        ("mlx5_2", "symbol_error", 65535),
        ("mlx5_3", "link_downed", 0),
        ("mlx5_3", "port_rcv_data", 10**12),
    ]
    read = [parse_counters("".join(BASE.format(*c) for c in rows))[0] for rows in (before, after)]
    assert said(judge_counters(*read)) == {
        ("ib_link_flap", "FAIL", "nic=mlx5_1"),
        ("ib_errors_rising", "WARN", "nic=mlx5_1"),
        ("ib_counter_saturated", "WARN", "nic=mlx5_2"),
        ("ib_counters_cleared_info", "PASS", "nic=mlx5_3"),
    }


ACS = "0000:15:01.0 PCI bridge: Some Root Port\n\t\tACSCtl:\tSrcValid{} TransBlk- ReqRedir{}\n"


def test_access_control_in_bridges_is_a_warning_on_real_machines() -> None:
    assert said(judge_acs(ACS.format("+", "+"), virtual=False)) == {("acs_enabled", "WARN", "node")}
    assert judge_acs(ACS.format("-", "-"), virtual=False) == []
    assert judge_acs(ACS.format("+", "+"), virtual=True) == []
    assert said(judge_acs("0000:15:01.0 PCI bridge: X\n", virtual=False)) == {
        ("acs_unknown", "UNKNOWN", "node")
    }
    assert said(judge_iommu("quiet intel_iommu=on", virtual=False)) == {
        ("iommu_translates", "WARN", "node")
    }
    assert judge_iommu("quiet intel_iommu=on iommu=pt", virtual=False) == []
