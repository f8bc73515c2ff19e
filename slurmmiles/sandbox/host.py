"""What the machine below the sandbox offers: root, packages, namespaces, cgroups, Slurm."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from slurmmiles import shell
from slurmmiles.errors import BadInput, MissingTool
from slurmmiles.sandbox.layout import Machine
from slurmmiles.sandbox.mounts import CGROUPS, FREEZER

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": "/root", "USER": "root"}
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "tc", "unshare", "nsenter", "setpriv")
INSTALL = "apt-get install -y --no-install-recommends slurm-wlm munge iproute2"
NAMESPACES = ("--pid", "--mount", "--uts", "--ipc", "--net")
WITHOUT_CGROUPS = (
    "no cgroups that Slurm can use here, so it tracks jobs by their parents (linuxproc):"
    " a daemon that leaves its job outlives it, which a cluster would kill"
)


def require_root() -> None:
    """Raise MissingTool for anybody but root."""
    if os.geteuid() != 0:
        what = "the sandbox needs root, for namespaces and mounts"
        raise MissingTool(what, fix=f"run it as root or with sudo; its packages: {INSTALL}")


def require() -> None:
    """Raise MissingTool without root or packages, BadInput where root may not make namespaces."""
    require_root()
    missing = [program for program in PROGRAMS if not shutil.which(program, path=SYSTEM_PATH)]
    if missing:
        raise MissingTool(f"the sandbox needs {', '.join(missing)}", fix=f"install: {INSTALL}")
    if not Path("/etc/hosts").is_file():
        raise BadInput("there is no /etc/hosts to give the nodes their own", fix="touch /etc/hosts")
    tried = shell.run([program("unshare"), "--fork", *NAMESPACES, "true"], timeout=10)
    if not tried.ok:
        what = f"root may not make namespaces here ({tried.stderr.strip()})"
        raise BadInput(what, fix="start the container with --privileged")


def program(name: str) -> str:
    """The path of a system program; raises MissingTool when it is not installed."""
    found = shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        raise MissingTool(f"the sandbox needs {name}", fix=f"install: {INSTALL}")
    return found


def survey() -> Machine:
    """The machine as a sandbox can use it now."""
    slurm = slurm_version()
    kind = cgroup_kind(Path("/proc/self/mountinfo").read_text(), slurm)
    if kind != "none" and not os.access(FREEZER if kind == "v1" else CGROUPS, os.W_OK):
        kind = "none"  # a container's cgroups are often read-only
    require_cgroups(kind, slurm)
    # Below Slurm's largest job id, 0x03ff0000 (slurm.conf(5), MaxJobId): a week, 100 ids a second.
    return Machine(kind, slurm, int(time.time()) % 600_000 * 100 + 1000)


def slurm_version() -> tuple[int, int]:
    """(22, 5) for `slurm-wlm 22.05.8`; raises MissingTool when slurmctld does not say."""
    said = shell.run([program("slurmctld"), "-V"], timeout=10).stdout.strip()
    found = re.search(r"(\d+)\.(\d+)\.\d+", said)
    if found is None:
        raise MissingTool(f"slurmctld -V names no version: {said!r}", fix=f"install: {INSTALL}")
    return int(found[1]), int(found[2])


def cgroup_kind(mountinfo: str, slurm: tuple[int, int]) -> str:
    """The cgroups by which slurmd can track jobs: "v1", "v2" or "none" (proc_pid_mountinfo(5)).

    slurmd knows v2 since 22.05 and refuses it beside v1 ("Hybrid mode is not supported").
    """
    kinds = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kinds[left.split()[4]] = right.split()[0]
    if kinds.get(str(FREEZER)) == "cgroup":
        return "v1"
    unified = kinds.get(str(CGROUPS)) == "cgroup2" and "cgroup" not in kinds.values()
    return "v2" if unified and slurm >= (22, 5) else "none"


def require_cgroups(kind: str, slurm: tuple[int, int]) -> None:
    """Raise BadInput where slurmd would not start for want of cgroups.

    Measured: 22.05 and 23.11 refuse ("Unable to initialize cgroup plugin"), 21.08 does not look,
    and 24.11 can be told not to (cgroup.conf(5), CgroupPlugin=disabled).
    """
    if kind == "none" and (22, 5) <= slurm < (24, 5):
        what = f"Slurm {slurm[0]}.{slurm[1]:02d} needs cgroups, and root cannot write any here"
        fix = "start the container with --privileged, or: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
        raise BadInput(what, fix=fix)


def start_time(pid: int) -> int | None:
    """When a process started, in ticks since boot; None if gone or a zombie (proc_pid_stat(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
