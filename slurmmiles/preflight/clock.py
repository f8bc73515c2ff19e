"""Clock offsets by a round trip: how far a node is from the head, and how surely. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from slurmmiles.findings import about, fail, unknown
from slurmmiles.report import Finding

LIMIT_S = 1.0
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class ClockProbe:
    """Times in seconds: the head's before and after, and the node's in between."""

    node: str
    t0: float
    t_node: float
    t1: float

    @property
    def offset(self) -> float:
        return self.t_node - (self.t0 + self.t1) / 2

    @property
    def uncertainty(self) -> float:
        """Half of the round trip: the answer may have been read at any moment of it."""
        return (self.t1 - self.t0) / 2


def judge_clock(probe: ClockProbe, limit_s: float = LIMIT_S) -> list[Finding]:
    """clock_skew only when the offset is beyond the limit whatever the round trip hid."""
    low = abs(probe.offset) - probe.uncertainty
    shown = f"{probe.offset:+.3f} s, give or take {probe.uncertainty:.3f} s"
    evidence = {"offset_s": probe.offset, "uncertainty_s": probe.uncertainty}
    if probe.uncertainty < 0:
        return [
            unknown(
                "clock_unsure",
                about(node=probe.node),
                "the head's own clock ran backwards during the probe",
                "probe again",
                **evidence,
            )
        ]
    if low > limit_s:
        return [
            fail(
                "clock_skew",
                about(node=probe.node),
                f"its clock is off by {shown}",
                "have the node's time service (chrony, ntpd) repaired",
                **evidence,
            )
        ]
    if abs(probe.offset) + probe.uncertainty > limit_s + _ROUNDING:
        return [
            unknown(
                "clock_unsure",
                about(node=probe.node),
                f"its clock is off by {shown}, too unsure to say",
                "probe again with a faster round trip",
                **evidence,
            )
        ]
    return []
