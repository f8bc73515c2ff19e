"""What Slurm says of its partitions and of the user's accounts: ask/parse pairs; nothing runs.

Formats are those of sinfo(1) and sacctmgr(1), with `|` between fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Partition, state, GRES, CPUs, memory in MB, nodes.
_SINFO = "%P|%a|%G|%c|%m|%D"
_GPUS = re.compile(r"gpu:(?:([A-Za-z][\w.-]*):)?(\d+)")


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes of one kind in one partition; `gpu_type` is empty where Slurm does not type GPUs."""

    name: str
    is_default: bool
    gpus: int
    gpu_type: str
    cpus: int
    memory_mb: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Association:
    """An account that the user may charge, and the QOS allowed there."""

    account: str
    qos: tuple[str, ...]


def sinfo_argv() -> list[str]:
    """Every partition and kind of node, a line each, in the fields that this module parses."""
    return ["sinfo", "--noheader", f"--format={_SINFO}"]


def parse_sinfo(text: str) -> list[Partition]:
    """One entry for each partition and kind of node that is up; lines of another form are left."""
    found = []
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 6 or not fields[1].startswith("up"):
            continue
        gpu = _GPUS.search(fields[2])
        cpus, memory, nodes = (_number(f) for f in fields[3:])
        found.append(
            Partition(
                name=fields[0].rstrip("*"),
                is_default=fields[0].endswith("*"),
                gpus=int(gpu[2]) if gpu else 0,
                gpu_type=(gpu[1] or "") if gpu else "",
                cpus=cpus,
                memory_mb=memory,
                nodes=nodes,
            )
        )
    return found


def sacctmgr_argv(user: str) -> list[str]:
    """The associations of `user`: the accounts that may be charged, and their QOS."""
    return [
        *("sacctmgr", "--noheader", "--parsable2", "show", "associations"),
        f"user={user}",
        "format=Account,QOS",
    ]


def parse_sacctmgr(text: str) -> list[Association]:
    """The accounts in Slurm's order, each once; empty without accounting."""
    found: dict[str, Association] = {}
    for line in text.splitlines():
        account, bar, qos = line.strip().partition("|")
        if bar and account:
            found.setdefault(account, Association(account, tuple(q for q in qos.split(",") if q)))
    return list(found.values())


def _number(text: str) -> int:
    """sinfo writes `128+` where nodes differ: the least."""
    digits = re.match(r"\d{1,12}", text)
    return int(digits[0]) if digits else 0
