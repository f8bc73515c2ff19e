"""What `preflight replay` is given: a folder of raw evidence, one folder for each of several nodes,
or the directory of a run, an attempt or its preflight; read, and judged again by the same judges.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

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

# A larger file is no evidence of one node; the kernel's log and NCCL's are the longest.
MAX_BYTES = 64 * 2**20


def replay(folder: Path) -> Report:
    """The report of a saved run or of raw evidence; BadInput when there is nothing to judge."""
    if not folder.is_dir():
        raise BadInput("this is no directory", where=str(folder), fix="give the folder of evidence")
    attempt = attempt_of(folder)
    if attempt is not None:
        return Report.of([*judge_attempt(attempt), *_raw_nodes(attempt.preflight)])
    own = evidence_in(folder)
    findings = judge_evidence(*own) if own[0] or own[1] else _raw_nodes(folder)
    if not own[0] and not own[1] and not _node_folders(folder):
        raise BadInput(
            "there is no evidence to judge here",
            where=str(folder),
            fix=f"give a run's directory, or a folder with files such as {', '.join(KNOWN[:6])}",
        )
    return Report.of(findings)
