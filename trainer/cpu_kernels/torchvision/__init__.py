"""Stand-in for torchvision where there is no GPU: imports succeed, calls refuse.

SGLang and transformers import names of torchvision at module level for their vision models; PyPI's
build links CUDA and does not load beside a CPU torch. A text model calls none of these names. Used
only together with the `sgl_kernel` stand-in (see there).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

__version__ = "0.0.0+cpu.stand.in"


def refusing(module: str) -> Callable[[str], Callable[..., NoReturn]]:
    """A module `__getattr__` that makes every public name a function that refuses to run."""

    def attribute(name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_args: object, **_kwargs: object) -> NoReturn:
            raise NotImplementedError(f"{module}.{name}: torchvision is a stand-in on CPU")

        return refuse

    return attribute
