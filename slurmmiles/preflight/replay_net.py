"""Evidence about ports in a folder: ibstat, the saved tree, counters, clocks. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from slurmmiles.env_names import HCA
from slurmmiles.findings import about, info, unknown, unreadable
from slurmmiles.name_lists import NameList
from slurmmiles.nics import NicKind
from slurmmiles.preflight.clock import ClockProbe, judge_clock
from slurmmiles.preflight.gdr import GdrFacts, judge_gdr, read_modules
from slurmmiles.preflight.ib import BadPorts, judge_ports, parse_ibstat
from slurmmiles.preflight.ib_counters import judge_counters, parse_counters
from slurmmiles.preflight.replay_env import Place
from slurmmiles.preflight.roce import GID_INDEX, judge_gids
from slurmmiles.preflight.text import number, table
from slurmmiles.report import Finding

Evidence = Mapping[str, str]


def judge(files: Evidence, place: Place, node: str) -> list[Finding]:
    """Everything about the node's ports."""
    findings: list[Finding] = []
    if "ibstat.txt" in files:
        findings += _ibstat(files["ibstat.txt"], place, node)
    if place.nics is not None:
        findings += _tree(place, node)
    if "before.txt" in files and "after.txt" in files:
        findings += _counters(files, node)
    if "probe.csv" in files:
        findings += _clocks(files["probe.csv"])
    return findings


def _listed(place: Place) -> NameList | None:
    value = place.env.get(HCA)
    return None if value is None else NameList.parse(value)


def _ibstat(text: str, place: Place, node: str) -> list[Finding]:
    try:
        ports = parse_ibstat(text)
    except BadPorts as error:
        return [unreadable("ibstat.txt", str(error), node)]
    findings = judge_ports(ports, _listed(place), node)
    listed = _listed(place)
    seen = {p.name for p in ports}
    named = listed.entries if listed and listed.exact and not listed.exclude else ()
    for name, _ in named:
        if name not in seen:
            findings.append(
                unknown(
                    "ib_device_not_shown",
                    about(node=node, nic=name),
                    f"{HCA} names it, and ibstat does not show it",
                    "gather ibstat again; if it stays, the card is gone: look at lspci",
                )
            )
    return findings


def _tree(place: Place, node: str) -> list[Finding]:
    assert place.nics is not None and place.tree is not None
    nics = place.nics
    findings: list[Finding] = []
    if place.fabric in ("infiniband", "roce"):
        findings += judge_ports(nics.nics, _listed(place), node)
    if place.fabric == "infiniband" and nics.of(NicKind.ROCE):
        others = ", ".join(n.name for n in nics.of(NicKind.ROCE))
        findings.append(
            info(
                "mixed_link_layers_info",
                about(fabric=place.fabric),
                f"{others} of the verbs devices are Ethernet; {HCA} must name the compute ports",
                ethernet=others,
            )
        )
    if place.fabric == "roce" and any(n.gids for n in nics.compute):
        findings += judge_gids(
            {node or "here": nics.compute}, {node or "here": place.env.get(GID_INDEX)}
        )
    if place.tree.exists("/sys/module") or place.tree.exists("/sys/kernel/mm"):
        peermem, peers = read_modules(place.tree)
        findings += judge_gdr(GdrFacts(peermem, peers), node, place.fabric or "")
    return findings


def _counters(files: Evidence, node: str) -> list[Finding]:
    findings: list[Finding] = []
    read = {}
    for file in ("before.txt", "after.txt"):
        read[file], others = parse_counters(files[file])
        if others or not read[file]:
            findings.append(unreadable(file, "it is no list of counters", node))
    return findings + judge_counters(read["before.txt"], read["after.txt"], node)


def _clocks(text: str) -> list[Finding]:
    findings: list[Finding] = []
    for row in table(text) or [{}]:
        times = [number(row.get(k, "")) for k in ("t0_head", "t_node", "t1_head")]
        if not row.get("node") or None in times:
            return [unreadable("probe.csv", "it has no columns node, t0_head, t_node, t1_head")]
        t0, t_node, t1 = (t or 0.0 for t in times)
        findings += judge_clock(ClockProbe(row["node"], t0, t_node, t1))
    return findings
