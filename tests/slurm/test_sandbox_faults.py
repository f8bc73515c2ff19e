"""Each fault happens for real, and each can be mended."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Thread

import pytest

from slurmmiles.errors import BadInput, RunFailed
from slurmmiles.sandbox import faults
from slurmmiles.sandbox.handle import Sandbox
from slurmmiles.shell import Completed

pytestmark = pytest.mark.slurm

CONNECT = """
import socket, sys
socket.create_connection((sys.argv[1], 6818), timeout=2)
"""  # 6818: SlurmdPort, slurm.conf(5)
RECEIVE = """
import socket, time
peer, _ = socket.create_server(("0.0.0.0", 7701)).accept()
begin, received = time.monotonic(), 0
while block := peer.recv(1 << 16):
    received += len(block)
print(received * 8 / 1e6 / (time.monotonic() - begin))
"""
SEND = """
import socket, time
for _ in range(200):
    try:
        peer = socket.create_connection(("node02", 7701), timeout=5)
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    peer.sendall(bytes(1 << 14))
"""


def python(sandbox: Sandbox, node: str, code: str, *arguments: str) -> Completed:
    return sandbox.exec(node, [sys.executable, "-c", code, *arguments])


def mbit_to_node02(sandbox: Sandbox) -> float:
    """What a TCP stream from node01 to node02 carries, in megabits per second."""
    sender = Thread(target=python, args=(sandbox, "node01", SEND))
    sender.start()
    received = python(sandbox, "node02", RECEIVE)
    sender.join()
    return float(received.stdout)


def test_a_killed_slurmd_can_be_started_again(sandbox: Sandbox) -> None:
    sandbox.fault("node02", "kill-slurmd")
    assert "slurmd" not in sandbox.exec("node02", ["sh", "-c", "cat /proc/[0-9]*/comm"]).stdout
    sandbox.fault("node02", "start-slurmd")
    assert sandbox.wait_state("node02", "idle") == "idle"
    assert sandbox.login("srun", "-w", "node02", "hostname").stdout.strip() == "node02"


def test_a_node_without_power_goes_down_and_comes_back(sandbox: Sandbox) -> None:
    sandbox.fault("node03", "poweroff")
    with pytest.raises(BadInput, match="node03 is off"):
        sandbox.exec("node03", ["true"])
    assert sandbox.wait_state("node03", "down", "down*") in ("down", "down*")
    sandbox.fault("node03", "poweron")
    assert sandbox.wait_state("node03", "idle") == "idle"
    assert sandbox.login("srun", "-w", "node03", "hostname").stdout.strip() == "node03"


def test_a_node_can_be_power_cycled_at_once(sandbox: Sandbox) -> None:
    for _ in range(3):
        sandbox.fault("node01", "poweroff")
        sandbox.fault("node01", "poweron")
    assert sandbox.wait_state("node01", "idle") == "idle"
    assert sandbox.login("srun", "-w", "node01", "hostname").stdout.strip() == "node01"


def test_power_on_of_a_node_that_is_on_is_bad_input(sandbox: Sandbox) -> None:
    with pytest.raises(BadInput, match="node01 is on"):
        sandbox.fault("node01", "poweron")


def test_a_cut_link_carries_nothing(sandbox: Sandbox) -> None:
    assert python(sandbox, "node01", CONNECT, "node02").ok
    sandbox.fault("node02", "link-down")
    try:
        assert not python(sandbox, "node01", CONNECT, "node02").ok
        assert python(sandbox, "node01", CONNECT, "node03").ok
    finally:
        sandbox.fault("node02", "link-up")
    assert python(sandbox, "node01", CONNECT, "node02").ok
    assert sandbox.wait_state("node02", "idle") == "idle"


def test_a_throttled_link_carries_no_more_than_it_may(sandbox: Sandbox) -> None:
    free = mbit_to_node02(sandbox)
    sandbox.fault("node02", "throttle", "20")
    try:
        throttled = mbit_to_node02(sandbox)
    finally:
        sandbox.fault("node02", "unthrottle")
    assert throttled < 40 < free  # a token bucket's burst comes on top of the 20
    assert mbit_to_node02(sandbox) > 40


@pytest.mark.parametrize("value", ["", "fast", "0", "-1", "nan"])
def test_a_bandwidth_that_is_none_is_bad_input(sandbox: Sandbox, value: str) -> None:
    with pytest.raises(BadInput, match="megabits per second"):
        sandbox.fault("node02", "throttle", value)


def test_a_hidden_directory_is_empty_on_one_node_only(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "weights").touch()
    sandbox.fault("node02", "hide", str(tmp_path))
    try:
        assert sandbox.exec("node02", ["ls", str(tmp_path)]).stdout == ""
        assert not sandbox.exec("node02", ["touch", str(tmp_path / "new")]).ok
        assert sandbox.exec("node01", ["ls", str(tmp_path)]).stdout == "weights\n"
    finally:
        sandbox.fault("node02", "show", str(tmp_path))
    assert sandbox.exec("node02", ["ls", str(tmp_path)]).stdout == "weights\n"


def test_a_fault_that_cannot_be_made_says_why(sandbox: Sandbox) -> None:
    with pytest.raises(RunFailed, match="mount point does not exist"):
        sandbox.fault("node02", "hide", "/no/such/directory")


def test_one_node_can_have_wrong_addresses(sandbox: Sandbox) -> None:
    ask = ["getent", "hosts", "node01"]
    faults.wrong_hosts(sandbox.where, "node01", "node01", "127.0.1.1")
    try:
        assert sandbox.exec("node01", ask).stdout.split() == ["127.0.1.1", "node01"]
        assert sandbox.exec("node02", ask).stdout.split() == ["10.77.0.101", "node01"]
    finally:
        faults.right_hosts(sandbox.where, "node01")
    assert sandbox.exec("node01", ask).stdout.split() == ["10.77.0.101", "node01"]


@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_fault_of_an_unknown_node_is_bad_input(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(BadInput, match="no node 'node99'"):
        sandbox.fault("node99", name, "1")
