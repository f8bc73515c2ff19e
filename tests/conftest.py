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
from slurmmiles.cli import run
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


def scrubbed(home: Path) -> dict[str, str]:
    """An environment without Slurm, without a sandbox, and with `home` as the home directory."""
    return {
        "HOME": str(home),
        "PATH": "/nonexistent",
        "PYTHONPATH": str(PACKAGE_ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SLURMMILES_SANDBOX_DIR": "/nonexistent/sandbox",
        "COLUMNS": "200",
    }


@pytest.fixture
def cli(home: Path) -> Cli:
    """`cli("plan", "tiny")`: the command as a process, in an empty directory with a new home."""

    def call(*argv: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Completed:
        return shell.run(
            [sys.executable, "-m", "slurmmiles", *argv],
            env={**scrubbed(home), **(env or {})},
            cwd=cwd or home / "work",
            timeout=120.0,
        )

    return call


@pytest.fixture
def refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """The one clear sentence with which a command is refused (exit 2); nothing may be created.

    Without a process of its own, which costs half a second each time.
    """

    def call(*argv: str, env: dict[str, str] | None = None) -> str:
        monkeypatch.setattr("os.environ", {**scrubbed(home), **(env or {})})
        monkeypatch.setattr("sys.argv", ["slurmmiles", *argv])
        monkeypatch.chdir(home / "work")
        before = listing(home)
        with pytest.raises(SystemExit) as end:
            run()
        said = capsys.readouterr()
        assert end.value.code == 2, said.out + said.err
        assert listing(home) == before
        return sentence(said.err)

    return call


def sentence(stderr: str) -> str:
    """The one sentence after `Error: `."""
    assert stderr.count("Error: ") == 1 and "Traceback" not in stderr, stderr
    return stderr.partition("Error: ")[2].strip()


@pytest.fixture
def sentence_of() -> Callable[[str], str]:
    return sentence


def listing(folder: Path) -> list[str]:
    """Every path below `folder`."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def list_below() -> Callable[[Path], list[str]]:
    return listing
