from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmmiles.planfile import PreflightPlan
from slurmmiles.preflight.network import MAX_ROUNDS, Measurement, judge_network, rounds
from slurmmiles.report import Report, Verdict

NODES = [f"n{i}" for i in range(1, 6)]


def floors(gbit_s: float | None = None, latency_ms: float | None = None) -> PreflightPlan:
    return PreflightPlan(
        deadline_s=60,
        min_tcp_gbit_s=gbit_s,
        max_tcp_latency_ms=latency_ms,
        min_nofile=1,
        memlock_unlimited=False,
    )


def measured(nodes: list[str], bad: dict[str, Measurement] | None = None) -> list[Measurement]:
    """All rounds; a pair with a bad node is measured like that node."""
    found = []
    for source, target in (pair for pairs in rounds(nodes) for pair in pairs):
        like = (bad or {}).get(source) or (bad or {}).get(target)
        good = Measurement(source=source, target=target, gbit_s=90.0, latency_ms=0.02)
        found.append(like.model_copy(update={"source": source, "target": target}) if like else good)
    return found


def like(**values: object) -> Measurement:
    return Measurement.model_validate({"source": "", "target": "", **values})


@given(st.integers(1, 40))
def test_in_a_round_every_node_sends_once_and_receives_once(count: int) -> None:
    nodes = [f"n{i}" for i in range(count)]
    plan = rounds(nodes)
    assert len(plan) == min(count - 1, MAX_ROUNDS)
    for pairs in plan:
        assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == sorted(nodes)
        assert all(a != b for a, b in pairs)
    if count > 2:
        partners = {n: {b for ps in plan for a, b in ps if a == n} for n in nodes}
        assert all(len(p) == len(plan) for p in partners.values())


def test_healthy_pairs_pass_with_their_numbers() -> None:
    found = judge_network(measured(NODES), floors(10.0, 1.0))
    assert {f.verdict for f in found} == {Verdict.PASS}
    assert len(found) == 15
    assert found[0].message == "90.00 Gbit/s, 0.020 ms"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (like(error="timed out"), "timed out"),
        (like(gbit_s=0.5, latency_ms=0.02), "0.50 Gbit/s, below 10"),
        (like(gbit_s=90.0, latency_ms=30.0), "30.00 ms, above 1"),
    ],
)
def test_a_node_that_fails_with_every_partner_is_the_bad_one(
    fault: Measurement, words: str
) -> None:
    found = judge_network(measured(NODES, {"n3": fault}), floors(10.0, 1.0))
    failed = Report.of(found).at(Verdict.FAIL)
    assert [(f.subject, f.code) for f in failed] == [("n3", "tcp_node")]
    assert words in failed[0].message and failed[0].remedy
    assert Verdict.UNKNOWN not in {f.verdict for f in found}


def test_one_bad_pair_accuses_nobody() -> None:
    slow = measured(NODES)
    slow[0] = slow[0].model_copy(update={"gbit_s": 0.5})
    found = judge_network(slow, floors(10.0))
    assert [f.verdict for f in found].count(Verdict.WARN) == 1
    assert Report.of(found).verdict is Verdict.WARN


def test_a_pair_that_could_not_be_measured_is_unknown_and_never_a_pass() -> None:
    broken = measured(NODES)
    broken[0] = like(source="n1", target="n2", error="refused")
    report = Report.of(judge_network(broken, floors()))
    assert report.verdict is Verdict.UNKNOWN
    assert report.findings[0].subject == "n1->n2"


def test_two_nodes_alone_cannot_tell_who_is_bad() -> None:
    slow = like(gbit_s=0.1, latency_ms=0.02)
    found = judge_network(measured(["n1", "n2"], {"n2": slow}), floors(10.0))
    assert not Report.of(found).at(Verdict.FAIL)
    assert Report.of(found).verdict is Verdict.WARN


def test_without_floors_numbers_are_only_reported() -> None:
    found = judge_network(measured(NODES, {"n3": like(gbit_s=0.001, latency_ms=99.0)}), floors())
    assert {f.verdict for f in found} == {Verdict.PASS}


def test_one_node_has_nothing_to_measure() -> None:
    assert rounds(["n1"]) == [] and judge_network([], floors(10.0)) == []


def test_a_measurement_without_numbers_and_without_an_error_is_not_a_pass() -> None:
    found = judge_network([like(source="n1", target="n2")], floors(10.0))
    assert [f.verdict for f in found] == [Verdict.UNKNOWN]
