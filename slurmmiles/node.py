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
from slurmmiles.fabric import needs_plugin, node_env_of
from slurmmiles.jsonfile import write_json
from slurmmiles.netlibs import net_plugins
from slurmmiles.nics import NodeNics
from slurmmiles.nodeenv import no_proxy, node_env
from slurmmiles.nodefacts import NodeFacts
from slurmmiles.planfile import Plan, filled
from slurmmiles.rundir import Attempt, RunDir

log = logging.getLogger(__name__)


class StopSignal:
    """Remembers the first SIGTERM, SIGINT or SIGUSR2; head and worker ask it between two steps.

    SIGUSR2 is the early warning of a preemption or the time limit (submitit's convention).
    """

    def __init__(self) -> None:
        self.name = ""

    def install(self) -> None:
        """Take over from submitit, which ignores SIGTERM and exits in the middle on SIGUSR2."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
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

    def resolved(self, facts: NodeFacts) -> NodeFacts:
        """The facts with this node's own environment and what speaks against the node in it."""
        fabric, nics = self.plan.fabric, facts.nics or NodeNics(nics=())
        plugins: dict[str, str] = {}
        if needs_plugin(fabric, nics.fabric):
            libraries = {n: e.value for n, e in self.plan.env.items() if n == "LD_LIBRARY_PATH"}
            plugins = net_plugins({**self.inherited, **libraries})
        mine = node_env_of(
            self.name,
            self.plan.env,
            fabric,
            nics,
            inherited=self.inherited,
            plugins=plugins,
            gpu=self.plan.gpu or "",
        )
        return facts.model_copy(
            update={"fabric": mine.kind, "env": mine.table, "findings": mine.findings}
        )

    def ray_env(self, facts: NodeFacts, values: Mapping[str, str]) -> dict[str, str]:
        """What this node's Ray processes start with; its table is left in nodes/NODE.env.json."""
        table = {
            name: entry.model_copy(update={"value": str(filled(entry.value, values))})
            for name, entry in facts.env.items()
        }
        write_json(self.attempt.node_env(self.name), {n: e.model_dump() for n, e in table.items()})
        return node_env(self.inherited, table, values, ray_cluster.ray_env(self.run.token))


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
