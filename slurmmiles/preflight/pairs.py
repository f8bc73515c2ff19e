"""From bandwidths of pairs of nodes to the node, or the part of the fabric, that is slow. Pure.

A slow pair accuses both. A node is bad when it was never fast and slow with two partners, not all
of them accused alike; a node that was slow once and never measured again is only suspect. When
every slow pair crosses the same two leaf switches and pairs within each leaf are fast, it is the
uplink, and no node is bad.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmmiles.findings import about, fail, warn
from slurmmiles.report import Finding

Leaves = frozenset[str]


@dataclass(frozen=True, slots=True)
class PairRun:
    """One measurement in GB/s; None: it did not finish. `silent`: who did not answer afterwards."""

    a: str
    b: str
    busbw: float | None
    silent: frozenset[str] = frozenset()

    def partner(self, node: str) -> str:
        return self.b if node == self.a else self.a


def judge_pairs(
    runs: Sequence[PairRun], floor: float, leaf: Mapping[str, str] | None = None
) -> list[Finding]:
    """pair_bandwidth_low (a node or the fabric), pair_suspect, pair_path_slow, pair_set_low,
    node_silent.
    """
    silent = {node for run in runs for node in run.silent}
    counted = [run for run in runs if not silent & {run.a, run.b}]
    slow = [run for run in counted if run.busbw is None or run.busbw < floor]
    fast = [run for run in counted if run not in slow]
    findings = [_silent(node) for node in sorted(silent)]
    if not fast and _disjoint(slow) >= 2:
        return [*findings, _set_low(slow, floor)]
    for leaves, crossing in _uplinks(slow, fast, leaf or {}).items():
        findings.append(_uplink(leaves, crossing, floor))
        slow = [run for run in slow if run not in crossing]
    proven = {node for run in fast for node in _of(run)}
    bad = _bad_nodes(slow, proven)
    findings += [_bad(node, against, floor) for node, against in sorted(bad.items())]
    rest = [run for run in slow if not bad.keys() & {run.a, run.b}]
    suspects = sorted({node for run in slow for node in _of(run)} - proven - bad.keys())
    findings += [_suspect(node, slow, floor) for node in suspects]
    return findings + [_path(run, floor) for run in rest if proven >= {run.a, run.b}]


def _of(run: PairRun) -> tuple[str, str]:
    return run.a, run.b


def _bad_nodes(slow: Sequence[PairRun], proven: set[str]) -> dict[str, list[PairRun]]:
    """Nodes that were never fast, were slow with two or more partners, and one of those partners
    is not accused in the same way.
    """
    faults: dict[str, list[PairRun]] = defaultdict(list)
    for run in slow:
        for node in _of(run):
            faults[node].append(run)
    accused = {
        node: against
        for node, against in faults.items()
        if node not in proven and len({run.partner(node) for run in against}) >= 2
    }
    return {
        node: against
        for node, against in accused.items()
        if any(run.partner(node) not in accused for run in against)
    }


def _uplinks(
    slow: Sequence[PairRun], fast: Sequence[PairRun], leaf: Mapping[str, str]
) -> dict[Leaves, list[PairRun]]:
    """Pairs of leaves between which two or more disjoint pairs are slow and none is fast, while
    within each of the two some pair is fast.
    """
    crossing: dict[Leaves, list[PairRun]] = defaultdict(list)
    for run in slow:
        ends = frozenset({leaf.get(run.a, ""), leaf.get(run.b, "")})
        if len(ends) == 2 and "" not in ends:
            crossing[ends].append(run)
    good = {frozenset({leaf.get(r.a, ""), leaf.get(r.b, "")}) for r in fast}
    return {
        ends: runs
        for ends, runs in crossing.items()
        if ends not in good
        and _disjoint(runs) >= 2
        and all(frozenset({end}) in good for end in ends)
    }


def _disjoint(runs: Sequence[PairRun]) -> int:
    """How many of the pairs have no node in common, counted greedily."""
    used: set[str] = set()
    count = 0
    for run in runs:
        if not used & set(_of(run)):
            used |= set(_of(run))
            count += 1
    return count


def _shown(runs: Sequence[PairRun]) -> str:
    return ", ".join(
        f"{r.a}-{r.b} {'did not finish' if r.busbw is None else f'{r.busbw:.1f}'}" for r in runs[:6]
    )


def _bad(node: str, against: Sequence[PairRun], floor: float) -> Finding:
    partners = sorted({run.partner(node) for run in against})
    return fail(
        "pair_bandwidth_low",
        about(node=node),
        f"it was below {floor:g} GB/s with {' and '.join(partners)} ({_shown(against)})",
        f"leave it out (--exclude={node}) and have its NICs checked",
        partners=",".join(partners),
        floor=floor,
    )


def _uplink(leaves: Leaves, runs: Sequence[PairRun], floor: float) -> Finding:
    return fail(
        "pair_bandwidth_low",
        about(fabric="-".join(sorted(leaves))),
        f"every pair across these leaf switches is below {floor:g} GB/s ({_shown(runs)}) and pairs"
        " within a leaf are not",
        "report the uplinks or the spine; no node is at fault, and none should be left out",
        pairs=len(runs),
        floor=floor,
    )


def _suspect(node: str, runs: Sequence[PairRun], floor: float) -> Finding:
    mine = [run for run in runs if node in _of(run)]
    return warn(
        "pair_suspect",
        about(node=node),
        f"it was below {floor:g} GB/s ({_shown(mine)}) and was never measured with a good partner",
        "measure it again with a node that was fast",
        floor=floor,
    )


def _path(run: PairRun, floor: float) -> Finding:
    return warn(
        "pair_path_slow",
        about(pair=f"{run.a}-{run.b}"),
        f"it was below {floor:g} GB/s ({_shown([run])}), and both were fast with others",
        "measure this pair again; if it stays, report the path between the two",
        floor=floor,
    )


def _set_low(runs: Sequence[PairRun], floor: float) -> Finding:
    return warn(
        "pair_set_low",
        about(job="pairs"),
        f"no pair reached {floor:g} GB/s ({_shown(runs)})",
        "compare the floor with the fabric, and look at the transport that NCCL chose; no node is"
        " accused",
        floor=floor,
    )


def _silent(node: str) -> Finding:
    return fail(
        "node_silent",
        about(node=node),
        "it did not answer after a pair that did not finish",
        f"leave it out (--exclude={node}) and have it looked at",
    )
