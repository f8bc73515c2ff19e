"""One sandbox command at a time on a directory."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from slurmmiles.errors import BadInput
from slurmmiles.sandbox.lock import locked


def _hold(path: Path, order: Path, name: str, seconds: float) -> None:
    with locked(path):
        with order.open("a") as log:
            log.write(f"{name} in\n")
        time.sleep(seconds)
        with order.open("a") as log:
            log.write(f"{name} out\n")


def test_the_lock_lets_one_in_at_a_time_and_leaves_no_file(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    lock, order = tmp_path / "lock", tmp_path / "order"
    holders = [spawn.Process(target=_hold, args=(lock, order, str(i), 0.1)) for i in range(4)]
    for holder in holders:
        holder.start()
    for holder in holders:
        holder.join(60)
    lines = order.read_text().splitlines()
    assert [holder.exitcode for holder in holders] == [0] * 4
    assert [line.split()[1] for line in lines] == ["in", "out"] * 4
    assert [line.split()[0] for line in lines[::2]] == [line.split()[0] for line in lines[1::2]]
    assert not lock.exists()


def test_a_lock_in_a_missing_folder_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="existing folder"), locked(tmp_path / "no" / "lock"):
        pass
