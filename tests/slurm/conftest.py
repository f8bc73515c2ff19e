"""Fixtures of the tests on a real Slurm: the sandbox, and a user of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandbox_fixture import sandbox, sandbox_root  # noqa: F401
from slurm_user import User

from slurmmiles.sandbox.handle import Sandbox


@pytest.fixture
def user(sandbox: Sandbox, tmp_path: Path) -> User:  # noqa: F811
    return User(sandbox, tmp_path)
