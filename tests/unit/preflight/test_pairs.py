"""Pairs of nodes: who is slow, or what between them; perftest and nccl-tests."""

from __future__ import annotations

import pytest

from slurmmiles.preflight.ncclbench import BadSweep, judge_sweep, parse_sweep
from slurmmiles.preflight.pairs import PairRun, judge_pairs
from slurmmiles.preflight.perftest import (
    BadPerftest,
    judge_text,
    judge_transfer,
    parse_json,
    parse_table,
)
from slurmmiles.report import Finding
from tests.unit.preflight.made import table

LEAF = {f"n{i:02}": f"leaf{i // 4}" for i in range(8)}
Triple = tuple[str, str, float | None]


def runs(name: str) -> list[PairRun]:
    cells = [line.split(",") for line in table(name).splitlines()[1:]]
    return [PairRun(a, b, float(busbw)) for _, a, b, busbw in cells]


def of(*triples: Triple) -> list[PairRun]:
    return [PairRun(a, b, busbw) for a, b, busbw in triples]


def said(findings: list[Finding]) -> set[tuple[str, str, str]]:
    return {(f.code, f.verdict.value, f.subject) for f in findings}


def bad(*subjects: str) -> set[tuple[str, str, str]]:
    return {("pair_bandwidth_low", "FAIL", s) for s in subjects}


@pytest.mark.parametrize(
    ("name", "subjects"),
    [
        ("pairs-one-bad.csv", ["node=n07"]),
        ("pairs-both-bad.csv", ["node=n03", "node=n04"]),
        ("pairs-uplink.csv", ["fabric=leaf0-leaf1"]),
    ],
)
def test_the_node_or_the_uplink_is_named(name: str, subjects: list[str]) -> None:
    assert said(judge_pairs(runs(name), 340.0, LEAF)) == bad(*subjects)


def test_a_node_that_was_slow_once_is_only_suspect() -> None:
    once = of(("a", "b", 60.0), ("c", "d", 386.0), ("b", "c", 385.0))
    assert said(judge_pairs(once, 340.0)) == {("pair_suspect", "WARN", "node=a")}


def test_a_node_that_was_slow_twice_is_bad_also_without_a_proven_partner() -> None:
    twice = of(("a", "b", 60.0), ("a", "c", 61.0), ("d", "e", 386.0))
    assert said(judge_pairs(twice, 340.0)) == {
        *bad("node=a"),
        ("pair_suspect", "WARN", "node=b"),
        ("pair_suspect", "WARN", "node=c"),
    }


def test_when_nothing_is_fast_nobody_is_accused() -> None:
    slow = of(("a", "b", 60.0), ("c", "d", 61.0), ("a", "c", 62.0), ("b", "d", 60.0))
    assert said(judge_pairs(slow, 340.0)) == {("pair_set_low", "WARN", "job=pairs")}


def test_two_good_nodes_with_a_slow_path_are_not_accused() -> None:
    path = of(("a", "b", 60.0), ("a", "c", 386.0), ("b", "d", 386.0))
    assert said(judge_pairs(path, 340.0)) == {("pair_path_slow", "WARN", "pair=a-b")}


def test_an_uplink_is_not_blamed_while_a_pair_across_it_is_fast() -> None:
    across = of(
        ("n00", "n04", 60.0),
        ("n01", "n05", 386.0),
        ("n00", "n01", 61.0),
        ("n04", "n05", 386.0),
    )
    assert said(judge_pairs(across, 340.0, LEAF)) == bad("node=n00")


def test_a_slow_uplink_does_not_hide_a_bad_node() -> None:
    both = of(
        *((f"n0{i}", f"n0{i + 4}", 170.0) for i in range(4)),
        ("n00", "n01", 386.0),
        ("n02", "n03", 50.0),
        ("n04", "n05", 386.0),
        ("n06", "n07", 386.0),
        ("n03", "n01", 51.0),
        ("n02", "n00", 386.0),
    )
    assert said(judge_pairs(both, 340.0, LEAF)) == bad("fabric=leaf0-leaf1", "node=n03")


def test_a_pair_that_did_not_finish_counts_when_both_answer_afterwards() -> None:
    hung = [*of(("a", "b", None), ("a", "c", None), ("b", "d", 386.0), ("c", "d", 386.0))]
    assert said(judge_pairs(hung, 340.0)) == bad("node=a")
    silent = [PairRun("a", "b", None, frozenset({"a"})), PairRun("b", "c", 386.0)]
    assert said(judge_pairs(silent, 340.0)) == {("node_silent", "FAIL", "node=a")}


