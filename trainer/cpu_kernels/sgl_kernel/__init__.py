"""Stand-in for SGLang's kernel package where there is no GPU: imports succeed, calls refuse.

SGLang imports names of `sgl_kernel` at module level on every platform, and PyPI carries only GPU
builds of it. On a CPU without AMX the dense models run on SGLang's own native torch paths and call
none of those names, so a name that raises when called is enough. `trainer.device` puts this
directory on the path of an engine's process, and of no other, only when there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

__version__ = "0.0.0+cpu.stand.in"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """A function that refuses by name; AttributeError for dunders, so that probing still works."""
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU build here; this is a stand-in")

    refuse.__name__ = name
    return refuse
