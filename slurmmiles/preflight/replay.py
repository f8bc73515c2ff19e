"""Raw evidence of one node, as text by file name, to findings: which name means what. Pure.

Every judge is the one that the live checks use. Evidence that is not there is not judged; evidence
that is there and cannot be read is UNKNOWN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from slurmmiles.findings import unreadable
from slurmmiles.preflight import replay_gpu, replay_net
from slurmmiles.preflight.nccl_log import judge_nccl_log
from slurmmiles.preflight.replay_env import Place, judge_environment, read_place
from slurmmiles.preflight.text import is_whole
from slurmmiles.preflight.xid import judge_xids, parse_now
from slurmmiles.report import Finding

Evidence = Mapping[str, str]
# What may lie beside the evidence without being judged by itself.
HELPERS = ("proc_net_route.txt", "now.txt", "job.txt", "slurm.txt", "libs.txt", "versions.txt")
KNOWN = (
    "topo.txt",
    "gpus.csv",
    "nvlink-s.txt",
    "ibstat.txt",
    "sysfs.txt",
    "env.txt",
    "instance.txt",
    "nccl.log",
    "query.csv",
    "idle.csv",
    "load.csv",
    "copy.csv",
    "gemm.csv",
    "dmesg.txt",
    "fabric.txt",
    "before.txt",
    "after.txt",
    "probe.csv",
    "lspci.txt",
    *HELPERS,
)
SELF_EVIDENT = ("job.txt", "instance.txt", "now.txt")
SETTINGS = ("env.txt", "slurm.txt", "versions.txt")
"""What stands in a last line without an end is judged as far as it goes."""


def judge_evidence(files: Evidence, node: str = "") -> list[Finding]:
    """The findings of one folder; `files` holds only names of KNOWN."""
    whole, cut, findings = _usable(files, node)
    place, faults = read_place(whole, node, cut)
    judges: tuple[Callable[[Evidence, Place, str], list[Finding]], ...] = (
        replay_gpu.judge,
        replay_net.judge,
        judge_environment,
        _log,
        _kernel_log,
    )
    findings += faults
    for judge in judges:
        findings += judge(whole, place, node)
    return _once(findings)


def _usable(files: Evidence, node: str) -> tuple[Evidence, frozenset[str], list[Finding]]:
    """The files without a last line that is cut, the names of those, and findings about them.

    Every tool ends its last line; without that the text may have been cut anywhere, and what it
    does not show proves nothing. A file of one word, or of true and false, shows a cut by itself.
    """
    whole: dict[str, str] = {}
    cut: set[str] = set()
    findings: list[Finding] = []
    for name, text in sorted(files.items()):
        if not text.strip():
            findings.append(unreadable(name, "it is empty", node))
            continue
        if not is_whole(text) and name not in SELF_EVIDENT:
            findings.append(unreadable(name, "its last line has no end: it may be cut", node))
            cut.add(name)
            if name not in SETTINGS:
                text = text[: text.rfind("\n") + 1]
        if text.strip():
            whole[name] = text
    return whole, frozenset(cut), findings


def _log(files: Evidence, place: Place, node: str) -> list[Finding]:
    if "nccl.log" not in files:
        return []
    asked = place.env.get("NCCL_NET", "").lower() == "socket"
    return judge_nccl_log(files["nccl.log"], "ethernet" if asked else place.fabric)


def _kernel_log(files: Evidence, place: Place, node: str) -> list[Finding]:
    if "dmesg.txt" not in files:
        return []
    now, window = parse_now(files.get("now.txt", ""))
    return judge_xids(files["dmesg.txt"], now, window, node)


def _once(findings: list[Finding]) -> list[Finding]:
    """Two kinds of evidence may show one fault; the first finding of a code and subject stays."""
    seen = Counter[tuple[str, str]]()
    kept = []
    for finding in findings:
        seen[finding.code, finding.subject] += 1
        if seen[finding.code, finding.subject] == 1:
            kept.append(finding)
    return kept
