"""What a query says of each GPU: memory repair, throttling, PCIe; copies, speeds, the fabric."""

from __future__ import annotations

import pytest

from slurmmiles.findings import Scalar
from slurmmiles.preflight.fabric_manager import has_cluster, judge_fabric
from slurmmiles.preflight.gpu_health import judge_gpus, judge_throttle
from slurmmiles.preflight.gpulist import BadQuery, parse_query
from slurmmiles.preflight.hostcopy import HostCopy, judge_copies
from slurmmiles.preflight.outliers import GEMM, Speed, judge_speeds
from slurmmiles.preflight.products import product_of
from slurmmiles.report import Finding
from tests.unit.preflight.made import judged, table

REMAPPED = """\
index, remapped_rows.correctable, remapped_rows.uncorrectable, remapped_rows.pending, \
remapped_rows.failure
0, 0, 0, 0, 0
1, 0, 2, 1, 0
2, 3, 0, No, No
3, 0, 1, 0, 1
4, [N/A], [N/A], [N/A], [N/A]
5, 0, 1, Yes, No
"""
THROTTLED = """\
index, clocks_event_reasons.active, clocks.sm [MHz], power.draw [W], temperature.gpu
0, 0x0000000000000001, 345 MHz, 78.10 W, 31
1, 0x0000000000000004, 1395 MHz, 699.20 W, 66
2, 0x0000000000000008, 1005 MHz, 420.00 W, 58
3, 0x0000000000000048, 765 MHz, 310.00 W, 88
4, 0x0000000000000088, 690 MHz, 280.00 W, 55
5, 0x0000000000000020, 1200 MHz, 560.00 W, 86
6, 0x0000000000000002, 1500 MHz, 500.00 W, 50
"""
LINKS = (
    "index, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, "
    "pcie.link.width.max\n"
)
IDLE = LINKS + "0, 1, 5, 16, 16\n1, 5, 5, 8, 16\n2, 5, 5, 16, 16\n"
LOAD = LINKS + "0, 5, 5, 16, 16\n1, 5, 5, 8, 16\n2, 4, 5, 16, 16\n"


def said(findings: list[Finding]) -> set[tuple[str, str, str]]:
    return {(f.code, f.verdict.value, f.subject) for f in findings}


def test_rows_that_wait_or_failed_are_found_by_the_names_of_their_columns() -> None:
    assert said(judge_gpus(parse_query(REMAPPED))) == {
        ("row_remap_pending", "FAIL", "gpu=1"),
        ("row_remap_failure", "FAIL", "gpu=3"),
        ("row_remap_unknown", "UNKNOWN", "gpu=4"),
        ("row_remap_pending", "FAIL", "gpu=5"),
    }
    columns = [line.split(", ") for line in REMAPPED.splitlines()]
    turned = "\n".join(", ".join([row[0], *row[:0:-1]]) for row in columns) + "\n"
    assert said(judge_gpus(parse_query(turned))) == said(judge_gpus(parse_query(REMAPPED)))


@pytest.mark.parametrize("name", ["clocks_event_reasons", "clocks_throttle_reasons"])
def test_hardware_throttling_fails_and_software_throttling_warns(name: str) -> None:
    text = THROTTLED.replace("clocks_event_reasons", name)
    assert said(judge_gpus(parse_query(text))) == {
        ("hw_slowdown", "FAIL", "gpu=2"),
        ("hw_thermal", "FAIL", "gpu=3"),
        ("hw_power_brake", "FAIL", "gpu=4"),
        ("sw_thermal", "WARN", "gpu=5"),
        ("clocks_locked", "WARN", "gpu=6"),
    }


@pytest.mark.parametrize(
    ("bits", "codes"),
    [
        (0x0, set()),
        (0x10, set()),
        (0x105, set()),
        (0xC8, {"hw_thermal", "hw_power_brake"}),
        (0x40, {"hw_thermal"}),
        (0x28, {"hw_slowdown"}),
        (0x22, {"sw_thermal", "clocks_locked"}),
    ],
)
def test_each_bit_has_its_meaning(bits: int, codes: set[str]) -> None:
    assert {f.code for f in judge_throttle(bits, "gpu=0")} == codes


def test_a_generation_counts_only_under_load_and_a_width_always() -> None:
    assert said(judge_gpus(parse_query(IDLE))) == {("pcie_width_low", "FAIL", "gpu=1")}
    assert said(judge_gpus(parse_query(LOAD), loaded=True)) == {
        ("pcie_width_low", "FAIL", "gpu=1"),
        ("pcie_gen_low", "FAIL", "gpu=2"),
    }


