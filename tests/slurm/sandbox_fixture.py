"""The session's own Slurm: three nodes in a private directory, down again at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmmiles.errors import BadInput
from slurmmiles.sandbox import host
from slurmmiles.sandbox.handle import Sandbox, sandbox_up
from slurmmiles.sandbox.layout import Spec


@pytest.fixture(scope="session")
def sandbox_root() -> Path:
    """A directory of this test process alone; skips where a sandbox cannot run, and says why."""
    try:
        host.require()
    except BadInput as error:
        pytest.skip(str(error))
    return Path(f"/var/lib/smsb-{os.getpid()}")


@pytest.fixture(scope="session")
def sandbox(sandbox_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Three idle nodes that see pytest's temporary directories."""
    shared = (str(tmp_path_factory.getbasetemp()),)
    with sandbox_up(sandbox_root, Spec(nodes=3, share=shared), os.environ) as up:
        yield up
