"""The network environment on real nodes: the right interface of two, and what workers see."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_sites import try_script
from slurm_user import User

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.sandbox.enter import node_pid
from slurmmiles.sandbox.handle import Sandbox

pytestmark = pytest.mark.slurm

SITE = "fabric: tcp\ngpus_per_node: 8\nexclusive: false\n"
SITES = sorted(Catalog((shipped("configs"),)).files("sites"))


def login(sandbox: Sandbox, *argv: str) -> str:
    done = sandbox.login(*argv)
    assert done.ok, done.stderr
    return done.stdout


@pytest.fixture
def second_network(sandbox: Sandbox) -> Iterator[Sandbox]:
    """A fabric of its own beside the nodes' first network, which keeps the default route."""
    names = sandbox.names
    login(sandbox, "ip", "link", "add", "brf", "type", "bridge")
    login(sandbox, "ip", "link", "set", "brf", "up")
    try:
        for i, node in enumerate(names, 1):
            pid = str(node_pid(sandbox.where, node))
            peer = ("peer", "name", "fab0", "netns", pid)
            login(sandbox, "ip", "link", "add", f"f-{node}", "type", "veth", *peer)
            login(sandbox, "ip", "link", "set", f"f-{node}", "master", "brf", "up")
            for line in (f"addr add 10.99.0.{i}/24 dev fab0", "link set fab0 up"):
                assert sandbox.exec(node, ["ip", *line.split()]).ok
            sandbox.exec(node, ["ip", "route", "replace", "default", "via", "10.77.0.1"])
        yield sandbox
    finally:
        for node in names:
            sandbox.exec(node, ["ip", "route", "del", "default"])
            sandbox.login("ip", "link", "del", f"f-{node}")
        sandbox.login("ip", "link", "del", "brf")


def carried(sandbox: Sandbox, prefix: str) -> int:
    """Bytes that the nodes have sent over links of this name."""
    total = 0
    for node in sandbox.names:
        link: list[dict[str, Any]] = json.loads(
            login(sandbox, "ip", "-json", "-s", "link", "show", f"{prefix}-{node}")
        )
        total += int(link[0]["stats64"]["rx"]["bytes"])
    return total


def test_the_traffic_of_a_run_takes_the_sites_interface_and_not_the_default_route(
    second_network: Sandbox, user: User
) -> None:
    route = second_network.exec("node02", ["ip", "-4", "route", "show", "default"]).stdout
    assert "dev eth0" in route
    site = user.runs / "two.yaml"
    site.write_text(SITE + "interface: fab0\n")
    before = {prefix: carried(second_network, prefix) for prefix in ("v", "f")}
    code, result = user.submit("gate-check", "--nodes", "3", "--site", str(site))
    assert code == 0, result
    sent = {prefix: carried(second_network, prefix) - before[prefix] for prefix in ("v", "f")}
    assert sent["f"] > 50_000_000 and sent["v"] < sent["f"] / 20, sent
    latest = Path(result["run_dir"], "latest")
    for node in second_network.names:
        env = json.loads((latest / "nodes" / f"{node}.env.json").read_text())
        assert env["GLOO_SOCKET_IFNAME"]["value"] == "fab0"
        assert env["NCCL_SOCKET_IFNAME"]["value"] == "=fab0"
        assert env["SGLANG_HOST_IP"]["value"].startswith("10.99.0.")
        assert env["MASTER_ADDR"]["value"] == "10.99.0.1"
        assert env["NCCL_NET"]["origin"] == "fabric tcp"


def report(result: dict[str, Any]) -> list[dict[str, Any]]:
    text = Path(result["run_dir"], "latest/preflight/report.json").read_text()
    return list(json.loads(text)["findings"])


def test_a_variable_that_only_the_head_has_is_found_missing_on_the_workers(user: User) -> None:
    python = user.runs / "python"
    python.write_text(
        "#!/bin/bash\n[[ $SLURMD_NODENAME == node01 ]] && export NCCL_ALGO=Ring\n"
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    site = user.runs / "head.yaml"
    site.write_text(SITE + f"python: {python}\n")
    options = ("--nodes", "2", "--set", "slurm.extra.nodelist=node[01-02]")
    code, result = user.submit("gate-check", *options, "--site", str(site))
    assert code == 3, result
    (finding,) = [f for f in report(result) if f["code"] == "env_missing_on_worker"]
    assert finding["subject"] == "node02" and finding["evidence"]["missing"] == "NCCL_ALGO"


def test_what_was_resolved_is_what_rays_workers_see(user: User) -> None:
    code, result = user.submit("gate-check", "--nodes", "2")
    assert code == 0, result
    seen = {f["subject"] for f in report(result) if f["code"] == "env_read_back_info"}
    assert len(seen) == 2


def test_nodes_without_a_fabric_are_refused_unless_tcp_was_asked_for(user: User) -> None:
    code, result = user.submit("gate-check", "--nodes", "2", "--site", "generic")
    assert code == 3, result
    assert "has no InfiniBand, RoCE, Slingshot or EFA port" in result["reason"]


@pytest.mark.parametrize("site", SITES)
def test_slurm_accepts_the_script_of_every_site(user: User, site: str) -> None:
    """As far as the sandbox can have what the site has: its partition, no feature, 32 CPUs."""
    assert try_script(user, site) == ""