def test_a_slow_copy_confirms_what_its_link_showed() -> None:
    copies = "index, h2d_gbs, d2h_gbs\n0, 55.3, 55.0\n1, 27.4, 26.9\n2, 26.1, 26.4\n"
    files = {"idle.csv": IDLE, "load.csv": LOAD, "copy.csv": copies}
    assert judged(files) == ("FAIL", {"pcie_width_low", "pcie_gen_low"}, {"gpu=1", "gpu=2"})
    assert judged({"copy.csv": copies}) == ("FAIL", {"host_copy_low"}, {"gpu=1", "gpu=2"})


def test_a_copy_is_measured_by_the_generation_of_its_link() -> None:
    copy = [HostCopy(0, 25.0, 24.0)]
    assert not judge_copies(copy, generation=4)
    assert judge_copies(copy, generation=5)
    assert not judge_copies(copy, generation=6)


@pytest.mark.parametrize(
    ("column", "value", "codes"),
    [
        ("ecc.errors.uncorrected.volatile.total", "2", {"ecc_uncorrected"}),
        ("ecc.errors.uncorrected.volatile.total", "[N/A]", set()),
        ("ecc.mode.current", "Disabled", {"ecc_off"}),
        ("memory.used [MiB]", "61234 MiB", {"gpu_memory_in_use"}),
        ("memory.used [MiB]", "4 MiB", set()),
        ("clocks_event_reasons.active", "[Unknown Error]", {"throttle_unknown"}),
        ("clocks_event_reasons.active", "0xZZ", {"throttle_unknown"}),
    ],
)
def test_other_columns(column: str, value: str, codes: set[str]) -> None:
    assert {f.code for f in judge_gpus(parse_query(f"index, {column}\n0, {value}\n"))} == codes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "No devices were found\n",
        "0, NVIDIA H200\n1\n",
        "0, NVIDIA H200\n0, NVIDIA H200\n",
        "index, name\n0, NVIDIA H200, more\n",
        "name, pcie.link.gen.max\nNVIDIA H200, 5\n",
        "0, \n",
    ],
)
def test_what_is_no_answer_of_nvidia_smi_is_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        parse_query(text)


def speeds(name: str) -> list[Speed]:
    cells = [line.split(",") for line in table(name).splitlines()[1:]]
    return [Speed(node, float(value), int(gpu)) for node, gpu, value in cells]


def test_one_gpu_below_the_others_is_named_and_a_low_set_is_not() -> None:
    h200 = product_of("NVIDIA H200")
    assert h200 is not None
    one = judge_speeds(speeds("gemm-one-slow.csv"), GEMM, h200.bf16_floor)
    assert said(one) == {("gpu_slow_outlier", "FAIL", "node=n02,gpu=3")}
    low = judge_speeds(speeds("gemm-all-low.csv"), GEMM, h200.bf16_floor)
    assert [(f.code, f.verdict.value) for f in low] == [("gpu_set_low", "WARN")]
    assert judge_speeds(speeds("gemm-all-low.csv"), GEMM, None) == []
    assert judge_speeds([], GEMM, 650.0) == []


FABRIC = """\
GPU 00000000:1B:00.0
    Product Name                          : {name}
    Fabric
        State                             : {state}
        Status                            : {status}
        CliqueId                          : 0
        ClusterUUID                       : {uuid}
    Processes                             : None
"""
NONE = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("name", "state", "status", "codes"),
    [
        ("NVIDIA H200", "Completed", "Success", set()),
        ("NVIDIA H100 80GB HBM3", "In Progress", "N/A", {"fabric_not_ready"}),
        ("NVIDIA B200", "Not Started", "N/A", {"fabric_not_ready"}),
        ("NVIDIA GB200", "Completed", "Insufficient Resources", {"fabric_not_ready"}),
        ("NVIDIA H100 NVL", "N/A", "N/A", set()),
        ("NVIDIA L40S", "N/A", "N/A", set()),
        ("NVIDIA A100-SXM4-80GB", "N/A", "N/A", set()),
        ("NVIDIA H200", "N/A", "N/A", {"fabric_state_unknown"}),
        ("", "In Progress", "N/A", {"fabric_not_ready"}),
    ],
)
def test_the_switches_must_be_set_up_where_there_are_any(
    name: str, state: str, status: str, codes: set[str]
) -> None:
    text = FABRIC.format(name=name, state=state, status=status, uuid=NONE)
    found = judge_fabric(text, name, "n01", service="inactive")
    assert {f.code for f in found} == codes
    assert all(f.subject == "node=n01,gpu=00000000:1b:00.0" for f in found)


def test_a_cluster_of_nodes_is_told_by_its_uuid() -> None:
    states: dict[str, Scalar] = {"name": "g", "state": "Completed", "status": "Success"}
    assert not has_cluster({"n0": FABRIC.format(**states, uuid=NONE)})
    assert has_cluster({"n0": FABRIC.format(**states, uuid="1a2b3c4d-0000-0000-0000-000000000001")})
