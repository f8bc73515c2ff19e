"""The log files of a run, printed once or followed until it ends."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slurmmiles.errors import BadInput, did_you_mean
from slurmmiles.job import Job

POLL_S = 0.5
ASK_S = 5.0
CHUNK = 1 << 20


def log_files(job: Job, node: str | None) -> list[Path]:
    """Which files of the newest attempt to show; BadInput for a node that has none."""
    attempt = job.attempt()
    if node is not None:
        found = (
            [p for p in (attempt.agent_log(node), attempt.ray_log(node)) if p.exists()]
            if attempt
            else []
        )
        if not found:
            known = (
                sorted(p.name.removesuffix(".agent.log") for p in attempt.logs.glob("*.agent.log"))
                if attempt
                else []
            )
            raise BadInput(
                f"node {node!r} has no logs in run {job.run.run_id}", fix=did_you_mean(node, known)
            )
        return found
    if attempt is not None and attempt.driver_log.exists():
        return [attempt.driver_log]
    if job.submission.mode == "local":
        return sorted((job.run.path / "local").glob(f"{job.job_id}.*.log"))
    return [job.run.submitit / f"{job.job_id}_0_log.out"]


def follow(find: Callable[[], list[Path]], job: Job, following: bool) -> Iterator[str]:
    """The text of the files that `find` names; when following, what is added until the job ends.

    `find` is asked again each time, because a driver's log appears after the job's; Slurm is asked
    about the end every few seconds only.
    """
    offsets: dict[Path, int] = {}
    ask_at, ended = 0.0, not following
    while True:
        if following and time.monotonic() >= ask_at:
            ended, ask_at = job.status().ended, time.monotonic() + ASK_S
        for path in find():
            text = "more"
            while text:
                text, offsets[path] = _read_from(path, offsets.get(path, 0))
                yield text
        if ended:
            return
        time.sleep(POLL_S)


def _read_from(path: Path, offset: int) -> tuple[str, int]:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(CHUNK)
    except OSError:
        return "", offset
    # A character whose last bytes are not there yet is left for the next time.
    text, used = codecs.utf_8_decode(data, "replace", False)
    return text, offset + used
