"""The driver as a Ray job on the head: submitted, watched until it ends, stopped."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmmiles.errors import RunFailed

START_S = 60.0


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How the job ended: Ray's state, the driver's own exit code (None: it never ran or was
    killed), Ray's words.
    """

    state: str
    exit_code: int | None
    message: str

    @property
    def ok(self) -> bool:
        return self.state == "SUCCEEDED"


def entrypoint(argv: Sequence[str], cwd: Path, log: Path) -> str:
    """The shell text of the job; exec, so that Ray signals the driver itself and not a shell."""
    return f"cd {shlex.quote(str(cwd))} && exec {shlex.join(argv)} >> {shlex.quote(str(log))} 2>&1"


class DriverJob:
    """One submitted Ray job. The Jobs API answers over HTTP on the head's dashboard port."""

    def __init__(self, address: str, submission_id: str) -> None:
        # Imported here: ray takes half a second, and only the head needs it. The client is no Ray
        # driver.
        from ray.job_submission import JobSubmissionClient

        self._id = submission_id
        self._client: Any = _retry(lambda: JobSubmissionClient(address), START_S, "the job API")

    def submit(self, command: str, env: Mapping[str, str]) -> None:
        """Start `command` with `env` added; RunFailed when Ray refuses it."""
        _retry(
            lambda: self._client.submit_job(
                entrypoint=command, submission_id=self._id, runtime_env={"env_vars": dict(env)}
            ),
            START_S,
            "the driver's submission",
        )

    def poll(self) -> JobEnd | None:
        """How it ended, or None while it runs; RuntimeError or OSError when the API does not
        answer.
        """
        info = self._client.get_job_info(self._id)
        if not info.status.is_terminal():
            return None
        return JobEnd(info.status.value, info.driver_exit_code, _last_line(info.message or ""))

    def stop(self, patience: float) -> None:
        """Ask Ray to end it (SIGTERM, then SIGKILL), and wait up to `patience` seconds."""
        deadline = time.monotonic() + patience
        try:
            self._client.stop_job(self._id)
            while self.poll() is None and time.monotonic() < deadline:
                time.sleep(0.2)
        except (RuntimeError, OSError):
            return  # the cluster is going down with it


def _retry(action: Any, patience: float, what: str) -> Any:
    """The dashboard comes up a few seconds after the GCS: try until it answers."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return action()
        except (RuntimeError, OSError) as error:
            if time.monotonic() >= deadline:
                raise RunFailed(
                    f"{what} did not answer in {patience:g} s: {_last_line(str(error))}"
                ) from error
            time.sleep(0.3)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
