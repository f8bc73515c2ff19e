"""A running sandbox as one Python object, for tests and scripts."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurmmiles.errors import BadInput
from slurmmiles.sandbox import enter, faults, lifecycle
from slurmmiles.sandbox.layout import LOGIN_NAME, SandboxDir, Spec, read_record
from slurmmiles.shell import Completed


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox that is up, and the environment of whoever uses it from the machine's side.

    `where` also serves slurmmiles.sandbox.faults, for faults by function.
    """

    where: SandboxDir
    environ: Mapping[str, str]

    @property
    def dir(self) -> Path:
        return self.where.root

    @property
    def bin(self) -> Path:
        """sbatch and the other clients, for the machine's side; first on PATH they are Slurm."""
        return self.where.bin

    @property
    def names(self) -> tuple[str, ...]:
        return read_record(self.where)[0].names

    @property
    def env(self) -> dict[str, str]:
        """`environ` with the sandbox's clients first on PATH."""
        path = enter.without_clients(self.where, self.environ.get("PATH", os.defpath))
        return {**self.environ, "PATH": f"{self.bin}{os.pathsep}{path}"}

    def exec(
        self,
        node: str,
        argv: Sequence[str],
        *,
        cwd: Path = Path("/"),
        timeout: float = 60.0,
        user: str | None = None,
    ) -> Completed:
        """Run argv to its end on a node, or on `ctl`; BadInput for an unknown node or one off."""
        return enter.run_in(self.where, node, argv, cwd=cwd, timeout=timeout, user=user)

    def login(self, *argv: str, timeout: float = 60.0) -> Completed:
        """Run argv to its end on the login node."""
        return self.exec(LOGIN_NAME, argv, timeout=timeout)

    def fault(self, node: str, name: str, value: str = "") -> None:
        """One of faults.FAULTS, such as ("node02", "poweroff") or ("node02", "throttle", "20")."""
        faults.FAULTS[name](self.where, node, value)

    def state(self, node: str) -> str:
        """The node's state in sinfo's words; BadInput when Slurm does not list it."""
        for row in lifecycle.nodes(self.where):
            if row.name == node:
                return row.state
        raise BadInput(f"sinfo does not list {node}", where=str(self.dir))

    def wait_state(self, node: str, *states: str, timeout: float = 60.0) -> str:
        """The node's state once it is one of `states`, else its state after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while (state := self.state(node)) not in states and time.monotonic() < deadline:
            time.sleep(0.2)
        return state


@contextlib.contextmanager
def sandbox_up(root: Path, spec: Spec, environ: Mapping[str, str]) -> Iterator[Sandbox]:
    """A sandbox in `root`, down again at the end, however that comes; errors as lifecycle.up."""
    where = SandboxDir(root)
    try:
        lifecycle.up(where, spec, cwd=Path("/"))
        yield Sandbox(where, environ)
    finally:
        lifecycle.down(where)
