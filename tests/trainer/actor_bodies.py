"""Objects for Ray actors of the tests: they answer, raise, sleep and die on request."""

from __future__ import annotations

import os
import socket
import time

from trainer.errors import TrainerError


class Body:
    """Each method does what its name says."""

    def __init__(self, number: int) -> None:
        if number < 0:
            raise ValueError(f"{number} is negative")
        self._number = number

    def answer(self, add: int) -> int:
        return self._number + add

    def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    def raise_ours(self) -> None:
        raise TrainerError(f"number {self._number} on {socket.gethostname()}: no")

    def raise_other(self) -> None:
        {}["missing"]

    def sleep(self) -> None:
        time.sleep(600)

    def die_or_sleep(self, who: int) -> None:
        """As one rank of a collective that dies while the others wait for it."""
        if who == self._number:
            os._exit(3)
        self.sleep()
