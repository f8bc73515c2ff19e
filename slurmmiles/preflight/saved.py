"""What `preflight replay` is given: a folder of raw evidence, one folder for each of several nodes,
or the directory of a run or of one of its attempts; read, and judged again by the same judges.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from slurmmiles.errors import BadInput
from slurmmiles.findings import unreadable
from slurmmiles.jsonfile import read_json, read_model
from slurmmiles.nodefacts import NodeFacts
from slurmmiles.planfile import Plan
from slurmmiles.preflight.environment import judge_environment, judge_seen
from slurmmiles.preflight.host import judge_hosts
from slurmmiles.preflight.network import Measurement, judge_network
from slurmmiles.preflight.replay import KNOWN, judge_evidence
from slurmmiles.report import Finding, Report
from slurmmiles.rundir import Attempt, RunDir

# Evidence of one node is text of a few screens; the kernel's log and NCCL's are the longest.
MAX_BYTES = 64 * 2**20
# A node that never joined left no facts: what the head saw of it then is all there is.
CARRIED = frozenset({"not_joined"})
# Beside a node's facts: the environment that was resolved for it, which the facts hold too.
RESOLVED = ".env.json"
_MEASUREMENTS = TypeAdapter(list[Measurement])
_SEEN = TypeAdapter(dict[str, dict[str, str | None]])


def replay(folder: Path) -> Report:
    """The report of a saved run or of raw evidence; BadInput when there is nothing to judge."""
    if not folder.is_dir():
        raise BadInput("this is no directory", where=str(folder), fix="give the evidence's folder")
    attempt = attempt_of(folder)
    if attempt is not None:
        raw = nodes_in(attempt.preflight)
        return Report.of([*judge_attempt(attempt), *_judge_all(raw)])
    own, nodes = evidence_in(folder), nodes_in(folder)
    if not own and not nodes:
        raise BadInput(
            "there is no evidence to judge here",
            where=str(folder),
            fix=f"give a run's directory, or a folder with files such as {', '.join(KNOWN[:6])}",
        )
    return Report.of([*_judge_all({"": own} if own else {}), *_judge_all(nodes)])


def attempt_of(folder: Path) -> Attempt | None:
    """The attempt that `folder` is, or the newest one of the run that it is; None otherwise."""
    if (folder / "nodes").is_dir() and (folder / "preflight").is_dir():
        return Attempt(folder.resolve())
    run = RunDir(folder)
    if not run.attempts.is_dir():
        return None
    if run.latest.is_dir():
        return Attempt(run.latest.resolve())
    starts = sorted(run.attempts.iterdir(), key=lambda p: p.stat().st_mtime)
    return Attempt(starts[-1]) if starts else None


def judge_attempt(attempt: Attempt) -> list[Finding]:
    """Facts, environment and network of a run's attempt against its own plan."""
    run = RunDir(attempt.path.parent.parent)
    plan = read_model(attempt.plan if attempt.plan.exists() else run.plan, Plan)
    facts, findings = _facts(attempt)
    submission = read_json(run.submission)
    mode = submission.get("mode") if isinstance(submission, dict) else None
    findings += judge_hosts(
        facts,
        plan,
        canary=_text(attempt.canary).strip(),
        run_dir=str(run.path),
        one_machine=mode == "local",
    )
    findings += judge_environment(facts)
    preflight = attempt.preflight
    if (preflight / "network.json").exists():
        measured = _value(preflight / "network.json", _MEASUREMENTS, findings)
        findings += judge_network(measured or [], plan.preflight)
    if (preflight / "env.json").exists():
        findings += judge_seen(facts, _value(preflight / "env.json", _SEEN, findings) or {})
    return findings + _carried(preflight / "report.json")


def _facts(attempt: Attempt) -> tuple[list[NodeFacts], list[Finding]]:
    facts: list[NodeFacts] = []
    findings: list[Finding] = []
    for path in sorted(attempt.nodes.glob("*.json")):
        if path.name.endswith(RESOLVED):
            continue
        try:
            facts.append(NodeFacts.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError) as error:
            why = f"it is not what a node writes of itself ({type(error).__name__})"
            findings.append(unreadable(path.name, why, path.stem))
    if not facts and not findings:
        findings.append(unreadable("nodes/", "no node has left its facts"))
    return facts, findings


def _value(path: Path, kind: TypeAdapter[Any], findings: list[Finding]) -> Any:
    try:
        return kind.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = f"it is not what this version writes ({type(error).__name__})"
        findings.append(unreadable(path.name, why))
        return None


def _carried(path: Path) -> list[Finding]:
    """Findings of the saved report that rest on no other file."""
    if not path.exists():
        return []
    try:
        report = Report.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return [unreadable(path.name, "it is no report of preflight")]
    return [f for f in report.findings if f.code in CARRIED]


def evidence_in(folder: Path) -> dict[str, str]:
    """The files of known names; one that cannot be read or is far too large stands as empty."""
    return {name: _text(folder / name) for name in KNOWN if (folder / name).exists()}


def nodes_in(folder: Path) -> dict[str, dict[str, str]]:
    """Name of each directory below that holds evidence, to its evidence."""
    if not folder.is_dir():
        return {}
    found = {p.name: evidence_in(p) for p in sorted(folder.iterdir()) if p.is_dir()}
    return {name: files for name, files in found.items() if files}


def _judge_all(nodes: dict[str, dict[str, str]]) -> list[Finding]:
    return [f for node, files in nodes.items() for f in judge_evidence(files, node)]


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
