"""The built wheel holds all that a user needs, and works outside of the checkout."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from slurmmiles import shell

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, as an installer would lay it out."""
    built = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    done = shell.run([*argv, str(built)], timeout=120, cwd=ROOT)
    assert done.ok, done.stderr
    (wheel,) = built.glob("slurmmiles-*.whl")
    place = built / "site"
    zipfile.ZipFile(wheel).extractall(place)
    return place


def test_the_wheel_plans_and_renders_from_its_own_files(unpacked: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(unpacked)}

    def type_(*words: str) -> str:
        argv = [sys.executable, "-m", "slurmmiles", *words]
        done = shell.run(argv, timeout=60, env=env, cwd=tmp_path)
        assert done.ok, done.stderr
        return done.stdout

    for kind in ("recipes", "sites"):
        files = [row["file"] for row in json.loads(type_(kind, "--json"))]
        assert files and all(f.startswith(str(unpacked)) for f in files)
    assert json.loads(type_("plan", "tiny", "--json"))["recipe"] == "tiny"
    assert type_("render", "gate-check", "--nodes", "2").startswith("#!/bin/bash\n")


def test_the_wheel_holds_the_trainer_and_its_stand_ins(unpacked: Path) -> None:
    for name in ("trainer/__main__.py", "trainer/cpu_kernels/sgl_kernel/__init__.py"):
        assert (unpacked / name).is_file(), name
    assert not (unpacked / "tests").exists()
