"""Which phase an attempt is in and how long each took; progress.json follows it."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from slurmmiles.jsonfile import write_json
from slurmmiles.result import Phase, Progress

log = logging.getLogger(__name__)


class Timeline:
    """Starts in phase `start` at `began` (epoch seconds: the job's start where it is known)."""

    def __init__(self, progress: Path, began: float) -> None:
        self._progress, self.began = progress, began
        self.phase = Phase.START
        self.seconds: dict[str, float] = {}
        self._since = began
        self._detail = ""

    def enter(self, phase: Phase, detail: str) -> None:
        """End the current phase, begin the next."""
        now = time.time()
        self.seconds[self.phase.value] = round(
            self.seconds.get(self.phase.value, 0.0) + now - self._since, 3
        )
        self.phase, self._since = phase, now
        self.say(detail)

    def say(self, detail: str) -> None:
        """One sentence about what is going on now; repeated sentences are not logged again."""
        if detail == self._detail:
            return
        self._detail = detail
        log.info("%s: %s", self.phase.value, detail)
        write_json(self._progress, Progress(phase=self.phase, detail=detail, at=time.time()))