def test_sixteen_nodes_with_two_bad_ones_that_met_each_other() -> None:
    nodes = [f"g{i:02}" for i in range(16)]
    slow = {"g02", "g13"}
    rounds = [(nodes[i], nodes[15 - i]) for i in range(8)] + [("g02", "g00"), ("g13", "g01")]
    measured = [PairRun(a, b, 41.0 if {a, b} & slow else 386.0) for a, b in rounds]
    assert said(judge_pairs(measured, 340.0)) == bad("node=g02", "node=g13")


@pytest.mark.parametrize("name", ["perftest-mib.txt", "perftest-gbits.txt"])
def test_both_units_are_the_same_measurement(name: str) -> None:
    (row,) = parse_table(table(name))
    assert row.average == pytest.approx(385.97, abs=0.01)
    assert (row.bytes, row.iterations) == (65536, 5000)
    assert judge_text(table(name), 400.0, "mlx5_0") == []


def test_older_versions_call_it_mb_and_mean_the_same() -> None:
    old = table("perftest-mib.txt").replace("MiB/sec", "MB/sec")
    assert parse_table(old) == parse_table(table("perftest-mib.txt"))


def test_json_is_refused_without_its_unit() -> None:
    text = table("perftest.json")
    assert parse_json(text, report_gbits=True).average == 385.97
    with pytest.raises(BadPerftest, match="report_gbits"):
        parse_json(text, report_gbits=False)


def test_both_directions_are_measured_against_twice_the_rate() -> None:
    (both,) = parse_table(table("perftest-bidir.txt"))
    assert not judge_transfer(both, 400.0, "nic=mlx5_0", bidirectional=True)
    assert judge_transfer(both, 400.0, "nic=mlx5_0", bidirectional=True, floor=0.95)
    (one,) = parse_table(table("perftest-gbits.txt"))
    assert judge_transfer(one, 400.0, "nic=mlx5_0", bidirectional=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Couldn't connect\n",
        " #bytes #iterations BW peak[kB/s] BW"
        " average[kB/s] MsgRate[Mpps]\n 65536 5000 1.0 1.0 0.1\n",
    ],
)
def test_a_result_without_a_known_unit_is_unknown(text: str) -> None:
    assert [f.verdict.value for f in judge_text(text, 400.0, "mlx5_0")] == ["UNKNOWN"]


def test_more_than_the_nics_can_do_is_no_error() -> None:
    assert judge_sweep(table("nccl-tree.txt"), "tree.txt", floor_gb_s=340.0) == []
    assert parse_sweep(table("nccl-tree.txt")).is_checked


def test_wrong_elements_are_corruption_whatever_the_speed() -> None:
    found = judge_sweep(table("nccl-wrong.txt"), "wrong.txt", floor_gb_s=340.0)
    assert said(found) == {("data_corruption", "FAIL", "file=wrong.txt")}
    footer = table("nccl-tree.txt").replace(": 0 OK", ": 3 FAILED")
    assert said(judge_sweep(footer, "f")) == {("data_corruption", "FAIL", "file=f")}


def test_a_sweep_is_judged_by_its_largest_size_and_says_that_nothing_was_checked() -> None:
    sweep = parse_sweep(table("nccl-sweep.txt"))
    assert sweep.largest.busbw == 386.42
    assert not sweep.is_checked and sweep.wrong == 0
    assert judge_sweep(table("nccl-sweep.txt"), "f", floor_gb_s=380.0) == []
    low = judge_sweep(table("nccl-sweep.txt"), "f", floor_gb_s=430.0)
    assert said(low) == {("collective_slow", "WARN", "file=f")}


def test_more_columns_do_not_move_the_others() -> None:
    line = table("nccl-wrong.txt").splitlines()[2] + "  0.5  1.5  2.5"
    assert parse_sweep(line).wrong == 12


@pytest.mark.parametrize("cut", [20, 60, 100])
def test_a_row_that_is_cut_is_refused(cut: int) -> None:
    with pytest.raises(BadSweep):
        parse_sweep(table("nccl-wrong.txt").splitlines()[2][:cut])
