"""Up, down and status of a sandbox; runs on the machine, outside."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from slurmmiles import shell
from slurmmiles.errors import BadInput, SlurmRefused
from slurmmiles.sandbox import files, host
from slurmmiles.sandbox.enter import run_in, running
from slurmmiles.sandbox.init import unshare_argv
from slurmmiles.sandbox.layout import LOGIN_NAME, SandboxDir, Spec, node_address, read_record
from slurmmiles.sandbox.lock import locked

UP_PATIENCE_S = 60.0
DOWN_PATIENCE_S = 20.0
LAST_WORDS_S = 0.5  # for a failed init to finish its message


@dataclass(frozen=True, slots=True)
class Started:
    """A sandbox whose nodes are idle; `seconds` is None when it was up already."""

    where: SandboxDir
    spec: Spec
    seconds: float | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """What happened, and what to type next."""
        took = "up already" if self.seconds is None else f"idle in {self.seconds:.1f} s"
        shared = f"the nodes share from /tmp: {' '.join(self.spec.share)}"
        notes = [shared, *self.notes] if self.spec.share else self.notes
        return "\n".join(
            [
                f"sandbox: {self.spec.nodes} nodes {took}",
                *(f"  note: {note}" for note in notes),
                "  try:  slurmmiles sandbox exec sinfo",
                f"  or:   export PATH={self.where.bin}:$PATH",
            ]
        )


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node as sinfo(1) tells it."""

    name: str
    address: str
    state: str
    gres: str
    reason: str


def up(where: SandboxDir, wanted: Spec, *, cwd: Path, force: bool = False) -> Started:
    """Start a sandbox like `wanted`, or find it running; another size restarts it.

    What this Python and `cwd` need from /tmp is shared with the nodes as well. Raises MissingTool
    without root or packages, BadInput when jobs run in a sandbox that would be restarted (unless
    `force`), SlurmRefused when the nodes do not become idle; their logs then stay in the directory.
    """
    host.require()
    with locked(where.lock):
        if running(where) is not None:
            spec, _ = read_record(where)
            if set(wanted.share) <= set(spec.share) and replace(wanted, share=spec.share) == spec:
                return Started(where, spec)
            if not force:
                _refuse_to_end_jobs(where)
        _end(where)
        shared = {*wanted.share, *_needed_from_tmp(cwd)}
        return _start(where, replace(wanted, share=tuple(sorted(shared))))


def _refuse_to_end_jobs(where: SandboxDir) -> None:
    asked = ["squeue", "-h", "-t", "running,completing,suspended", "-o", "%i"]
    if jobs := run_in(where, LOGIN_NAME, asked).stdout.split():
        what = f"a sandbox of another size runs {len(jobs)} job(s): {' '.join(jobs)}"
        fix = "wait for them, cancel them, or end them with --force"
        raise BadInput(what, where=str(where.root), fix=fix)


def _needed_from_tmp(cwd: Path) -> set[str]:
    """Directories under /tmp without which no job would run: this Python, this package, `cwd`."""
    needed = {Path(sys.prefix), Path(sys.base_prefix), files.PACKAGE, cwd}
    return {str(path) for path in needed if Path("/tmp") in path.parents}


def _start(where: SandboxDir, spec: Spec) -> Started:
    begin = time.monotonic()
    machine = host.survey()
    files.write(where, spec, machine)
    # The mark tells whoever reads a process's environment to which sandbox it belongs.
    own = {"PYTHONPATH": str(files.PACKAGE), "SLURMMILES_SANDBOX": str(where.root)}
    login = unshare_argv(LOGIN_NAME, str(where.root))
    try:
        shell.start_daemon(login, where.log / "ctl.init.log", env=host.ENVIRONMENT | own)
        _wait_until_idle(where, spec)
    except BaseException:
        _kill(where)
        files.remove_cgroups(where)
        raise
    notes = (host.WITHOUT_CGROUPS,) if machine.cgroup == "none" else ()
    return Started(where, spec, time.monotonic() - begin, notes)


def _wait_until_idle(where: SandboxDir, spec: Spec) -> None:
    deadline = time.monotonic() + UP_PATIENCE_S
    states: list[str] = []
    while time.monotonic() < deadline:
        if any(log.stat().st_size for log in where.log.glob("*.init.log")):
            time.sleep(LAST_WORDS_S)
            break  # an init speaks only when it fails
        if where.ready.exists():
            states = [node.state for node in nodes(where)]
            if states == ["idle"] * spec.nodes:
                return
        time.sleep(0.05)
    missing = spec.nodes - states.count("idle")
    what = f"{missing} of {spec.nodes} nodes did not become idle\n{files.log_tails(where)}"
    raise SlurmRefused(what, where="sandbox up", fix=f"read the logs in {where.log}")


def down(where: SandboxDir) -> bool:
    """End the sandbox and remove every trace of it; whether there was one.

    Raises MissingTool without root, BadInput for a directory that is not a sandbox's.
    """
    host.require_root()
    with locked(where.lock):
        there = running(where) is not None or where.record.exists()
        _end(where)
    return there


def _end(where: SandboxDir) -> None:
    _kill(where)
    files.remove_cgroups(where)
    files.remove(where)


def _kill(where: SandboxDir) -> None:
    """Kill the PID 1 of the sandbox; the kernel ends everything in its PID namespace with it."""
    pid = running(where)
    if pid is None:
        return
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + DOWN_PATIENCE_S
    while running(where) is not None:
        if time.monotonic() > deadline:
            raise BadInput(f"process {pid} of {where.root} does not die", fix="look at dmesg")
        time.sleep(0.01)


def nodes(where: SandboxDir) -> tuple[NodeStatus, ...]:
    """Every node of a running sandbox; empty while slurmctld does not answer."""
    asked = ["sinfo", "-h", "-N", "-p", "main", "-o", "%N|%T|%G|%E"]
    answer = run_in(where, LOGIN_NAME, asked, timeout=20).stdout
    rows = [line.split("|", 3) for line in answer.splitlines() if line.count("|") >= 3]
    return tuple(NodeStatus(name, node_address(name), *rest) for name, *rest in rows)


def client_bin(root: Path) -> Path | None:
    """The folder with sbatch and the other clients of the sandbox in `root`.

    None when no sandbox is up there, or this user could not enter it. Starts no program.
    """
    with contextlib.suppress(BadInput):
        where = SandboxDir(root)
        if os.geteuid() == 0 and running(where) is not None and where.ready.exists():
            return where.bin
    return None
