"""The only door to other programs: run one to its end, or start one and later stop it with all that
it started.

Nothing here ever signals a process by name or pattern: only descendants of a process that this door
started.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from slurmmiles.errors import MissingTool

if TYPE_CHECKING:
    import psutil  # imported where it is used: the sandbox's inits live in this module without it

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
PR_SET_PDEATHSIG = 1  # linux/prctl.h
TIMED_OUT = 124  # the code that coreutils' timeout(1) gives


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that ended: its argv, exit status (124 if it was stopped at the timeout), and what
    it printed.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.returncode == 0


def which(program: str, *, fix: str = "install it or put it on PATH") -> str:
    """The path of `program`; raises MissingTool, with `fix`, when it is not on PATH."""
    found = shutil.which(program)
    if found is None:
        raise MissingTool(f"the program {program!r} was not found on PATH", fix=fix)
    return found


def run(
    argv: Sequence[str],
    *,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
) -> Completed:
    """Run argv to its end, at most `timeout` seconds; raises MissingTool when the program does not
    exist.

    A daemon that it leaves behind may keep our files open; nobody waits for that one's end.
    """
    which(argv[0])
    with _memory_file() as given, _memory_file() as out, _memory_file() as err:
        given.write(stdin.encode(errors="surrogateescape"))
        given.seek(0)
        child = subprocess.Popen(
            list(argv),
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=given,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code, note = child.wait(timeout), ""
        except subprocess.TimeoutExpired:
            stop_tree(child.pid, grace=0.5)
            code, note = TIMED_OUT, f"\nstopped after {timeout:g} s"
            child.wait()
        except BaseException:
            stop_tree(child.pid, grace=0.5)
            raise
        return Completed(tuple(argv), code, _text(out), _text(err) + note)


def _memory_file() -> IO[bytes]:
    """A file without a name (memfd_create(2)): it needs no free disk, and no pipe to be drained."""
    handle = os.memfd_create("slurmmiles")
    fcntl.fcntl(handle, fcntl.F_SETFL, os.O_APPEND)
    return os.fdopen(handle, "r+b", buffering=0)


def _text(file: IO[bytes]) -> str:
    """All of it, read without the offset that we share with whoever still writes."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


class Process:
    """A program that runs beside us, writing to a log file, in a session of its own."""

    def __init__(self, child: subprocess.Popen[bytes], log: IO[bytes] | None) -> None:
        self._child, self._log = child, log
        self.pid = child.pid

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._child.poll()

    def wait(self, timeout: float) -> int | None:
        """The exit status, or None if it still runs after `timeout` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(timeout)
        return None

    def signal(self, number: int) -> None:
        """Send one signal to the program itself; a program that has ended is left alone."""
        if self.poll() is None:
            self._child.send_signal(number)

    def stop(self, grace: float = 5.0) -> int | None:
        """End it and every descendant: SIGTERM, `grace` seconds, SIGKILL; its exit status."""
        stop_tree(self.pid, grace=grace)
        status = self.wait(5.0)
        if self._log is not None:
            self._log.close()
        return status


def spawn(
    argv: Sequence[str],
    log: Path | None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    die_with_parent: bool = False,
) -> Process:
    """Start argv in a session of its own, output appended to `log` (None: discarded).

    With `die_with_parent` the kernel kills it when the thread that started it ends, whatever ended
    that
    (prctl(2), PR_SET_PDEATHSIG). Raises MissingTool when the program does not exist.
    """
    which(argv[0])
    out = None if log is None else log.open("ab")
    child = subprocess.Popen(
        list(argv),
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=out or subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent if die_with_parent else None,
    )
    return Process(child, out)


def start_daemon(argv: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None) -> None:
    """Start argv as nobody's child, in a session of its own, output appended to `log`; returns at
    once.

    setsid(1) forks and leaves, so the caller has nothing to reap. Raises MissingTool without the
    program.
    """
    which(argv[0])
    with log.open("ab") as out:
        subprocess.run(
            [which("setsid"), "--fork", *argv],
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=True,
        )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Adopt orphaned descendants (prctl(2)), so that a daemon which left its parent is still in our
    tree.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[psutil.Process]:
    """Every living process below `pid`, without `pid` itself; empty when it is gone."""
    import psutil

    try:
        return [p for p in psutil.Process(pid).children(recursive=True) if _lives(p)]
    except psutil.NoSuchProcess:
        return []


def _lives(process: psutil.Process) -> bool:
    """Asked without reaping it: its parent has yet to learn how it ended."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stop_tree(pid: int, *, grace: float, itself: bool = True) -> None:
    """SIGTERM to `pid` (unless not `itself`) and its descendants, SIGKILL to what is left after
    `grace` seconds.
    """
    import psutil

    targets = descendants(pid)
    if itself:
        with contextlib.suppress(psutil.NoSuchProcess):
            targets.append(psutil.Process(pid))
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        for process in targets:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        deadline = time.monotonic() + patience
        while (targets := [p for p in targets if _lives(p)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        late = [p for p in descendants(pid) if p not in targets]
        targets += late  # started between the snapshot and the signal


def replace_process(argv: Sequence[str]) -> None:
    """Become argv (exec); does not return. Raises MissingTool when the program does not exist."""
    os.execvp(which(argv[0]), list(argv))
