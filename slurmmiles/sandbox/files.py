"""The files and cgroups of a sandbox: made before it starts, removed when it is down."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from slurmmiles.errors import BadInput
from slurmmiles.sandbox import config
from slurmmiles.sandbox.host import program
from slurmmiles.sandbox.layout import (
    CLIENTS,
    LOGIN_NAME,
    Machine,
    SandboxDir,
    Spec,
    write_record,
)
from slurmmiles.sandbox.mounts import CGROUPS, FREEZER

PACKAGE = Path(__file__).parents[2]  # the folder that `import slurmmiles` searches
NULL_DEVICE = os.makedev(1, 3)  # null(4)
PATIENCE_S = 5.0


def write(where: SandboxDir, spec: Spec, machine: Machine) -> None:
    """Make everything that inits and daemons read.

    Raises BadInput for a shared directory that does not exist, a folder whose programs may not run
    (noexec), and a machine that refuses device nodes.
    """
    for shared in spec.share:
        if not Path(shared).is_dir():
            raise BadInput(f"--share {shared} is not a directory", fix="create it first")
    if os.statvfs(where.root.parent).f_flag & os.ST_NOEXEC:
        raise BadInput(f"{where.root.parent} is mounted noexec", fix="give another --dir")
    with _readable():
        where.root.mkdir(exist_ok=True)
        write_record(where, spec, machine)
        for folder in ("bin", "dev", "etc", "libexec", "log", "munge", "nodes", "state", "cgroup"):
            (where.root / folder).mkdir()
        _write_config(where, spec, machine)
        _write_programs(where)
        _make_nodes(where, spec)
        _make_gpus(where, spec)
    _make_cgroups(where, spec, machine)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """New files can be read by everybody: ordinary users submit too, whatever root's umask."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _write_config(where: SandboxDir, spec: Spec, machine: Machine) -> None:
    where.slurm_conf.write_text(config.slurm_conf(where, spec, machine))
    (where.etc / "gres.conf").write_text(config.gres_conf(where, spec))
    (where.etc / "cgroup.conf").write_text(config.cgroup_conf(machine))
    if spec.topology:
        (where.etc / "topology.conf").write_text(config.topology_conf(spec))
    (where.etc / "resolv.conf").touch()
    where.completions.touch()
    where.munge_key.touch(0o600)
    where.munge_key.write_bytes(secrets.token_bytes(1024))


def _write_programs(where: SandboxDir) -> None:
    where.sacct.write_text(config.sacct(where, sys.executable, PACKAGE))
    where.sacct.chmod(0o755)
    for name in CLIENTS:
        wrapper = where.bin / name
        wrapper.write_text(config.client(where, Path(program(name))))
        wrapper.chmod(0o755)


def _make_nodes(where: SandboxDir, spec: Spec) -> None:
    for name in (LOGIN_NAME, *spec.names):
        (where.node(name) / "spool").mkdir(parents=True)
        where.hosts(name).write_text(config.hosts(spec))
        where.tmp(name).mkdir()
        where.tmp(name).chmod(0o1777)


def _make_gpus(where: SandboxDir, spec: Spec) -> None:
    for index in range(spec.gpus):
        try:
            os.mknod(where.gpu(index), stat.S_IFCHR, NULL_DEVICE)
        except OSError as error:
            what = f"root may not make device nodes here ({error.strerror})"
            raise BadInput(
                what, fix="start the container with --privileged, or use --gpus 0"
            ) from None
        where.gpu(index).chmod(0o666)


def _make_cgroups(where: SandboxDir, spec: Spec, machine: Machine) -> None:
    if machine.cgroup != "none":
        top = (FREEZER if machine.cgroup == "v1" else CGROUPS) / where.cgroup_name
        for name in spec.names:
            (top / name).mkdir(parents=True)


def remove(where: SandboxDir) -> None:
    """Remove the directory; BadInput when it is not a sandbox's, or something is mounted in it."""
    if not where.root.exists():
        return
    if not where.record.exists():
        if not where.root.is_dir() or any(where.root.iterdir()):
            raise BadInput(f"{where.root} is not a sandbox's", fix="give an empty or new --dir")
        return
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if inside := [point for point in mounted if where.root in Path(point).parents]:
        raise BadInput(f"{inside[0]} is mounted in the sandbox", fix=f"umount {inside[0]}")
    shutil.rmtree(where.root)


def remove_cgroups(where: SandboxDir) -> None:
    """Remove our folder in each cgroup hierarchy, innermost first; its processes just ended."""
    deadline = time.monotonic() + PATIENCE_S
    for top in (CGROUPS / where.cgroup_name, *CGROUPS.glob(f"*/{where.cgroup_name}")):
        while top.exists():
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):  # busy until the last process is forgotten
                    os.rmdir(folder)
            if time.monotonic() > deadline:
                raise BadInput(f"cgroup {top} cannot be removed", fix="see cgroup.procs below it")
            time.sleep(0.01)


def log_tails(where: SandboxDir, lines: int = 3) -> str:
    """The last lines of every log, for the message of a start that failed."""
    tails = []
    for log in sorted(where.log.glob("*.log")):
        last = log.read_text(errors="replace").splitlines()[-lines:]
        tails += [f"  {log.name}: {line}" for line in last]
    return "\n".join(tails)
