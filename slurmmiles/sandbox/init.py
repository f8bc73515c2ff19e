"""PID 1 of the login node and of each node: make the node, start its daemons, then reap for ever.

    python -m slurmmiles.sandbox.init ctl DIR           the login node; starts every node
    python -m slurmmiles.sandbox.init node DIR NAME     one node, nested in the login node
    python -m slurmmiles.sandbox.init poweron DIR NAME  on the login node: start that node again
    python -m slurmmiles.sandbox.init slurmd DIR NAME   on the node: start its slurmd again

Killing the login node's PID 1 ends everything: the kernel kills the processes of a PID namespace
with it, and mounts, links and addresses go with the last process (pid_namespaces(7)).
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from slurmmiles import shell
from slurmmiles.sandbox import mounts
from slurmmiles.sandbox.host import NAMESPACES, start_time
from slurmmiles.sandbox.layout import (
    LOGIN_ADDRESS,
    LOGIN_NAME,
    SandboxDir,
    node_address,
    read_record,
    veth,
)

PATIENCE_S = 30.0
BRIDGE = "br0"


def unshare_argv(*arguments: str) -> list[str]:
    """Start this module as PID 1 of new namespaces; it dies with its parent."""
    flags = ["--fork", "--kill-child", *NAMESPACES]
    return ["unshare", *flags, sys.executable, "-m", "slurmmiles.sandbox.init", *arguments]


def run_login(where: SandboxDir) -> None:
    """The login node with munged and slurmctld; does not return."""
    spec, _ = read_record(where)
    pid = int(os.readlink("/proc/self"))  # /proc is still the machine's, and so is this number
    _publish(where.login_pid, f"{pid} {start_time(pid)}")
    socket.sethostname(LOGIN_NAME)
    mounts.enter_login(where)
    _ip(
        "link set lo up",
        f"link add {BRIDGE} type bridge forward_delay 0 stp_state 0",
        f"addr add {LOGIN_ADDRESS}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
    )
    for name in spec.names:
        _start_node(where, name)
    _daemon(_munged_argv(where))
    for name in spec.names:
        _wire(where, name)
    _daemon(["slurmctld", "-f", str(where.slurm_conf)])
    where.ready.touch()
    _reap_for_ever()


def run_node(where: SandboxDir, name: str) -> None:
    """One node with its slurmd; does not return."""
    spec, machine = read_record(where)
    _publish(where.node_pid(name), os.readlink("/proc/self"))
    socket.sethostname(name)
    mounts.enter_node(where, spec, machine, name)
    _until(lambda: any(link == "eth0" for _, link in socket.if_nameindex()), f"eth0 of {name}")
    _ip("link set lo up", f"addr add {node_address(name)}/24 dev eth0", "link set eth0 up")
    _until(where.ready.exists, "slurmctld")
    start_slurmd(where, name)
    _reap_for_ever()


def power_on(where: SandboxDir, name: str) -> None:
    """Start a node that is off; it stays behind as a child of the login node's PID 1."""
    _start_node(where, name)
    _wire(where, name)


def start_slurmd(where: SandboxDir, name: str) -> None:
    """Start the node's slurmd, with the most that this machine lets it open and lock."""
    mounts.enter_init_cgroup()  # one started from outside, after a fault, is not in it
    wanted = {resource.RLIMIT_NOFILE: 1 << 16, resource.RLIMIT_MEMLOCK: resource.RLIM_INFINITY}
    for limit, value in wanted.items():
        _, most = resource.getrlimit(limit)
        resource.setrlimit(limit, (most, most))
        with contextlib.suppress(ValueError):  # a container may forbid more (CAP_SYS_RESOURCE)
            resource.setrlimit(limit, (value, value))
    _daemon(["slurmd", "-N", name, "-f", str(where.slurm_conf)])


def _start_node(where: SandboxDir, name: str) -> None:
    where.node_pid(name).unlink(missing_ok=True)
    log = where.log / f"{name}.init.log"
    shell.start_daemon(unshare_argv("node", str(where.root), name), log)


def _wire(where: SandboxDir, name: str) -> None:
    """Plug the node's eth0 into the bridge."""
    _until(where.node_pid(name).exists, f"PID 1 of {name}")
    pid = where.node_pid(name).read_text()
    _ip(
        f"link add {veth(name)} type veth peer name eth0 netns {pid}",
        f"link set {veth(name)} master {BRIDGE} up",
    )


def _munged_argv(where: SandboxDir) -> list[str]:
    """One munged serves every node by its socket; --force: the folders above are not munge's."""
    own = where.munge_key.parent
    return [
        *("munged", "--force", f"--key-file={where.munge_key}", f"--socket={where.munge_socket}"),
        *(f"--pid-file={own}/pid", f"--seed-file={own}/seed", f"--log-file={where.log}/munged.log"),
    ]


def _daemon(argv: list[str]) -> None:
    """Run a program that puts itself into the background; raises RuntimeError with its words."""
    ended = shell.run(argv, timeout=PATIENCE_S)
    if not ended.ok:
        raise RuntimeError(f"{argv[0]} ended with {ended.returncode}: {ended.stderr.strip()}")


def _ip(*commands: str) -> None:
    ended = shell.run(["ip", "-batch", "-"], stdin="\n".join(commands) + "\n")
    if not ended.ok:
        raise RuntimeError(f"ip refused {commands}: {ended.stderr.strip()}")


def _publish(path: Path, text: str) -> None:
    """Write by rename, so that whoever waits for the file never reads half of it."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text)
    draft.rename(path)


def _until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not appear within {PATIENCE_S:g} s")
        time.sleep(0.01)


def _reap_for_ever() -> None:
    """Become sleep(1) with SIGCHLD ignored, which exec keeps: the kernel reaps orphans (wait(2)).

    A sleeping Python would cost each node some 9 MB.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass  # those that ended before
    shell.replace_process(["sleep", "infinity"])


def main(arguments: list[str]) -> None:
    """Run one of the four commands of the module's docstring."""
    os.umask(0o022)  # ordinary users read and submit, whatever the umask of who started this
    command, where, *names = arguments[0], SandboxDir(Path(arguments[1])), *arguments[2:]
    if command == "ctl":
        run_login(where)
    else:
        {"node": run_node, "poweron": power_on, "slurmd": start_slurmd}[command](where, *names)


if __name__ == "__main__":
    main(sys.argv[1:])
