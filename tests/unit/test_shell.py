from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from slurmmiles import shell
from slurmmiles.errors import MissingTool

PACKAGE_ROOT = str(Path(shell.__file__).resolve().parents[1])


def until(condition: Callable[[], object]) -> None:
    """Wait for what another process does; fails after twenty seconds without it."""
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Ended, or a zombie that only waits for its parent."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pid_in(path: Path) -> int:
    """The pid that a script has written to `path`."""
    until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


@pytest.fixture
def stranger() -> Iterator[shell.Process]:
    """A process that no tree of the test holds."""
    process = shell.spawn(["sleep", "300"], None)
    yield process
    process.stop(grace=0.1)


def test_a_program_that_ends_gives_its_status_and_both_outputs() -> None:
    done = shell.run(["bash", "-c", "cat; echo err >&2; exit 7"], stdin="in\n")
    assert (done.returncode, done.stdout, done.stderr, done.ok) == (7, "in\n", "err\n", False)
    assert shell.run(["true"]).ok


def test_no_shell_reads_the_words() -> None:
    words = ["$(id)", "a b", "*", ";", "'", '"', "\n", ""]
    assert shell.run(["printf", "%s|", *words]).stdout == "".join(f"{w}|" for w in words)


def test_bytes_that_are_not_text_are_no_error() -> None:
    assert shell.run(["printf", "\\xff"]).stdout == "\ufffd"


def test_environment_and_directory_are_those_that_are_given(tmp_path: Path) -> None:
    env = {"A": "b", "PATH": os.environ["PATH"]}
    done = shell.run(["bash", "-c", "echo $A $PWD $HOME"], env=env, cwd=tmp_path)
    assert done.stdout == f"b {tmp_path}\n"


def test_a_program_that_is_not_there_is_named() -> None:
    for start in (shell.run, lambda argv: shell.spawn(argv, None), shell.replace_process):
        with pytest.raises(MissingTool, match="'no-such-program' was not found on PATH"):
            start(["no-such-program"])


def test_the_timeout_ends_the_whole_tree(tmp_path: Path, stranger: shell.Process) -> None:
    script = f"trap '' TERM; (sleep 300 & echo $! > {tmp_path}/pid; wait) & echo out; sleep 300"
    done = shell.run(["bash", "-c", script], timeout=1.0)
    assert done.returncode == shell.TIMED_OUT
    assert done.stdout == "out\n" and "stopped after 1 s" in done.stderr
    assert gone(pid_in(tmp_path / "pid"))
    assert stranger.poll() is None


@pytest.mark.parametrize("end", ["exit 4", "sleep 300"])
def test_nobody_waits_for_a_daemon_that_holds_our_files(tmp_path: Path, end: str) -> None:
    script = f"(setsid sleep 300 & echo $! > {tmp_path}/pid); echo out; {end}"
    done = shell.run(["bash", "-c", script], timeout=2.0 if "sleep" in end else 120.0)
    daemon = pid_in(tmp_path / "pid")
    assert not gone(daemon)
    os.kill(daemon, signal.SIGKILL)
    assert (done.returncode, done.stdout) == (4 if "exit" in end else shell.TIMED_OUT, "out\n")


def test_a_lot_of_output_is_kept_in_order() -> None:
    done = shell.run(["bash", "-c", "for i in {1..20000}; do echo $i; echo e$i >&2; done"])
    assert done.stdout.split() == [str(i) for i in range(1, 20_001)]
    assert done.stderr.split() == [f"e{i}" for i in range(1, 20_001)]


def test_stopping_ends_a_tree_that_ignores_the_first_signal(
    tmp_path: Path, stranger: shell.Process
) -> None:
    script = f"trap '' TERM; sleep 300 & echo $! > {tmp_path}/pid; wait; sleep 300"
    process = shell.spawn(["bash", "-c", script], tmp_path / "log")
    child = pid_in(tmp_path / "pid")
    assert child in [p.pid for p in shell.descendants(process.pid)]
    assert process.stop(grace=0.3) == -signal.SIGKILL
    assert gone(child)
    assert stranger.poll() is None


