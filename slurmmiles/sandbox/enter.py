"""The way into a node of a running sandbox: the argv that runs a program in its namespaces."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path

from slurmmiles import shell
from slurmmiles.errors import BadInput
from slurmmiles.sandbox.host import ENVIRONMENT, program, require_root, start_time
from slurmmiles.sandbox.layout import LOGIN_NAME, SandboxDir, read_record

ALL_NAMESPACES = ("-m", "-u", "-i", "-n", "-p")  # nsenter(1)


def running(where: SandboxDir) -> int | None:
    """The PID of the sandbox's PID 1 as the machine sees it; None when it is not running."""
    try:
        pid, started = (int(word) for word in where.login_pid.read_text().split())
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
        return None
    return pid if start_time(pid) == started else None


def login_pid(where: SandboxDir) -> int:
    """`running`, or BadInput with what to type; root only, as only root can enter."""
    require_root()
    pid = running(where)
    if pid is None:
        raise BadInput(f"no sandbox is up in {where.root}", fix="start one: slurmmiles sandbox up")
    return pid


def enter_argv(
    where: SandboxDir,
    node: str,
    argv: Sequence[str],
    *,
    cwd: Path,
    user: str | None = None,
    path: str | None = None,
) -> list[str]:
    """argv wrapped to run on `node` (or `ctl`), in `cwd` or, where that is not visible, in /.

    Two steps into a node: its PID is known to the login node only. Raises BadInput for a sandbox or
    a node that is down, for unknown names, and without root.
    """
    login = login_pid(where)
    nsenter = program("nsenter")
    settings = [f"SLURM_CONF={where.slurm_conf}", *([f"PATH={path}"] if path else [])]
    change = ["env", "-C", str(cwd if _visible(where, node, cwd) else "/"), *settings]
    inside = ["--", *change, *_as_user(user), *argv]
    if node == LOGIN_NAME:
        return [nsenter, "-t", str(login), *ALL_NAMESPACES, *inside]
    step = ["nsenter", "-t", str(node_pid(where, node)), *ALL_NAMESPACES]
    return [nsenter, "-t", str(login), "-m", "-p", "--", *step, *inside]


def run_in(
    where: SandboxDir,
    node: str,
    argv: Sequence[str],
    *,
    cwd: Path = Path("/"),
    timeout: float = 60.0,
    user: str | None = None,
) -> shell.Completed:
    """Run argv to its end on a node, with a login's plain environment; errors as enter_argv."""
    inside = enter_argv(where, node, argv, cwd=cwd, user=user)
    return shell.run(inside, timeout=timeout, env=ENVIRONMENT)


def node_pid(where: SandboxDir, node: str) -> int:
    """The PID of a node's PID 1 as the login node sees it; BadInput if unknown or off."""
    try:
        return int(where.node_pid(known(where, node)).read_text())
    except FileNotFoundError:
        fix = f"slurmmiles sandbox fault {node} poweron"
        raise BadInput(f"{node} is off", where=str(where.root), fix=fix) from None


def known(where: SandboxDir, node: str) -> str:
    """`node`, if the running sandbox has it; else BadInput with the names that it has."""
    login_pid(where)
    spec, _ = read_record(where)
    if node not in spec.names:
        names = f"{LOGIN_NAME} {' '.join(spec.names)}"
        raise BadInput(f"no node {node!r} in the sandbox", fix=f"its nodes: {names}")
    return node


def _visible(where: SandboxDir, node: str, cwd: Path) -> bool:
    """Whether `cwd` is the same directory there: of /tmp a node sees only what is shared."""
    if node == LOGIN_NAME or Path("/tmp") not in (cwd, *cwd.parents):
        return True
    spec, _ = read_record(where)
    shared = {where.root, *map(Path, spec.share)}
    return not shared.isdisjoint((cwd, *cwd.parents))


def _as_user(name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise BadInput(f"no user {name!r} on this machine", fix="see getent passwd") from None
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups"]
    who = [f"HOME={user.pw_dir}", f"USER={name}", f"LOGNAME={name}", f"SHELL={user.pw_shell}"]
    return ["setpriv", *ids, "--", "env", *who]


def without_clients(where: SandboxDir, path: str) -> str:
    """PATH without the sandbox's own client folder: inside, the real programs are meant."""
    return os.pathsep.join(part for part in path.split(os.pathsep) if part != str(where.bin))
