"""What a node of the sandbox sees of the filesystem; runs inside that node's mount namespace.

Whatever is not mounted over here (home, checkouts, virtual environments) is the machine's own, the
same on every node: the sandbox's shared filesystem.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from slurmmiles.sandbox.layout import LOGIN_NAME, Machine, SandboxDir, Spec

# linux/mount.h
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC = 2, 4, 8, 4096, 16384
MNT_DETACH = 2
PLAIN = MS_NOSUID | MS_NODEV | MS_NOEXEC
CLONE_NEWCGROUP = 0x02000000  # linux/sched.h
CGROUPS = Path("/sys/fs/cgroup")
FREEZER = CGROUPS / "freezer"
INIT_CGROUP = CGROUPS / "init"
SYSTEM_SLICE = CGROUPS / "system.slice"  # systemd would have made it; slurmd puts its scope there


def enter_login(where: SandboxDir) -> None:
    """The login node: its own processes, names and Slurm configuration; /tmp is the machine's."""
    _own_system(where, LOGIN_NAME)


def enter_node(where: SandboxDir, spec: Spec, machine: Machine, name: str) -> None:
    """A node: also its own /tmp (but for what is shared), /dev/shm, network devices and cgroups."""
    tmp = where.tmp(name)
    for shared in (str(where.root), *spec.share):
        if shared.startswith("/tmp/"):
            seen = tmp / shared.removeprefix("/tmp/")
            seen.mkdir(parents=True, exist_ok=True)
            bind(Path(shared), seen)
    bind(tmp, Path("/tmp"))
    options = f"size={spec.shm},mode=1777"
    mount("shm", Path("/dev/shm"), "tmpfs", MS_NOSUID | MS_NODEV, options)
    _own_system(where, name)
    _own_sys(where, machine, name)


def bind(source: Path, target: Path) -> None:
    """Show `source`, with what is mounted below it, at `target`."""
    mount(str(source), target, flags=MS_BIND | MS_REC)


def mount(source: str, target: Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); raises OSError naming the target."""
    words = [word.encode() for word in (source, str(target), kind)]
    _call("mount", str(target), *words, ctypes.c_ulong(flags), data.encode())


def _call(function: str, about: str, *arguments: object) -> None:
    """A function of libc that returns 0 or sets errno; raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}", about)


def _own_system(where: SandboxDir, name: str) -> None:
    mount("proc", Path("/proc"), "proc", PLAIN)
    bind(where.hosts(name), Path("/etc/hosts"))
    over = {
        Path("/etc/resolv.conf"): where.etc / "resolv.conf",  # no name server can be reached
        Path("/etc/slurm"): where.etc,
        Path("/usr/bin/sacct"): where.sacct,
    }
    for target, source in over.items():
        if target.exists():
            bind(source, target)


def _own_sys(where: SandboxDir, machine: Machine, name: str) -> None:
    """A new /sys, which shows this network namespace's devices, with cgroups slurmd may work in.

    slurmd looks at the kind of filesystem on /sys/fs/cgroup even when it tracks without cgroups.
    """
    if machine.cgroup == "v1":
        bind(CGROUPS, where.cgroup_anchor)
    elif machine.cgroup == "v2":
        _own_cgroup_namespace(where, name)
    # Mounted over, the machine's /sys/fs/cgroup would stay in mountinfo, and slurmd 24.11 reads it.
    _call("umount2", "/sys", b"/sys", MNT_DETACH)
    mount("sysfs", Path("/sys"), "sysfs", PLAIN)
    if machine.cgroup == "v1":
        bind(where.cgroup_anchor, CGROUPS)
        bind(FREEZER / where.cgroup_name / name, FREEZER)
    elif machine.cgroup == "v2":
        mount("cgroup2", CGROUPS, "cgroup2", PLAIN)
        for made in (INIT_CGROUP, SYSTEM_SLICE):
            made.mkdir(exist_ok=True)
        enter_init_cgroup()
    else:
        mount("cgroup", CGROUPS, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")


def _own_cgroup_namespace(where: SandboxDir, name: str) -> None:
    """Make the node's cgroup the root of what it sees (cgroup_namespaces(7))."""
    (CGROUPS / where.cgroup_name / name / "cgroup.procs").write_text("0")
    _call("unshare", name, CLONE_NEWCGROUP)


def enter_init_cgroup() -> None:
    """On cgroup v2, leave the node's root cgroup: one that hands out controllers holds no process.

    (cgroups(7), "no internal processes".) slurmd makes its own below the parent of PID 1's cgroup,
    as PID 1's namespace shows it. Does nothing on other machines.
    """
    if INIT_CGROUP.is_dir():
        (INIT_CGROUP / "cgroup.procs").write_text("0")
        with open("/proc/1/ns/cgroup") as namespace:
            _call("setns", "/proc/1/ns/cgroup", namespace.fileno(), CLONE_NEWCGROUP)
