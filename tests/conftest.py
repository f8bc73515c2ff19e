"""What every test may use: the command line as a real process, and the shipped configurations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import slurmmiles
from slurmmiles import shell
from slurmmiles.catalog import Catalog, shipped
from slurmmiles.shell import Completed

PACKAGE_ROOT = Path(slurmmiles.__file__).resolve().parents[1]

# A shared machine may stall for seconds: no test fails for being slow, and the same examples run
# each time.
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("steady")

Cli = Callable[..., Completed]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="Write the golden scripts anew instead of comparing with them.",
    )


@pytest.fixture
def catalog() -> Catalog:
    """Only what ships."""
    return Catalog((shipped("configs"),))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory; its `work` is where `cli` runs."""
    (tmp_path / "work").mkdir()
    return tmp_path


@pytest.fixture
def cli(home: Path) -> Cli:
    """`cli("plan", "tiny")`: the command in an empty directory, without Slurm, with a new home."""

    def call(*argv: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Completed:
        scrubbed = {
            "HOME": str(home),
            "PATH": "/nonexistent",
            "PYTHONPATH": str(PACKAGE_ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SLURMMILES_SANDBOX_DIR": "/nonexistent/sandbox",
            "COLUMNS": "200",
        }
        return shell.run(
            [sys.executable, "-m", "slurmmiles", *argv],
            env={**scrubbed, **(env or {})},
            cwd=cwd or home / "work",
            timeout=120.0,
        )

    return call


@pytest.fixture
def refused(cli: Cli, home: Path) -> Callable[..., str]:
    """Run a command that must end with one clear sentence; the sentence. Nothing may be created."""

    def call(
        *argv: str, code: int = 2, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> str:
        before = listing(home)
        answer = cli(*argv, cwd=cwd, env=env)
        assert answer.returncode == code, answer.stdout + answer.stderr
        assert answer.stderr.count("Error: ") == 1, answer.stderr
        assert "Traceback" not in answer.stdout + answer.stderr
        assert listing(home) == before
        return answer.stderr.partition("Error: ")[2].strip()

    return call


def listing(folder: Path) -> list[str]:
    """Every path below `folder`."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def list_below() -> Callable[[Path], list[str]]:
    return listing
