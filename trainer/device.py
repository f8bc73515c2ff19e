"""The one place that knows the device: what Megatron, torch, Ray and SGLang hear of it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import torch

from trainer.cpu_device import cpu_device
from trainer.errors import ConfigError

CPU_KERNELS = Path(__file__).parent / "cpu_kernels"  # stand-ins for packages without a CPU build


@dataclass(frozen=True, slots=True)
class Device:
    """`collectives` is torch.distributed's backend; the engine fields go to SGLang as they are."""

    name: str
    collectives: str
    dtype: torch.dtype
    gpus_per_rank: int
    engine_path: tuple[Path, ...] = ()
    engine_env: dict[str, str] = field(default_factory=dict)
    engine_args: dict[str, object] = field(default_factory=dict)

    def session(self) -> contextlib.AbstractContextManager[None]:
        """What a trainer rank stays inside of for its whole life."""
        return cpu_device() if self.name == "cpu" else contextlib.nullcontext()


CPU = Device(
    name="cpu",
    collectives="gloo",
    dtype=torch.float32,
    gpus_per_rank=0,
    engine_path=(CPU_KERNELS,),
    engine_env={"SGLANG_USE_CPU_ENGINE": "1"},
    # float32 on both sides keeps the log-prob difference at rounding error. Overlapped scheduling
    # needs a GPU; a scheduler that spins while it is idle would take a core from training; a cache
    # pool of the default size would take a tenth of the machine's memory.
    engine_args={
        "device": "cpu",
        "dtype": "float32",
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "disable_overlap_schedule": True,
        "sleep_on_idle": True,
        "max_total_tokens": 8192,
    },
)


def choose_device(name: str) -> Device:
    """The device that config key `device` names; raises ConfigError where it cannot be used."""
    if name != "cpu":
        raise ConfigError(f"trainer.json: device: {name!r} is not supported yet, only 'cpu' is")
    if torch.cuda.is_available():
        raise ConfigError("trainer.json: device: 'cpu' needs a machine or a torch without CUDA")
    return CPU
