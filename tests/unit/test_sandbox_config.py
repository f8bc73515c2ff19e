"""The sandbox's pure parts: its sizes and paths, and the text of Slurm's files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmmiles import shell
from slurmmiles.errors import BadInput
from slurmmiles.sandbox import config, files, host, layout, lifecycle
from slurmmiles.sandbox.enter import running, without_clients
from slurmmiles.sandbox.layout import Machine, SandboxDir, Spec

WHERE = SandboxDir(Path("/var/lib/box"))
V1 = Machine("v1", (22, 5), 1234)

# /proc/self/mountinfo of a Debian 12 with cgroup v1 and an unused v2 hierarchy (Linux 6.18)
MOUNTS_V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
# a systemd machine: proc_pid_mountinfo(5)'s optional field, one cgroup2
MOUNTS_V2 = """\
28 23 0:25 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate
"""


@pytest.fixture
def where() -> Iterator[SandboxDir]:
    """A directory of its own with a path short enough for sockets, which tmp_path seldom has."""
    with tempfile.TemporaryDirectory(prefix="sb", dir="/tmp") as root:
        yield SandboxDir(Path(root))


@pytest.mark.parametrize(
    "size", [{"nodes": 0}, {"nodes": -1}, {"nodes": 17}, {"gpus": 17}, {"cpus": 0}]
)
def test_a_size_that_cannot_be_simulated_is_refused(size: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="give a number from"):
        Spec(**size)


def test_a_directory_too_long_for_slurms_sockets_is_refused() -> None:
    longest = "/" + "d" * (layout.UNIX_PATH_MAX - len(layout.LONGEST_SOCKET) - 1)
    assert SandboxDir(Path(longest))
    with pytest.raises(BadInput, match="at most 59 bytes"):
        SandboxDir(Path(longest + "d"))


def test_a_directory_that_slurm_conf_would_need_to_quote_is_refused() -> None:
    with pytest.raises(BadInput, match="use letters"):
        SandboxDir(Path("/var/lib/my box"))


def test_two_directories_have_two_cgroups() -> None:
    assert WHERE.cgroup_name != SandboxDir(Path("/var/lib/box2")).cgroup_name


def test_slurm_conf_names_every_node_with_its_address_and_gpus() -> None:
    lines = config.slurm_conf(WHERE, Spec(nodes=3, cpus=16, gpus=4), V1).splitlines()
    node = next(line for line in lines if line.startswith("NodeName"))
    assert node == (
        "NodeName=node[01-03] NodeAddr=10.77.0.[101-103] Sockets=2 CoresPerSocket=8"
        " ThreadsPerCore=1 RealMemory=65536 Gres=gpu:4 State=UNKNOWN"
    )
    assert "SlurmctldHost=ctl(10.77.0.1)" in lines
    assert "FirstJobId=1234" in lines


def test_slurm_conf_gives_no_key_twice() -> None:
    text = config.slurm_conf(WHERE, Spec(topology=True), V1)
    keys = [line.partition("=")[0] for line in text.splitlines()]
    assert sorted({key for key in keys if keys.count(key) > 1}) == ["PartitionName"]


def test_a_sandbox_without_gpus_speaks_of_none() -> None:
    spec = Spec(gpus=0)
    assert "gpu" not in config.slurm_conf(WHERE, spec, V1)
    assert config.gres_conf(WHERE, spec) == ""


@pytest.mark.parametrize(
    ("cgroup", "tracker"), [("v1", "cgroup"), ("v2", "cgroup"), ("none", "linuxproc")]
)
def test_jobs_are_tracked_by_cgroups_where_there_are_any(cgroup: str, tracker: str) -> None:
    text = config.slurm_conf(WHERE, Spec(), Machine(cgroup, (22, 5), 1))
    assert f"ProctrackType=proctrack/{tracker}\n" in text


def test_the_preemption_signal_is_asked_for_in_each_versions_words() -> None:
    old = config.slurm_conf(WHERE, Spec(), Machine("v1", (22, 5), 1))
    new = config.slurm_conf(WHERE, Spec(), Machine("v1", (23, 11), 1))
    assert "SlurmctldParameters=preempt_send_user_signal\n" in old
    assert "PreemptParameters=send_user_signal\n" in new


def test_a_leaf_switch_has_four_nodes() -> None:
    assert config.topology_conf(Spec(nodes=6)).splitlines() == [
        "SwitchName=leaf01 Nodes=node[01-04]",
        "SwitchName=leaf02 Nodes=node[05-06]",
        "SwitchName=spine Switches=leaf[01-02]",
    ]


def test_hosts_has_every_node_once() -> None:
    names = [line.split()[1] for line in config.hosts(Spec(nodes=16)).splitlines()]
    assert names == ["localhost", "ctl", *(f"node{i:02d}" for i in range(1, 17))]


@pytest.mark.parametrize(
    "text", [config.client(WHERE, Path("/usr/bin/sbatch")), config.sacct(WHERE, "/p", Path("/q"))]
)
def test_wrappers_are_bash(text: str, tmp_path: Path) -> None:
    script = tmp_path / "wrapper"
    script.write_text(text)
    assert shell.run(["bash", "-n", str(script)], timeout=10).ok


def test_a_wrapper_without_its_sandbox_says_how_to_start_one(where: SandboxDir) -> None:
    script = where.root / "sbatch"
    script.write_text(config.client(where, Path("/usr/bin/sbatch")))
    ended = shell.run(["bash", str(script)], timeout=10)
    assert ended.returncode == 1
    assert ended.stderr.strip() == (
        f"sbatch: no sandbox is up in {where.root}; start it: slurmmiles sandbox up"
    )


def test_cgroups_are_recognised_by_what_is_mounted() -> None:
    assert host.cgroup_kind(MOUNTS_V1, (22, 5)) == "v1"
    assert host.cgroup_kind(MOUNTS_V2, (22, 5)) == "v2"
    assert host.cgroup_kind(MOUNTS_V2, (21, 8)) == "none"
    assert host.cgroup_kind("", (22, 5)) == "none"


def test_v2_beside_v1_hierarchies_is_not_used() -> None:
    memory = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    assert host.cgroup_kind(MOUNTS_V2 + memory, (22, 5)) == "none"


@pytest.mark.parametrize(
    ("kind", "slurm", "starts"),
    [
        ("v1", (22, 5), True),
        ("v2", (23, 11), True),
        ("none", (21, 8), True),
        ("none", (22, 5), False),
        ("none", (23, 11), False),
        ("none", (24, 11), True),
    ],
)
def test_a_slurm_that_needs_cgroups_is_not_started_without(
    kind: str, slurm: tuple[int, int], starts: bool
) -> None:
    if starts:
        host.require_cgroups(kind, slurm)
    else:
        with pytest.raises(BadInput, match=r"Slurm 2\d\.\d\d needs cgroups"):
            host.require_cgroups(kind, slurm)


def test_the_record_gives_back_what_was_written(where: SandboxDir) -> None:
    spec = Spec(nodes=5, topology=True, share=("/tmp/a", "/tmp/b"))
    layout.write_record(where, spec, V1)
    assert layout.read_record(where) == (spec, V1)


def test_a_directory_of_other_files_is_never_removed(where: SandboxDir) -> None:
    thesis = where.root / "thesis.tex"
    thesis.write_text("x")
    with pytest.raises(BadInput, match="is not a sandbox's"):
        files.remove(where)
    assert thesis.exists()


def test_no_client_folder_without_a_live_sandbox(tmp_path: Path) -> None:
    assert lifecycle.client_bin(Path("/nonexistent")) is None
    assert lifecycle.client_bin(tmp_path / ("d" * 200)) is None


def test_a_recycled_pid_is_not_taken_for_the_sandbox(where: SandboxDir) -> None:
    started = host.start_time(os.getpid())
    assert started is not None
    where.login_pid.write_text(f"{os.getpid()} {started}")
    assert running(where) == os.getpid()
    where.login_pid.write_text(f"{os.getpid()} {started + 1}")
    assert running(where) is None


def test_a_process_that_ended_has_no_start_time() -> None:
    ended = shell.spawn(["true"], None)
    assert ended.wait(10) == 0
    assert host.start_time(ended.pid) is None


def test_path_loses_only_the_client_folder() -> None:
    path = f"{WHERE.bin}:/usr/bin:{WHERE.bin}:/bin"
    assert without_clients(WHERE, path) == "/usr/bin:/bin"
