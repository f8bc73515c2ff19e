"""One sandbox command at a time on a directory, by a lock file that does not stay behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from slurmmiles.errors import BadInput

PATIENCE_S = 120.0
RETRY_S = 0.05


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, after waiting for its turn; it is gone afterwards.

    Raises BadInput when its folder does not exist or may not be written, or when another command
    holds it for longer than PATIENCE_S.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (descriptor := _try(path)) is None:
        if time.monotonic() > deadline:
            raise BadInput(f"another sandbox command holds {path}", fix="wait for it to end")
        time.sleep(RETRY_S)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _try(path: Path) -> int | None:
    """The descriptor of the lock if it is free and `path` still names what was locked."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        fix = "give a --dir in an existing folder that you may write"
        raise BadInput(f"cannot write {path} ({error.strerror})", fix=fix) from None
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it before us has removed the file: then a newcomer locks a new one.
        if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    os.close(descriptor)
    return None
