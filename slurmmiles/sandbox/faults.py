"""What goes wrong with nodes, on purpose and for real: processes die, links are cut, files vanish.

Every function has taken effect when it returns; what Slurm makes of it comes later (SlurmdTimeout).
Each raises BadInput for an unknown node or one that is off, RunFailed when the fault was refused.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from slurmmiles.errors import BadInput, RunFailed
from slurmmiles.sandbox import config
from slurmmiles.sandbox.enter import known, node_pid, run_in
from slurmmiles.sandbox.files import PACKAGE
from slurmmiles.sandbox.layout import LOGIN_NAME, SandboxDir, read_record, veth

BURST_KB, QUEUE_MS = 64, 50  # tbf(8): what passes at full speed, and how long a packet may wait
PATIENCE_S = 10.0


def kill_slurmd(where: SandboxDir, node: str) -> None:
    """SIGKILL to the node's slurmd; running steps go on, as on a real node."""
    _run(where, node, "kill", "-9", where.slurmd_pid(known(where, node)).read_text().strip())


def start_slurmd(where: SandboxDir, node: str) -> None:
    """Start the slurmd of a node again."""
    _init(where, node, "slurmd", node)


def power_off(where: SandboxDir, node: str) -> None:
    """Kill the node's PID 1: every process on the node ends, and its link with them."""
    pid = str(node_pid(where, node))
    _run(where, LOGIN_NAME, "kill", "-9", pid)
    deadline = time.monotonic() + PATIENCE_S
    while run_in(where, LOGIN_NAME, ["kill", "-0", pid]).ok:
        if time.monotonic() > deadline:
            raise RunFailed(f"PID 1 of {node} does not die")
    where.node_pid(node).unlink()
    # The kernel removes a dead network namespace when it has time; poweron needs the link's name.
    run_in(where, LOGIN_NAME, ["ip", "link", "del", veth(node)])


def power_on(where: SandboxDir, node: str) -> None:
    """Start a node that is off; its /tmp is as it was, its /dev/shm empty."""
    if where.node_pid(known(where, node)).exists():
        raise BadInput(f"{node} is on", where=str(where.root))
    _init(where, LOGIN_NAME, "poweron", node)


def link_down(where: SandboxDir, node: str) -> None:
    """Cut the node's cable: no packet in or out, and nothing on the node is told."""
    _run(where, LOGIN_NAME, "ip", "link", "set", veth(known(where, node)), "down")


def link_up(where: SandboxDir, node: str) -> None:
    """Plug the cable in again."""
    _run(where, LOGIN_NAME, "ip", "link", "set", veth(known(where, node)), "up")


def throttle(where: SandboxDir, node: str, mbit: float) -> None:
    """Limit the node's link to `mbit` megabits per second each way (tbf(8))."""
    limit = ("rate", f"{mbit:g}mbit", "burst", f"{BURST_KB}kb", "latency", f"{QUEUE_MS}ms")
    for at, device in ((node, "eth0"), (LOGIN_NAME, veth(node))):
        _run(where, at, "tc", "qdisc", "replace", "dev", device, "root", "tbf", *limit)


def unthrottle(where: SandboxDir, node: str) -> None:
    """Give the node's link its full speed back."""
    for at, device in ((node, "eth0"), (LOGIN_NAME, veth(node))):
        _run(where, at, "tc", "qdisc", "del", "dev", device, "root")


def hide_shared(where: SandboxDir, node: str, path: Path) -> None:
    """Make a shared directory empty and read-only on one node, as if it had failed to mount."""
    _run(where, node, "mount", "-t", "tmpfs", "-o", "ro,size=4k", "hidden", str(path))


def show_shared(where: SandboxDir, node: str, path: Path) -> None:
    """Undo hide_shared."""
    _run(where, node, "umount", str(path))


def wrong_hosts(where: SandboxDir, node: str, name: str, address: str) -> None:
    """On one node, let /etc/hosts give `name` this address (127.0.1.1 is Debian's for its own)."""
    spec, _ = read_record(where)
    lines = config.hosts(spec).splitlines()
    kept = [line for line in lines if name not in line.split()[1:]]
    where.hosts(known(where, node)).write_text("\n".join([*kept, f"{address} {name}", ""]))


def right_hosts(where: SandboxDir, node: str) -> None:
    """Undo wrong_hosts."""
    spec, _ = read_record(where)
    where.hosts(known(where, node)).write_text(config.hosts(spec))


def _run(where: SandboxDir, node: str, *argv: str) -> None:
    ended = run_in(where, node, argv)
    if not ended.ok:
        words = ended.stderr.strip() or ended.stdout.strip()
        raise RunFailed(f"{' '.join(argv)}: {words}", where=node)


def _init(where: SandboxDir, on: str, command: str, node: str) -> None:
    module = [sys.executable, "-m", "slurmmiles.sandbox.init"]
    _run(where, on, "env", f"PYTHONPATH={PACKAGE}", *module, command, str(where.root), node)


# The faults of the command line; those that take no value are given an empty one.
FAULTS: Mapping[str, Callable[[SandboxDir, str, str], None]] = {
    "kill-slurmd": lambda where, node, _: kill_slurmd(where, node),
    "start-slurmd": lambda where, node, _: start_slurmd(where, node),
    "poweroff": lambda where, node, _: power_off(where, node),
    "poweron": lambda where, node, _: power_on(where, node),
    "link-down": lambda where, node, _: link_down(where, node),
    "link-up": lambda where, node, _: link_up(where, node),
    "throttle": lambda where, node, value: throttle(where, node, _number(value)),
    "unthrottle": lambda where, node, _: unthrottle(where, node),
    "hide": lambda where, node, value: hide_shared(where, node, Path(value)),
    "show": lambda where, node, value: show_shared(where, node, Path(value)),
}


def _number(value: str) -> float:
    try:
        mbit = float(value)
    except ValueError:
        mbit = 0.0
    if not 0.01 <= mbit <= 100_000:
        raise BadInput(f"{value!r} is no bandwidth", fix="give megabits per second: throttle 100")
    return mbit
