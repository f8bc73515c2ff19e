"""Limits of a process in a job step, and /dev/shm. Pure."""

from __future__ import annotations

import re

from slurmmiles.findings import about, fail, warn
from slurmmiles.report import Finding

UNLIMITED = -1
KIB, GIB = 1024, 1024**3
# AWS gpu-cluster-healthcheck warns below this; RDMA registers far more than a small limit allows.
MEMLOCK_FLOOR = 16 * GIB
# NCCL alone needs some hundred MB a node (nccl#290, #342); containers start with 64 MB.
SHM_FLOOR = GIB
# The images that runs are made for are documented with --shm-size 32g.
SHM_WANTED = 32 * 10**9
NOFILE_WANTED = 65_536
# As the documented container line asks with --ulimit stack=67108864.
STACK_WANTED = 64 * 1024 * KIB
_UNITS = {"": 1, "B": 1, "K": KIB, "M": KIB**2, "G": KIB**3, "T": KIB**4, "P": KIB**5}


def size_of(text: str) -> int | None:
    """`1.0T`, `64M`, `503G` (df -h) in bytes; `unlimited` is -1; None for anything else."""
    if text.strip().lower() in ("unlimited", "infinity"):
        return UNLIMITED
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([BKMGTP]?)i?B?\s*", text, re.I | re.ASCII)
    return round(float(found[1]) * _UNITS[found[2].upper()]) if found else None


def judge_memlock(bytes_: int, node: str = "", *, rdma: bool = True) -> list[Finding]:
    """memlock_low: a failure for RDMA, a warning where only TCP is used."""
    if bytes_ == UNLIMITED:
        return []
    judge = fail if rdma and bytes_ < MEMLOCK_FLOOR else warn
    return [
        judge(
            "memlock_low",
            about(node=node),
            f"a process may lock {bytes_ // KIB} KiB, and RDMA registers memory without such bound",
            "set LimitMEMLOCK=infinity for slurmd, or PropagateResourceLimitsExcept=MEMLOCK: slurmd"
            " hands on its own limits, whatever a login shell shows",
            memlock=bytes_,
        )
    ]


def judge_shm(bytes_: int, node: str = "") -> list[Finding]:
    """shm_small: a failure below what NCCL needs, a warning below what the image asks for."""
    if bytes_ >= SHM_WANTED:
        return []
    judge = fail if bytes_ < SHM_FLOOR else warn
    return [
        judge(
            "shm_small",
            about(node=node),
            f"/dev/shm has {bytes_ / 10**6:.0f} MB; NCCL needs some hundred and Ray's object store"
            " far more",
            "start the container with --shm-size 32g or with the host's /dev/shm",
            shm=bytes_,
        )
    ]


def judge_nofile(files: int, node: str = "", asked: int | None = None) -> list[Finding]:
    """nofile_low: a failure below what the recipe asks for, else a warning, since Ray opens
    thousands of files.
    """
    wanted = NOFILE_WANTED if asked is None else asked
    if files == UNLIMITED or files >= wanted:
        return []
    judge = warn if asked is None else fail
    return [
        judge(
            "nofile_low",
            about(node=node),
            f"a process may open {files} files, and Ray opens thousands"
            if asked is None
            else f"a process may open {files} files, and the recipe asks for {asked}",
            "raise LimitNOFILE of slurmd, or ulimit -n in the job",
            nofile=files,
        )
    ]


def judge_stack(bytes_: int, node: str = "") -> list[Finding]:
    """stack_low, a warning, below the 64 MiB that the image's line asks for."""
    if bytes_ == UNLIMITED or bytes_ >= STACK_WANTED:
        return []
    return [
        warn(
            "stack_low",
            about(node=node),
            f"the stack is limited to {bytes_ // KIB} KiB",
            "set ulimit -s 65536 in the job",
            stack=bytes_,
        )
    ]
