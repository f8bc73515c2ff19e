"""This node's part of the Ray cluster: the command lines, the environment, and a child that is
watched and stopped.

`ray start --block` stays a child of the agent inside the live step: a daemonised raylet is killed
by Slurm's cgroup
process tracking when the step's task ends, and survives as an orphan where there is none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path

from slurmmiles import shell
from slurmmiles.errors import BadInput, RunFailed
from slurmmiles.planfile import RayPlan
from slurmmiles.ports import PortBlock

log = logging.getLogger(__name__)
NODE_LABEL = "slurmmiles-node"
# An AF_UNIX path has at most 107 bytes (unix(7)); Ray puts
# session_<date>_<pid>/sockets/plasma_store below it.
MAX_TEMP_DIR = 107 - len("/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store.99")


def temp_dir(scratch: str, uid: int, job_id: str) -> str:
    """Ray's node-local directory of this run; BadInput when the site's scratch path is too long for
    a socket.
    """
    path = f"{scratch.rstrip('/')}/sm{uid}-{job_id}"
    if len(path) > MAX_TEMP_DIR:
        raise BadInput(
            f"Ray's directory {path!r} has {len(path)} characters and its sockets leave room for"
            f" {MAX_TEMP_DIR}",
            where="site, scratch",
            fix="give a shorter node-local directory",
        )
    return path


def ray_env(token: Path) -> dict[str, str]:
    """Token authentication with the run's own token, so that nothing is written to the user's home.

    RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH are read by Ray itself (docs: Ray security, token
    authentication).
    """
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}


def _ray(python: str) -> list[str]:
    return [python, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]


def _common(plan: RayPlan, ports: PortBlock, node: str, address: str) -> list[str]:
    first, last = ports.workers
    argv = [
        f"--node-ip-address={address}",
        f"--num-gpus={plan.num_gpus}",
        f"--labels={NODE_LABEL}={node}",
        f"--node-manager-port={ports.node_manager}",
        f"--object-manager-port={ports.object_manager}",
        f"--dashboard-agent-listen-port={ports.dashboard_agent_http}",
        f"--dashboard-agent-grpc-port={ports.dashboard_agent_grpc}",
        f"--runtime-env-agent-port={ports.runtime_env_agent}",
        f"--metrics-export-port={ports.metrics_export}",
        f"--min-worker-port={first}",
        f"--max-worker-port={last}",
    ]
    if plan.num_cpus is not None:
        argv.append(f"--num-cpus={plan.num_cpus}")
    if plan.object_store_bytes is not None:
        argv.append(f"--object-store-memory={plan.object_store_bytes}")
    return argv


def head_argv(
    plan: RayPlan, ports: PortBlock, *, python: str, node: str, address: str, temp: str
) -> list[str]:
    """The head: GCS, dashboard (for the job API) and a raylet of its own."""
    return [
        *_ray(python),
        "--head",
        f"--port={ports.gcs}",
        f"--dashboard-host={address}",
        f"--dashboard-port={ports.dashboard}",
        f"--ray-client-server-port={ports.ray_client}",
        f"--temp-dir={temp}",
        "--include-log-monitor=false",
        *_common(plan, ports, node, address),
    ]


def worker_argv(
    plan: RayPlan, ports: PortBlock, *, python: str, node: str, address: str, gcs: str
) -> list[str]:
    """A worker: a raylet that joins the cluster at `gcs` (host:port), whether that is up already or
    not.
    """
    return [
        *_ray(python),
        f"--address={gcs}",
        "--include-log-monitor=false",
        *_common(plan, ports, node, address),
    ]


class RayNode:
    """A running `ray start --block`."""

    def __init__(self, argv: list[str], log: Path, env: Mapping[str, str]) -> None:
        self._argv, self._log, self._env = argv, log, dict(env)
        self._process = self._spawn()

    def _spawn(self) -> shell.Process:
        return shell.spawn(self._argv, self._log, env=self._env, die_with_parent=True)

    def check(self, node: str, *, revive_until: float = 0.0) -> None:
        """RunFailed, with the last line that Ray printed, when it has ended.

        Until `revive_until` (time.monotonic) it is started again instead: Ray gives a node 30 s to
        register (ray/_private/node.py, raylet_start_wait_time_s), too little on a busy machine.
        """
        status = self._process.poll()
        if status is None:
            return
        if time.monotonic() < revive_until:
            log.info("ray on %s ended (%s) and is started again", node, self.last_words())
            self._process.stop(grace=0.5)
            self._process = self._spawn()
            return
        raise RunFailed(
            f"ray on {node} ended with exit code {status}: {self.last_words()}",
            where=str(self._log),
            fix="read this log",
        )

    def last_words(self) -> str:
        """The last line of the log that says something."""
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return "no log"
        spoken = [line.strip() for line in lines if line.strip()]
        return spoken[-1][-300:] if spoken else "it printed nothing"

    def stop(self) -> None:
        """End it and all that it started, also what outlived it."""
        self._process.stop(grace=3.0)
