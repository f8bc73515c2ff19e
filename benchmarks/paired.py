"""Time of a command against `python -c pass`, in turn in one run, so that load falls on both.

Started and waited for without a shell and without polling, which would cost more than what is
measured.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 15
NOTHING = ("-c", "pass")


def measure(words: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU time in milliseconds of one `python WORDS`, output discarded."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    began = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, *words], env, file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    if status != 0:
        raise SystemExit(f"python {' '.join(words)} ended with status {status}")
    return wall * 1e3, (used.ru_utime + used.ru_stime) * 1e3


def compare(words: Sequence[str], shown: str) -> None:
    """Print the median of both and of their differences, pair by pair."""
    os.chdir(tempfile.gettempdir())  # away from the checkout, where `-m` would find it unasked
    for first in (NOTHING, words):
        measure(first)  # compiles, and reads from disk
    pairs = [(measure(NOTHING), measure(words)) for _ in range(ROUNDS)]
    rows = {
        "python -c pass": [nothing for nothing, _ in pairs],
        shown: [command for _, command in pairs],
        "difference": [(b[0] - a[0], b[1] - a[1]) for a, b in pairs],
    }
    width = max(map(len, rows))
    print(f"median of {ROUNDS} pairs, Python {sys.version.split()[0]}, {os.cpu_count()} CPUs")
    for name, times in rows.items():
        wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        least = min(t[0] for t in times)
        print(f"{name:<{width}}  {wall:7.1f} ms (least {least:.1f}), CPU {cpu:.1f} ms")
