"""An agent's first question: is the run directory here, as the head has it?"""

from __future__ import annotations

import os
import secrets
import sys
import time

from slurmmiles import control, nodefacts, ports
from slurmmiles.allocation import Allocation
from slurmmiles.errors import UnfitNodes
from slurmmiles.jsonfile import read_json, write_json, write_text
from slurmmiles.rundir import RunDir
from slurmmiles.sbatch import decode_plan

# An NFS client may remember for a while that a new directory does not exist (nfs(5), acdirmax).
VISIBLE_S = 15.0
COMPLAIN_S = 20.0


def unpack_inline(word: str, run: RunDir, allocation: Allocation) -> None:
    """For a rendered script: the head lays the run directory out from the plan that the script
    carries.
    """
    if not allocation.is_head:
        return
    plan = decode_plan(word)
    run.path.mkdir(parents=True, exist_ok=True)
    if not run.token.exists():
        write_text(run.token, secrets.token_hex(32), mode=0o600)
    if read_json(run.submission) is None:
        write_json(
            run.submission,
            {"job_id": allocation.job_id, "mode": "slurm", "submitted_at": time.time()},
        )
    write_json(run.plan, plan)


def visible(run: RunDir) -> bool:
    """Whether plan and token of the run can be read here, within VISIBLE_S seconds."""
    deadline = time.monotonic() + VISIBLE_S
    while not (run.plan.is_file() and os.access(run.token, os.R_OK)):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.2)
    return True


def stay_out(run: RunDir, allocation: Allocation) -> int:
    """Tell stderr and the head why this node cannot take part; the exit status of its task.

    0 when the head has heard it: then the head decides what becomes of the run, and Slurm, which
    reports the highest status of all tasks, must not call a run failed that went on with a spare.
    """
    error = UnfitNodes(
        f"it cannot see the run directory {run.path}",
        where=allocation.node,
        fix="use a filesystem that every node mounts (--runs DIR), or have the mount repaired",
    )
    print(f"slurmmiles: {error}", file=sys.stderr, flush=True)
    if allocation.is_head:
        return error.exit_code
    port = ports.preferred(allocation.job_id, nodefacts.ephemeral_floor()).control
    until = time.monotonic() + COMPLAIN_S
    heard = control.complain(allocation.head, port, allocation.node, error.what, until)
    return 0 if heard else error.exit_code
