"""Slurm's own tools as ask/parse pairs: what is typed, and what its answer means; nothing runs.

Output formats are asked for by name with `|` between fields, so that a site's SLURM_TIME_FORMAT or
SQUEUE_FORMAT does not change what is parsed. scontrol's `show job -o` is `Key=Value` words on one
line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# States of `man squeue` (JOB STATE CODES) from which a job does not come back by itself.
ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
# Reasons of `man squeue` (JOB REASON CODES) in words.
REASONS = {
    "Priority": "jobs of higher priority are ahead",
    "Resources": "it waits for nodes to become free",
    "Dependency": "it waits for another job",
    "BeginTime": "its begin time has not come (a requeued job waits about two minutes)",
    "JobHeldUser": "it is held by its owner; release it with scontrol release",
    "JobHeldAdmin": "it is held by an administrator",
    "launch failed requeued held": (
        "its launch failed and Slurm holds it; release it with scontrol release"
    ),
    "PartitionTimeLimit": "its time limit is longer than the partition allows",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "ReqNodeNotAvail": "a node that it needs is not available",
    "QOSMaxJobsPerUserLimit": "the QOS limit on jobs per user is reached",
    "AssocGrpCpuLimit": "the account's CPU limit is reached",
    "AssocGrpGRES": "the account's GPU limit is reached",
    "BadConstraints": "no node has what it asks for",
    "Reservation": "it waits for its reservation",
    "Licenses": "it waits for a license",
    "NodeDown": "a node that it needs is down",
}


@dataclass(frozen=True, slots=True)
class JobState:
    """What Slurm says of a job; `exit_code` is its own "status:signal" and empty while unknown."""

    state: str
    reason: str = ""
    nodes: str = ""
    exit_code: str = ""
    source: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def hit_a_limit(self) -> bool:
        """Ended by Slurm itself; while its processes are stopped the state says COMPLETING."""
        return self.state in ("TIMEOUT", "PREEMPTED", "DEADLINE") or self.reason == "TimeLimit"

    @property
    def sentence(self) -> str:
        """The reason in words, for a pending job; empty when there is nothing to say."""
        if self.state != "PENDING":
            return ""
        # scontrol writes '_' where squeue writes a space.
        word = self.reason.strip("()").split(",")[0].replace("_", " ").strip()
        return REASONS.get(word, f"Slurm's reason is {word}") if word and word != "None" else ""


def cancel_argv(job_id: str) -> list[str]:
    """End a job; silent when it is done."""
    return ["scancel", job_id]


def squeue_argv(job_id: str) -> list[str]:
    """One job in any state that squeue still knows; an id that it has forgotten is an error of
    squeue.
    """
    return ["squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T|%r|%N"]


def parse_squeue(text: str) -> JobState | None:
    """The last line that has the three fields; None when there is none."""
    rows = [line.strip().split("|") for line in text.splitlines() if line.count("|") == 2]
    if not rows:
        return None
    state, reason, nodes = rows[-1]
    return JobState(_word(state), reason, nodes, source="squeue")


def scontrol_argv(job_id: str) -> list[str]:
    """One job that slurmctld still knows, on one line."""
    return ["scontrol", "show", "job", "--oneliner", job_id]


def parse_scontrol(text: str) -> JobState | None:
    """State, reason, nodes and exit code of `scontrol show job -o`; None without a JobState."""
    fields: dict[str, str] = {}
    for name, value in re.findall(r"(?:^|\s)(JobState|Reason|NodeList|ExitCode)=(\S*)", text):
        fields.setdefault(name, value)  # a path or comment later in the line may hold such words
    if "JobState" not in fields:
        return None
    nodes = fields.get("NodeList", "")
    return JobState(
        _word(fields["JobState"]),
        fields.get("Reason", ""),
        "" if nodes == "(null)" else nodes,
        fields.get("ExitCode", ""),
        source="scontrol",
    )


def sacct_argv(job_id: str) -> list[str]:
    """One job of any age, where there is accounting."""
    return [
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        f"--jobs={job_id}",
        "--format=State,ExitCode,NodeList",
    ]


def parse_sacct(text: str) -> JobState | None:
    """The newest row; `CANCELLED by 1000` is CANCELLED. None when there is no row (or no
    accounting).
    """
    rows = [line.strip().split("|") for line in text.splitlines() if line.count("|") == 2]
    if not rows or not rows[-1][0]:
        return None
    state, exit_code, nodes = rows[-1]
    return JobState(_word(state), "", nodes, exit_code, source="sacct")


def _word(state: str) -> str:
    return state.split()[0].rstrip("+") if state.split() else ""


def explain_refusal(stderr: str) -> tuple[str, str]:
    """Slurm's own words of a refused sbatch in one line, and what to do about the usual ones."""
    lines = [
        re.sub(r"^(sbatch|srun): (error|fatal): ", "", line)
        for line in stderr.splitlines()
        if line.strip()
    ]
    words = "; ".join(lines[-3:]) or "sbatch said nothing"
    for pattern, fix in REFUSALS:
        if re.search(pattern, stderr, re.IGNORECASE):
            return words, fix
    return words, "compare the request (`slurmmiles render`) with `sinfo` and the site's rules"


def no_cluster(words: str) -> bool:
    """Whether sbatch found no configuration at all: the packages are there, a cluster is not."""
    return "configuration source" in words


REFUSALS = (
    (r"invalid partition", "choose one of `sinfo -o %P` with --set slurm.partition=NAME"),
    (
        r"invalid account|account/partition combination",
        "name an account of `sacctmgr show assoc` with --set slurm.account=NAME",
    ),
    (r"invalid qos", "name a QOS that the site has with --set slurm.qos=NAME"),
    (
        r"node count specification invalid|more processors|configuration (is )?not available",
        "ask for fewer nodes, or for what the nodes have (`sinfo -N -l`)",
    ),
    (
        r"accounting/QOS policy",
        "the account's limits are reached: see `sacctmgr show assoc` and `sacctmgr show qos`",
    ),
    (r"memory specification", "ask for less with --set slurm.mem=SIZE"),
    (r"invalid feature", "name features of `sinfo -o %f` with --set slurm.constraint=NAME"),
    (r"reservation", "name one of `scontrol show reservation` with --set slurm.reservation=NAME"),
    (r"invalid node name", "correct the node names of --set slurm.exclude=NODES"),
    (r"time limit", "ask for less with --set slurm.time=HH:MM:SS"),
    (
        r"gres|gpu",
        "check how this site names GPUs (`sinfo -o %G`); see gpu_request in the site file",
    ),
    (
        r"unable to contact|connection refused|configuration source",
        "Slurm's controller does not answer: try `scontrol ping`, later or on a login node",
    ),
    (r"limit", "the account's limits are reached: see `sacctmgr show assoc` or ask the site"),
)
