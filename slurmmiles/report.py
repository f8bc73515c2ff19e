"""Findings of preflight: what was judged, about whom, and what to do; and the verdict of a whole
report.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from pydantic import BaseModel, ConfigDict, Field


class Verdict(str, Enum):
    """PASS < WARN < UNKNOWN < FAIL. UNKNOWN (a check that could not run) never counts as PASS."""

    PASS = "PASS"
    WARN = "WARN"
    UNKNOWN = "UNKNOWN"
    FAIL = "FAIL"

    @property
    def severity(self) -> int:
        return list(Verdict).index(self)


class Finding(BaseModel):
    """One judgement: `code` names the rule, `subject` the node, GPU, NIC or pair, `evidence` the
    values it rests on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    verdict: Verdict
    subject: str
    message: str
    remedy: str = ""
    evidence: dict[str, str | int | float | bool | None] = Field(default_factory=dict)


class Report(BaseModel):
    """The findings of one preflight, worst first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Report:
        """Findings ordered worst first; no finding at all is PASS."""
        ordered = tuple(sorted(findings, key=lambda f: (-f.verdict.severity, f.subject, f.code)))
        return cls(verdict=ordered[0].verdict if ordered else Verdict.PASS, findings=ordered)

    def at(self, verdict: Verdict) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.verdict is verdict)

    def sentence(self, verdict: Verdict = Verdict.FAIL) -> str:
        """One line that names each subject of this verdict with its reason."""
        return "; ".join(f"{f.subject}: {f.message}" for f in self.at(verdict))
