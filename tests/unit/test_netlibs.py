from __future__ import annotations

import ctypes.util
import os
import shutil
from pathlib import Path

import pytest

from slurmmiles.netlibs import net_plugins


def a_library() -> Path | None:
    """Some small shared library of this machine, to stand under a plugin's name."""
    name = ctypes.util.find_library("z")
    folders = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64")
    paths = (Path(folder) / str(name) for folder in folders)
    return next((path for path in paths if name and path.exists()), None)


def test_a_plugin_that_can_be_loaded_is_found_with_its_path(tmp_path: Path) -> None:
    library = a_library()
    if library is None:
        pytest.skip("no libz to copy")
    shutil.copy(library, tmp_path / "libnccl-net.so")
    (tmp_path / "libnccl-net-cassini.so").write_text("this is no library")
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    assert net_plugins(env) == {"libnccl-net.so": str(tmp_path / "libnccl-net.so")}


def test_without_a_plugin_there_is_none(tmp_path: Path) -> None:
    assert net_plugins({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}) == {}
