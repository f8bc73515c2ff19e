from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurmmiles.errors import BadInput, RunFailed
from slurmmiles.planfile import RayPlan
from slurmmiles.ports import PortBlock
from slurmmiles.ray_cluster import (
    MAX_TEMP_DIR,
    NODE_LABEL,
    RayNode,
    head_argv,
    ray_env,
    temp_dir,
    worker_argv,
)

CPU = RayPlan(num_cpus=6, num_gpus=0, object_store_bytes=200_000_000, join_deadline_s=300)
GPU = RayPlan(num_cpus=None, num_gpus=8, object_store_bytes=None, join_deadline_s=300)
BLOCK = PortBlock(10_240)


def options(argv: list[str]) -> dict[str, str]:
    """`--name=value` words as a mapping; no option is given twice."""
    found = [word.partition("=")[::2] for word in argv if word.startswith("--")]
    assert len(dict(found)) == len(found)
    return dict(found)


def head(plan: RayPlan = GPU) -> dict[str, str]:
    return options(
        head_argv(plan, BLOCK, python="/py", node="node01", address="10.0.0.1", temp="/tmp/sm0-1")
    )


def worker(plan: RayPlan = GPU) -> dict[str, str]:
    return options(
        worker_argv(
            plan, BLOCK, python="/py", node="node02", address="10.0.0.2", gcs="10.0.0.1:10241"
        )
    )


def test_head_and_worker_block_in_the_foreground_of_the_step() -> None:
    for argv in (head(), worker()):
        assert "--block" in argv
        assert argv["--labels"] in (f"{NODE_LABEL}=node01", f"{NODE_LABEL}=node02")
    assert "--head" in head() and "--head" not in worker()


def test_a_worker_joins_where_the_head_listens() -> None:
    assert head()["--port"] == str(BLOCK.gcs) == worker()["--address"].partition(":")[2]
    assert head()["--dashboard-host"] == head()["--node-ip-address"] == "10.0.0.1"
    assert worker()["--node-ip-address"] == "10.0.0.2"


def test_every_port_is_in_the_block_and_used_once() -> None:
    ports = [int(v) for k, v in head().items() if k.endswith("port") and v.isdigit()]
    assert len(set(ports)) == len(ports) >= 10
    assert all(BLOCK.base < port < BLOCK.base + 400 for port in ports)
    assert BLOCK.control not in ports


def test_what_the_plan_leaves_to_ray_is_left_to_ray() -> None:
    assert not {"--num-cpus", "--object-store-memory"} & set(head(GPU))
    assert (head(GPU)["--num-gpus"], head(CPU)["--num-gpus"]) == ("8", "0")
    assert (worker(CPU)["--num-cpus"], worker(CPU)["--object-store-memory"]) == ("6", "200000000")


def test_rays_directory_is_the_runs_own_and_short_enough_for_a_socket() -> None:
    assert temp_dir("/tmp/", 1000, "12") == "/tmp/sm1000-12"
    longest = "/" + "x" * (MAX_TEMP_DIR - len("//sm0-1"))
    assert len(temp_dir(longest, 0, "1")) == MAX_TEMP_DIR
    with pytest.raises(BadInput, match=f"its sockets leave room for {MAX_TEMP_DIR}"):
        temp_dir(longest + "x", 0, "1")


def test_the_token_is_the_runs_own() -> None:
    assert ray_env(Path("/runs/r/ray.token")) == {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/runs/r/ray.token",
    }


def ended(node: RayNode, **options: float) -> RunFailed:
    """The error that names its end; fails after ten seconds without one."""
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        try:
            node.check("node02", **options)
        except RunFailed as error:
            return error
        time.sleep(0.01)
    raise AssertionError("it did not end")


def test_a_raylet_that_ended_is_reported_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "ray.log"
    node = RayNode(["bash", "-c", "echo one; echo; echo 'two '; exit 9"], log, os.environ)
    error = ended(node)
    assert error.what == "ray on node02 ended with exit code 9: two"
    assert error.where == str(log)
    node.stop()


def test_a_raylet_that_gave_up_is_started_again_until_the_deadline(tmp_path: Path) -> None:
    log = tmp_path / "ray.log"
    node = RayNode(["bash", "-c", "echo try; exit 1"], log, os.environ)
    assert "exit code 1: try" in ended(node, revive_until=time.monotonic() + 0.5).what
    assert log.read_text().count("try\n") >= 2
    node.stop()


def test_a_living_raylet_is_left_alone_until_it_is_stopped(tmp_path: Path) -> None:
    node = RayNode(["sleep", "60"], tmp_path / "ray.log", os.environ)
    node.check("node02")
    assert node.last_words() == "it printed nothing"
    node.stop()
    assert "exit code -15" in ended(node).what
    (tmp_path / "ray.log").unlink()
    assert node.last_words() == "no log"
