"""A node has its own name, processes, address and /tmp; jobs run as on a cluster."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from slurmmiles import shell
from slurmmiles.errors import BadInput
from slurmmiles.sandbox.handle import Sandbox
from slurmmiles.sandbox.layout import read_record

pytestmark = pytest.mark.slurm

SUBMITIT = """
import os, socket, sys, submitit
executor = submitit.SlurmExecutor(folder=sys.argv[1])
executor.update_parameters(nodes=2, ntasks_per_node=1, time=5, job_name="two")
job = executor.submit(lambda: (socket.gethostname(), os.environ["PATH"]))
for name, path in job.results():
    print(name, path)
"""


def test_every_node_is_idle_and_named(sandbox: Sandbox) -> None:
    assert [sandbox.state(name) for name in sandbox.names] == ["idle"] * 3
    said = sandbox.login("srun", "--nodes", "3", "hostname").stdout.split()
    assert sorted(said) == ["node01", "node02", "node03"]


def test_a_node_sees_its_own_network_only(sandbox: Sandbox) -> None:
    devices = sandbox.exec("node02", ["ls", "/sys/class/net"]).stdout.split()
    assert devices == ["eth0", "lo"]
    address = sandbox.exec("node02", ["hostname", "-I"]).stdout.split()
    assert address == ["10.77.0.102"]
    assert sandbox.exec("node01", ["getent", "hosts", "node02"]).stdout.split()[0] == "10.77.0.102"


def test_a_node_sees_its_own_processes_only(sandbox: Sandbox) -> None:
    ids = sandbox.exec("node01", ["sh", "-c", "cat /proc/[0-9]*/comm"]).stdout.split()
    assert ids.count("slurmd") == 1
    assert "slurmctld" not in ids


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_temporary_files_stay_on_their_node(sandbox: Sandbox, folder: str) -> None:
    mark = f"{folder}/mark-of-one-node"
    assert sandbox.exec("node01", ["touch", mark]).ok
    try:
        assert not sandbox.exec("node02", ["test", "-e", mark]).ok
        assert not sandbox.login("test", "-e", mark).ok
        assert not Path(mark).exists()
    finally:
        sandbox.exec("node01", ["rm", mark])


def test_everything_else_is_shared(sandbox: Sandbox, tmp_path: Path) -> None:
    code = Path(__file__)
    (tmp_path / "seen").write_text("by all")
    for name in sandbox.names:
        assert sandbox.exec(name, ["cat", str(tmp_path / "seen")]).stdout == "by all"
        assert sandbox.exec(name, ["test", "-e", str(code)]).ok


def test_a_job_gets_the_gpus_it_asks_for(sandbox: Sandbox) -> None:
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    assert sandbox.login("srun", "--gres=gpu:8", *show).stdout.strip() == "0,1,2,3,4,5,6,7"
    assert sandbox.login("srun", "--gres=gpu:2", *show).stdout.strip() == "0,1"


def test_sbatch_from_the_machine_ends_with_the_jobs_exit_code(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/bash\necho "$SLURM_NNODES $PATH"\nexit 7\n')
    output = tmp_path / "out.txt"
    argv = ["sbatch", "--wait", "--nodes=2", f"--output={output}", str(script)]
    ended = shell.run(argv, env=sandbox.env, cwd=tmp_path, timeout=60)
    assert ended.returncode == 7, ended.stderr
    nodes, path = output.read_text().split(maxsplit=1)
    assert nodes == "2"
    assert str(sandbox.bin) not in path
    job = ended.stdout.split()[-1]
    asked = ["sacct", "-j", job, "-o", "JobID,State,ExitCode,NodeList", "--parsable2"]
    rows = shell.run(asked, env=sandbox.env).stdout.splitlines()
    assert rows == ["JobID|State|ExitCode|NodeList", f"{job}|FAILED|7:0|node[01-02]"]


def test_sacct_answers_on_a_node_too(sandbox: Sandbox) -> None:
    assert sandbox.exec("node03", ["sacct", "-n"]).ok


def test_submitit_runs_a_function_on_two_nodes(sandbox: Sandbox, tmp_path: Path) -> None:
    script = tmp_path / "submit.py"
    script.write_text(SUBMITIT)
    ended = shell.run([sys.executable, str(script), str(tmp_path / "log")], env=sandbox.env)
    assert ended.ok, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [name for name, _ in lines] == ["node01", "node02"]
    assert all(str(sandbox.bin) not in path for _, path in lines)


def test_a_daemon_left_behind_dies_with_its_job(sandbox: Sandbox, tmp_path: Path) -> None:
    _, machine = read_record(sandbox.where)
    if machine.cgroup == "none":
        pytest.skip("no cgroups here that Slurm could track jobs by")
    left = tmp_path / "left.txt"
    leave = f"setsid sh -c 'echo $$ >{left}; exec sleep 600' </dev/null >/dev/null 2>&1 & sleep 1"
    assert sandbox.login("srun", "-w", "node03", "bash", "-c", leave).ok
    daemon = ["test", "-e", f"/proc/{left.read_text().strip()}"]
    deadline = time.monotonic() + 20
    while sandbox.exec("node03", daemon).ok:
        assert time.monotonic() < deadline, "the daemon outlived its job"
        time.sleep(0.1)


def test_exec_passes_the_working_directory_the_user_and_the_exit_code(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    assert sandbox.exec("node01", ["pwd"], cwd=tmp_path).stdout.strip() == str(tmp_path)
    assert sandbox.exec("node01", ["pwd"], cwd=Path("/tmp")).stdout.strip() == "/"
    assert sandbox.exec("node02", ["id", "-un"], user="nobody").stdout.strip() == "nobody"
    assert sandbox.exec("node02", ["sh", "-c", "exit 9"]).returncode == 9


def test_an_ordinary_user_runs_jobs(sandbox: Sandbox) -> None:
    ended = sandbox.exec("ctl", ["srun", "--nodes=2", "id", "-un"], user="nobody")
    assert ended.stdout.split() == ["nobody", "nobody"], ended.stderr


@pytest.mark.parametrize(
    ("node", "user"), [("node04", None), ("login", None), ("node01", "nosuch")]
)
def test_an_unknown_node_or_user_is_bad_input(
    sandbox: Sandbox, node: str, user: str | None
) -> None:
    with pytest.raises(BadInput, match="no (node|user)"):
        sandbox.exec(node, ["true"], user=user)


def test_without_root_it_says_that_root_is_needed(sandbox: Sandbox) -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no system Python that another user may run")
    ask = (
        "from slurmmiles.sandbox import host\ntry: host.require()\nexcept Exception as e: print(e)"
    )
    package = str(Path(shell.__file__).parents[1])
    reach = ["setpriv", "--reuid=65534", "--clear-groups", "test", "-r", shell.__file__]
    if not shell.run(reach).ok:
        pytest.skip(f"another user may not read {package}")
    as_nobody = ["setpriv", "--reuid=65534", "--clear-groups", python, "-c", ask]
    said = shell.run(as_nobody, env={"PYTHONPATH": package, "PATH": os.defpath})
    assert "needs root" in said.stdout, said.stderr
    assert "apt-get install -y --no-install-recommends slurm-wlm munge" in said.stdout
