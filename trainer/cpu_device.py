"""Run Megatron-core, which puts its tensors on "cuda", on a machine without a GPU.

Megatron-core 0.16-0.19 names the CUDA device in some 270 places. `cpu_device()` makes those places
mean the CPU while it is entered: a torch function mode answers device="cuda" with "cpu", and
stand-ins take the place of the public `torch.cuda` functions that Megatron calls. Megatron itself
is untouched, and `trainer.device` enters this only when there is no GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_UNMOVED = {torch.Tensor.cuda, torch.Tensor.pin_memory}  # return the tensor itself
_CPU = torch.device("cpu")


def _on_cpu(device: object) -> object:
    """`device`, or the CPU where it names CUDA."""
    named = device.type if isinstance(device, torch.device) else device
    return _CPU if isinstance(named, str) and named.split(":")[0] == "cuda" else device


class _CudaMeansCpu(TorchFunctionMode):
    """Rewrites every torch call that speaks of CUDA."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _UNMOVED:
            return args[0]
        if func is torch.Tensor.record_stream:
            return None
        if "device" in kwargs:
            kwargs["device"] = _on_cpu(kwargs["device"])
        if func is torch.Tensor.to and len(args) > 1:
            args = (args[0], _on_cpu(args[1]), *args[2:])
        result = func(*args, **kwargs)
        if func is torch.Tensor.type and isinstance(result, str):
            # Megatron's optimizers accept a parameter by the name of its CUDA type.
            return result.replace("torch.", "torch.cuda.", 1)
        return result


class _Stream:
    """A CUDA stream or event of a device that has only one queue: all of its methods are no-ops."""

    def __init__(self, *_args: object, **_kwargs: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None


def _stand_ins() -> dict[str, object]:
    """torch.cuda's public names -> what they mean where the CPU is the device."""

    def nothing(*_args: object, **_kwargs: object) -> None: ...

    stream = _Stream()
    return {
        "current_device": lambda: _CPU,
        "synchronize": nothing,
        "empty_cache": nothing,
        "set_device": nothing,
        "Stream": _Stream,
        "Event": _Stream,
        "current_stream": lambda *_args: stream,
        "default_stream": lambda *_args: stream,
        "stream": lambda *_args: contextlib.nullcontext(),
        "get_rng_state": lambda *_args: torch.get_rng_state(),
        "set_rng_state": lambda state, *_args: torch.set_rng_state(state),
        "manual_seed": torch.manual_seed,
    }


@contextlib.contextmanager
def cpu_device() -> Iterator[None]:
    """While entered, in this thread, CUDA means the CPU; RuntimeError where there is a GPU."""
    if torch.cuda.is_available():
        raise RuntimeError("cpu_device() on a machine with a GPU would hide it")
    stand_ins = _stand_ins()
    originals = {name: getattr(torch.cuda, name) for name in stand_ins}
    for name, stand_in in stand_ins.items():
        setattr(torch.cuda, name, stand_in)
    try:
        with _CudaMeansCpu():
            yield
    finally:
        for name, original in originals.items():
            setattr(torch.cuda, name, original)
