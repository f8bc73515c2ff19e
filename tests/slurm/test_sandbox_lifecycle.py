"""Up and down: idempotent, one at a time, beside other sandboxes, and nothing stays behind."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmmiles import shell
from slurmmiles.errors import BadInput, SlurmRefused
from slurmmiles.sandbox import lifecycle
from slurmmiles.sandbox.enter import run_in, running
from slurmmiles.sandbox.handle import Sandbox
from slurmmiles.sandbox.host import start_time
from slurmmiles.sandbox.layout import SandboxDir, Spec
from slurmmiles.sandbox.mounts import CGROUPS

pytestmark = pytest.mark.slurm

COMMAND = "from slurmmiles.commands.sandbox import sandbox; sandbox()"


@dataclass(frozen=True)
class Traces:
    """What a sandbox could leave on a machine."""

    mounts: frozenset[str]
    links: frozenset[str]
    cgroups: frozenset[Path]
    files: frozenset[Path]

    @classmethod
    def now(cls, where: SandboxDir) -> Traces:
        return cls(
            frozenset(Path("/proc/self/mountinfo").read_text().splitlines()),
            frozenset(os.listdir("/sys/class/net")),
            frozenset(p for p in CGROUPS.rglob(where.cgroup_name)),
            frozenset(p for p in (where.root, where.lock) if p.exists()),
        )


def processes_of(where: SandboxDir) -> dict[int, int]:
    """PID and start time of everything below the sandbox's PID 1."""
    top = running(where)
    assert top is not None
    below = [top, *(process.pid for process in shell.descendants(top))]
    return {pid: began for pid in below if (began := start_time(pid)) is not None}


@pytest.fixture
def where(sandbox_root: Path) -> Iterator[SandboxDir]:
    """A second directory: the session's sandbox goes on beside it."""
    there = SandboxDir(sandbox_root.with_name(f"{sandbox_root.name}b"))
    yield there
    lifecycle.down(there)


def up(where: SandboxDir, nodes: int, *, force: bool = False) -> lifecycle.Started:
    return lifecycle.up(where, Spec(nodes=nodes), cwd=Path("/"), force=force)


def command(where: SandboxDir, *arguments: str) -> shell.Completed:
    """The command line's sandbox group, in a process of its own."""
    package = str(Path(shell.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": package, "SLURMMILES_SANDBOX_DIR": str(where.root)}
    return shell.run([sys.executable, "-c", COMMAND, *arguments], env=env, timeout=120)


def until_running(where: SandboxDir) -> None:
    """Wait until every node has the steps of the job."""
    deadline = time.monotonic() + 30
    while run_in(where, "ctl", ["squeue", "-h", "-s", "-o", "%i"]).stdout.count("\n") < 2:
        assert time.monotonic() < deadline, "the job did not start"
        time.sleep(0.1)


def test_down_leaves_nothing(where: SandboxDir) -> None:
    before = Traces.now(where)
    up(where, 4)
    job = ["sbatch", "--nodes=4", "--wrap", "srun sleep 600", "--output=/dev/null"]
    assert run_in(where, "ctl", job).ok
    until_running(where)
    alive = processes_of(where)
    assert len(alive) > 4 * 3  # unshare, PID 1 and slurmd of each node
    assert lifecycle.down(where)
    assert {pid for pid, began in alive.items() if start_time(pid) == began} == set()
    after = Traces.now(where)
    assert after.mounts <= before.mounts
    assert after.links <= before.links
    assert (after.cgroups, after.files) == (frozenset(), frozenset())


def test_up_and_down_can_follow_each_other_at_once(where: SandboxDir) -> None:
    for _ in range(3):
        assert up(where, 2).seconds is not None
        assert lifecycle.down(where)
    assert not lifecycle.down(where)


def test_up_again_with_the_same_size_changes_nothing(where: SandboxDir) -> None:
    up(where, 2)
    alive = processes_of(where)
    assert up(where, 2).seconds is None
    assert alive.items() <= processes_of(where).items()


def test_another_size_restarts_it_unless_jobs_run(where: SandboxDir) -> None:
    up(where, 1)
    first = running(where)
    assert run_in(where, "ctl", ["salloc", "--no-shell"]).ok
    with pytest.raises(BadInput, match="runs 1 job"):
        up(where, 2)
    assert running(where) == first
    assert up(where, 2, force=True).spec.nodes == 2
    assert [node.state for node in lifecycle.nodes(where)] == ["idle", "idle"]


def test_two_sandboxes_do_not_meet(where: SandboxDir, sandbox: Sandbox) -> None:
    up(where, 1)
    assert sandbox.login("srun", "--nodes=3", "hostname").ok
    assert run_in(where, "ctl", ["srun", "hostname"]).stdout.strip() == "node01"
    lifecycle.down(where)
    assert [sandbox.state(name) for name in sandbox.names] == ["idle"] * 3


def test_only_one_of_two_commands_starts_it(where: SandboxDir) -> None:
    package = str(Path(shell.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": package, "SLURMMILES_SANDBOX_DIR": str(where.root)}
    logs = [Path(f"{where.root}.{i}.out") for i in range(2)]
    try:
        both = [shell.spawn([sys.executable, "-c", COMMAND, "up"], log, env=env) for log in logs]
        assert [one.wait(90) for one in both] == [0, 0]
        for one in both:
            one.stop()
        said = sorted(log.read_text().splitlines()[0] for log in logs)
    finally:
        for log in logs:
            log.unlink(missing_ok=True)
    assert said[0].startswith("sandbox: 2 nodes idle in ")
    assert said[1] == "sandbox: 2 nodes up already"


def test_the_command_line_from_up_to_down(where: SandboxDir) -> None:
    started = command(where, "up", "--nodes", "2", "--topology", "--gpus", "0")
    assert "sandbox: 2 nodes idle in" in started.stdout, started.stderr
    assert f"export PATH={where.bin}:$PATH" in started.stdout
    assert lifecycle.client_bin(where.root) == where.bin
    listed = json.loads(command(where, "status", "--json").stdout)
    assert [(node["name"], node["state"]) for node in listed["nodes"]] == [
        ("node01", "idle"),
        ("node02", "idle"),
    ]
    assert "leaf01" in command(where, "exec", "scontrol", "show", "topology").stdout
    assert command(where, "exec", "--node", "node02", "sh", "-c", "exit 5").returncode == 5
    assert command(where, "down").stdout == "sandbox: down\n"
    assert lifecycle.client_bin(where.root) is None


def test_a_sandbox_that_does_not_start_shows_its_logs_and_leaves_no_process(
    where: SandboxDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Spec(nodes=1, shm="-1")  # tmpfs(5) refuses it when the node mounts /dev/shm
    with pytest.raises(SlurmRefused, match="node01.init.log: .*Invalid argument"):
        lifecycle.up(where, broken, cwd=Path("/"))
    assert running(where) is None
    assert where.log.exists()
    assert not list(CGROUPS.rglob(where.cgroup_name))
