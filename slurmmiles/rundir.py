"""Each file of a run as a property; pure paths, nothing here touches the disk.

RUNS/RUN_ID/
  plan.json        every decision            job.sbatch     the script that was submitted
  submission.json  who, when, job id         ray.token      mode 600, shared by the run's nodes
  result.json      how the newest attempt ended              checkpoints/
  submitit/        submitit's pickles and the step's logs
  attempts/JOB.RESTART/   one for each start of the job: logs/, nodes/, preflight/, metrics.jsonl,
  result.json
  latest           link to the newest attempt
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Attempt:
    """The directory of one start of a run; a requeued job has a new one."""

    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def driver_log(self) -> Path:
        return self.logs / "driver.log"

    def agent_log(self, node: str) -> Path:
        return self.logs / f"{node}.agent.log"

    def ray_log(self, node: str) -> Path:
        return self.logs / f"{node}.ray.log"

    @property
    def nodes(self) -> Path:
        """One JSON file a node: its facts and resolved environment."""
        return self.path / "nodes"

    def node(self, node: str) -> Path:
        return self.nodes / f"{node}.json"

    def node_env(self, node: str) -> Path:
        """The environment of the node's Ray processes: NAME to value, origin and reason."""
        return self.nodes / f"{node}.env.json"

    @property
    def preflight(self) -> Path:
        return self.path / "preflight"

    @property
    def canary(self) -> Path:
        """The file that the head writes and each node must read back."""
        return self.path / "canary"

    @property
    def head(self) -> Path:
        """Address and control port of the head, for a node whose default guess is taken."""
        return self.path / "head.json"

    @property
    def progress(self) -> Path:
        """The phase that the head is in, rewritten as it goes."""
        return self.path / "progress.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def trainer_config(self) -> Path:
        return self.path / "trainer.json"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run, on a filesystem that every node sees."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def script(self) -> Path:
        return self.path / "job.sbatch"

    @property
    def submission(self) -> Path:
        return self.path / "submission.json"

    @property
    def token(self) -> Path:
        return self.path / "ray.token"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def submitit(self) -> Path:
        return self.path / "submitit"

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    @property
    def latest(self) -> Path:
        return self.path / "latest"

    def attempt(self, job_id: str, restart: int) -> Attempt:
        """The directory of restart number `restart` of job `job_id`: every node derives the same
        one.
        """
        return Attempt(self.attempts / f"{job_id}.{restart}")
