"""Node-to-node TCP through Ray: who talks to whom, what was measured, and who is slow. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from slurmmiles.planfile import PreflightPlan
from slurmmiles.report import Finding, Verdict

MAX_ROUNDS = 3
Pair = tuple[str, str]


class Measurement(BaseModel):
    """One transfer: Gbit/s over the payload, half of the median round trip in ms; `error` when it
    did not run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    target: str
    gbit_s: float | None = None
    latency_ms: float | None = None
    error: str = ""

    @property
    def problem(self) -> str:
        """Why there is nothing to judge; empty when both numbers are there."""
        numbers = self.gbit_s is not None and self.latency_ms is not None
        return self.error or ("" if numbers else "nothing was measured")


def rounds(nodes: Sequence[str]) -> list[list[Pair]]:
    """In round k each node sends to the one k places further: every node has k different partners
    each way.

    Three rounds suffice to name one bad node by two partners, at a cost that does not grow with the
    node count.
    """
    n = len(nodes)
    return [
        [(nodes[i], nodes[(i + k) % n]) for i in range(n)]
        for k in range(1, min(n - 1, MAX_ROUNDS) + 1)
    ]


def judge_network(measurements: Iterable[Measurement], floors: PreflightPlan) -> list[Finding]:
    """A node is bad when transfers with two different partners failed; a pair by itself is only a
    warning.
    """
    by_node: dict[str, dict[str, str]] = defaultdict(dict)
    findings: list[Finding] = []
    measured = list(measurements)
    partners: dict[str, set[str]] = defaultdict(set)
    for m in measured:
        partners[m.source].add(m.target)
        partners[m.target].add(m.source)
        fault = _fault(m, floors)
        if fault:
            by_node[m.source][m.target] = fault
            by_node[m.target][m.source] = fault
    worst = {
        n for n, faults in by_node.items() if len(faults) >= 2 and len(faults) == len(partners[n])
    }
    for m in measured:
        findings.append(_pair_finding(m, floors, explained=bool(worst & {m.source, m.target})))
    for node in sorted(worst):
        findings.append(
            Finding(
                code="tcp_node",
                verdict=Verdict.FAIL,
                subject=node,
                message=(
                    f"TCP failed with every partner ({', '.join(sorted(by_node[node]))}):"
                    f" {next(iter(by_node[node].values()))}"
                ),
                remedy=(
                    "check the node's link and its interface; leave it out with --set"
                    " slurm.exclude="
                )
                + node,
                evidence={"partners": len(by_node[node])},
            )
        )
    return findings


def _fault(m: Measurement, floors: PreflightPlan) -> str:
    if m.problem:
        return m.problem
    if floors.min_tcp_gbit_s and m.gbit_s is not None and m.gbit_s < floors.min_tcp_gbit_s:
        return f"{m.gbit_s:.2f} Gbit/s, below {floors.min_tcp_gbit_s:g}"
    if (
        floors.max_tcp_latency_ms
        and m.latency_ms is not None
        and m.latency_ms > floors.max_tcp_latency_ms
    ):
        return f"{m.latency_ms:.2f} ms, above {floors.max_tcp_latency_ms:g}"
    return ""


def _pair_finding(m: Measurement, floors: PreflightPlan, *, explained: bool) -> Finding:
    fault = _fault(m, floors)
    verdict = Verdict.PASS if not fault else Verdict.WARN
    if m.problem and not explained:
        verdict = Verdict.UNKNOWN
    shown = fault or f"{m.gbit_s:.2f} Gbit/s, {m.latency_ms:.3f} ms"
    return Finding(
        code="tcp_pair",
        verdict=verdict,
        subject=f"{m.source}->{m.target}",
        message=shown,
        remedy="measure this pair again alone" if fault else "",
        evidence={"gbit_s": m.gbit_s, "latency_ms": m.latency_ms, "error": m.error or None},
    )
