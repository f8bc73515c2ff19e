"""Evidence about GPUs in a folder: topology, products, NVLink, queries, copies, speeds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from slurmmiles.findings import unreadable
from slurmmiles.preflight.fabric_manager import judge_fabric
from slurmmiles.preflight.gpu_health import judge_gpus
from slurmmiles.preflight.gpulist import (
    BadQuery,
    QueriedGpu,
    judge_products,
    parse_query,
)
from slurmmiles.preflight.hostcopy import HostCopy, judge_copies
from slurmmiles.preflight.nvlink import judge_nvlink_status, parse_nvlink_status
from slurmmiles.preflight.nvlink_rules import judge_topology
from slurmmiles.preflight.outliers import GEMM, Speed, judge_speeds
from slurmmiles.preflight.pcie_acs import judge_acs
from slurmmiles.preflight.products import product_of
from slurmmiles.preflight.replay_env import Place
from slurmmiles.preflight.text import integer, number, table
from slurmmiles.preflight.topo import BadTable, Topology, parse_topology
from slurmmiles.report import Finding

Evidence = Mapping[str, str]


def judge(files: Evidence, place: Place, node: str) -> list[Finding]:
    """Everything about the node's GPUs."""
    findings: list[Finding] = []
    gpus: tuple[QueriedGpu, ...] | None = None
    if "gpus.csv" in files:
        try:
            gpus = parse_query(files["gpus.csv"])
        except BadQuery as error:
            findings.append(unreadable("gpus.csv", str(error), node))
        else:
            findings += judge_products(gpus, node) + judge_gpus(gpus, node)
    name = _usual_name(gpus)
    if "topo.txt" in files:
        findings += _topology(files, gpus, name, node)
    if "nvlink-s.txt" in files:
        findings += judge_nvlink_status(
            files["nvlink-s.txt"], node=node, cut="nvlink-s.txt" in place.cut
        )
        listed = len(parse_nvlink_status(files["nvlink-s.txt"])[0])
        if gpus is not None and 0 < listed < len(gpus):
            findings.append(_fewer("nvlink-s.txt", listed, len(gpus), node))
    if "fabric.txt" in files:
        findings += judge_fabric(files["fabric.txt"], name, node)
    findings += _queries(files, node)
    if "gemm.csv" in files:
        findings += _speeds(files["gemm.csv"], name)
    if "lspci.txt" in files:
        findings += judge_acs(files["lspci.txt"], virtual=False, node=node)
    return findings


def _usual_name(gpus: Sequence[QueriedGpu] | None) -> str:
    names = Counter(g.name for g in gpus or () if g.name)
    return names.most_common(1)[0][0] if names else ""


def _fewer(file: str, seen: int, expected: int, node: str) -> Finding:
    return unreadable(file, f"it shows {seen} GPUs where gpus.csv shows {expected}", node)


def _topology(
    files: Evidence, gpus: Sequence[QueriedGpu] | None, name: str, node: str
) -> list[Finding]:
    try:
        topology: Topology = parse_topology(files["topo.txt"])
    except BadTable as error:
        return [unreadable("topo.txt", str(error), node)]
    findings = judge_topology(topology, product_of(name) if name else None, node)
    if gpus is not None and len(gpus) != len(topology.gpus):
        file = "topo.txt" if len(topology.gpus) < len(gpus) else "gpus.csv"
        why = f"topo.txt shows {len(topology.gpus)} GPUs and gpus.csv {len(gpus)}"
        findings.append(unreadable(file, why, node))
    return findings


def _queries(files: Evidence, node: str) -> list[Finding]:
    findings: list[Finding] = []
    for file, loaded in (("query.csv", False), ("idle.csv", False), ("load.csv", True)):
        if file not in files:
            continue
        try:
            gpus = parse_query(files[file])
        except BadQuery as error:
            findings.append(unreadable(file, str(error), node))
        else:
            findings += judge_gpus(gpus, node, loaded=loaded)
    if "copy.csv" in files:
        findings += _copies(files["copy.csv"], findings, node)
    return findings


def _copies(text: str, links: Sequence[Finding], node: str) -> list[Finding]:
    copies = []
    for row in table(text) or [{}]:
        gpu = integer(row.get("index", ""))
        speeds = [number(row.get(name, "")) for name in ("h2d_gbs", "d2h_gbs")]
        if gpu is None or speeds[0] is None or speeds[1] is None:
            return [unreadable("copy.csv", "it has no columns index, h2d_gbs and d2h_gbs", node)]
        copies.append(HostCopy(gpu, speeds[0], speeds[1]))
    explained = {
        c.gpu for c in copies for f in links if f.code.startswith("pcie_") and _is_of(f, c.gpu)
    }
    return judge_copies(copies, node=node, explained=explained)


def _is_of(finding: Finding, gpu: int) -> bool:
    return f"gpu={gpu}" in finding.subject.split(",")


def _speeds(text: str, product: str) -> list[Finding]:
    known = product_of(product) if product else None
    speeds = []
    for row in table(text) or [{}]:
        gpu, value = integer(row.get("gpu", "")), number(row.get("bf16_tflops", ""))
        if gpu is None or value is None or not row.get("node"):
            return [unreadable("gemm.csv", "it has no columns node, gpu and bf16_tflops")]
        speeds.append(Speed(row["node"], value, gpu))
    return judge_speeds(speeds, GEMM, known.bf16_floor if known else None)