def test_a_tree_may_be_stopped_below_its_root() -> None:
    code = "sleep 300 & sleep 300 & wait; echo still here; exit 5"
    process = shell.spawn(["bash", "-c", code], None)
    until(lambda: len(shell.descendants(process.pid)) == 2)
    shell.stop_tree(process.pid, grace=2.0, itself=False)
    assert process.wait(10.0) == 5


def test_stopping_what_has_ended_is_nothing() -> None:
    process = shell.spawn(["true"], None)
    assert process.wait(10.0) == 0
    process.signal(signal.SIGTERM)
    assert process.stop() == 0
    shell.stop_tree(process.pid, grace=0.1)
    assert shell.descendants(process.pid) == []


def test_a_spawned_program_logs_and_reads_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    process = shell.spawn(["bash", "-c", "cat; echo out; echo err >&2"], log)
    assert process.wait(10.0) == 0
    process.stop()
    assert log.read_text() == "before\nout\nerr\n"
    assert process.poll() == 0


def test_one_signal_reaches_the_program_itself(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = shell.spawn(
        ["bash", "-c", "trap 'echo got; exit 4' USR1; echo up; while :; do sleep 0.05; done"], log
    )
    until(lambda: log.read_text() == "up\n")
    assert process.wait(0.0) is None
    process.signal(signal.SIGUSR1)
    assert process.wait(10.0) == 4
    process.stop()
    assert log.read_text() == "up\ngot\n"


def python(code: str, *argv: str) -> list[str]:
    """Another Python that runs `code` with our package."""
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {PACKAGE_ROOT!r}); {code}",
        *argv,
    ]


def test_a_child_that_must_not_outlive_its_parent_does_not(tmp_path: Path) -> None:
    for keep in (True, False):
        path = tmp_path / f"pid-{keep}"
        code = (
            "from slurmmiles import shell; from pathlib import Path; import time;"
            f"p = shell.spawn(['sleep', '60'], None, die_with_parent={keep});"
            f"Path({str(path)!r}).write_text(str(p.pid)); time.sleep(60)"
        )
        parent = shell.spawn(python(code), None)
        child = pid_in(path)
        parent.signal(signal.SIGKILL)
        assert parent.wait(10.0) == -signal.SIGKILL
        if keep:
            until(lambda pid=child: gone(pid))
        else:
            assert not gone(child)
            os.kill(child, signal.SIGKILL)


def test_a_daemon_that_left_is_still_in_the_tree_of_a_subreaper(tmp_path: Path) -> None:
    code = (
        "from slurmmiles import shell; import os, time;"
        "shell.become_subreaper();"
        f"shell.run(['setsid', '--fork', 'bash', '-c', 'echo $$ > {tmp_path}/pid; sleep 60']);"
        f"[time.sleep(0.02) for _ in range(500) if not os.path.exists('{tmp_path}/pid')];"
        "time.sleep(0.2);"
        "below = [p.pid for p in shell.descendants(os.getpid())];"
        f"print(int(open('{tmp_path}/pid').read()) in below);"
        "shell.stop_tree(os.getpid(), grace=1.0, itself=False);"
        "print(len(shell.descendants(os.getpid())))"
    )
    done = shell.run(python(code), timeout=60.0)
    assert done.stdout.split() == ["True", "0"], done.stderr
    assert gone(pid_in(tmp_path / "pid"))


def test_a_daemon_is_nobodys_child(tmp_path: Path) -> None:
    log = tmp_path / "log"
    shell.start_daemon(["bash", "-c", "echo $$; exec sleep 60"], log)
    pid = pid_in(log)
    try:
        assert pid not in [p.pid for p in shell.descendants(os.getpid())]
        assert os.getsid(pid) != os.getsid(0)
    finally:
        os.kill(pid, signal.SIGKILL)
