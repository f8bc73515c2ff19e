"""Skips a test module, with the reason, where packages of the trainer are not installed."""

from __future__ import annotations

import importlib.util

import pytest


def needs(*packages: str) -> None:
    """Skip the calling module unless all `packages` are there; imports none of them."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the trainer extra: no {', '.join(missing)}", allow_module_level=True)
