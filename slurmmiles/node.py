"""What head and worker have in common: the run as this node sees it, and the wish of the outside to
stop.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from slurmmiles import ray_cluster
from slurmmiles.allocation import Allocation
from slurmmiles.errors import RunTimedOut
from slurmmiles.nodeenv import no_proxy, node_env
from slurmmiles.planfile import Plan
from slurmmiles.rundir import Attempt, RunDir

log = logging.getLogger(__name__)


class StopSignal:
    """Remembers the first SIGTERM or SIGINT; head and worker ask it between two steps."""

    def __init__(self) -> None:
        self.name = ""

    def install(self) -> None:
        """Take over the signals of this process. submitit's own handler would ignore SIGTERM."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._remember)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        self.name = self.name or signal.Signals(number).name

    def check(self) -> None:
        """RunTimedOut once a signal has come."""
        if self.name:
            raise RunTimedOut(f"the agent was told to stop by {self.name}")


@dataclass(frozen=True, slots=True)
class Node:
    """One node's view of a run."""

    plan: Plan
    run: RunDir
    attempt: Attempt
    allocation: Allocation
    stop: StopSignal
    inherited: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.allocation.node

    @property
    def temp(self) -> str:
        """Ray's directory on this node; the same path on every node of the run."""
        return ray_cluster.temp_dir(self.plan.scratch, os.getuid(), self.allocation.job_id)

    @property
    def token(self) -> bytes:
        return self.run.token.read_bytes()

    def values(
        self, *, address: str, interface: str, head_address: str, nodes: tuple[str, ...]
    ) -> dict[str, str]:
        """What the plan's placeholders stand for on this node."""
        return {
            "python": sys.executable,
            "run_dir": str(self.run.path),
            "attempt_dir": str(self.attempt.path),
            "checkpoints": self.plan.checkpoints.replace("{run_dir}", str(self.run.path)),
            "scratch": self.temp,
            "head_address": head_address,
            "node_address": address,
            "interface": interface,
            "no_proxy": no_proxy(self.inherited, nodes, (head_address, address)),
        }

    def ray_env(self, values: Mapping[str, str]) -> dict[str, str]:
        return node_env(self.inherited, self.plan.env, values, ray_cluster.ray_env(self.run.token))


def log_to(path: Path, node: str) -> None:
    """This process's log: a file of the attempt, and stderr (which is Slurm's log of the job)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s [{node}] %(message)s",
        datefmt="%H:%M:%S",
        handlers=[logging.FileHandler(path), logging.StreamHandler()],
        force=True,
    )
