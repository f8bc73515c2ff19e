"""Skips the folder where the trainer's packages are not installed; makes `worlds` importable for rank processes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

NEEDED = ("torch", "megatron.core", "sglang", "transformers")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name.split(".")[0]) is None]

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder; skip them, with the reason, where a package is missing."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.trainer)
