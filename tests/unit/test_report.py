from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slurmmiles.report import Finding, Report, Verdict


def finding(verdict: Verdict, subject: str = "node01", message: str = "m") -> Finding:
    return Finding(code="c", verdict=verdict, subject=subject, message=message)


def test_the_worst_finding_is_the_verdict() -> None:
    for worse, better in (("FAIL", "UNKNOWN"), ("UNKNOWN", "WARN"), ("WARN", "PASS")):
        report = Report.of([finding(Verdict(better)), finding(Verdict(worse), "node02")])
        assert report.verdict is Verdict(worse)
        assert report.findings[0].subject == "node02"


def test_no_finding_is_a_pass() -> None:
    assert Report.of([]).verdict is Verdict.PASS


@given(st.lists(st.tuples(st.sampled_from(Verdict), st.sampled_from("abc")), max_size=12))
def test_findings_are_ordered_and_none_is_lost(given_: list[tuple[Verdict, str]]) -> None:
    findings = [finding(v, s) for v, s in given_]
    report = Report.of(findings)
    severities = [f.verdict.severity for f in report.findings]
    assert severities == sorted(severities, reverse=True)
    assert sorted(map(str, report.findings)) == sorted(map(str, findings))
    assert sum(len(report.at(v)) for v in Verdict) == len(findings)


def test_the_sentence_names_each_subject_with_its_reason() -> None:
    report = Report.of(
        [
            finding(Verdict.FAIL, "node02", "7 of 8 GPUs"),
            finding(Verdict.PASS, "node03"),
            finding(Verdict.FAIL, "node01", "no canary"),
        ]
    )
    assert report.sentence() == "node01: no canary; node02: 7 of 8 GPUs"
    assert report.sentence(Verdict.WARN) == ""


def test_a_report_survives_its_file_and_an_unknown_key_does_not() -> None:
    report = Report.of([finding(Verdict.WARN)])
    assert Report.model_validate_json(report.model_dump_json()) == report
    with pytest.raises(ValidationError):
        Finding.model_validate({**finding(Verdict.PASS).model_dump(), "colour": "red"})
