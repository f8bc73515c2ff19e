"""What a GPU is, as far as a plan needs it: the schema of `configs/gpus/*.yaml`.

Pure data: reading the file is `yamlfile`'s work. Each value's source stands beside it in its file.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MIB = 1024 * 1024

Architecture = Literal["ampere", "ada", "hopper", "blackwell"]


class GpuFacts(BaseModel):
    """One kind of GPU in one kind of node."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    """The name on the command line: `--gpu H200`."""
    architecture: Architecture
    memory_mib: int = Field(gt=0, lt=10_000_000)
    """`memory.total` of nvidia-smi, which is less than the product's name says."""
    bf16_tflops: float = Field(gt=0)
    """Peak of dense bf16 matrix multiplication (without sparsity), TFLOP/s."""
    fp8_tflops: float | None = Field(default=None, gt=0)
    """Peak of dense fp8, TFLOP/s; None: no fp8 tensor cores."""
    nvlink_gb_s: float = Field(ge=0)
    """NVLink bandwidth of one GPU, both directions together, GB/s; 0: none."""
    gpus_per_node: int = Field(gt=0, le=64)
    host_link: str
    """How the GPU reaches the host's memory, in words."""
    host_link_gb_s: float = Field(gt=0)
    """Its bandwidth in one direction, GB/s."""
    first_kernels_slow: bool = False
    """The first kernels compile for minutes, so a rollout engine's first health check must wait."""

    @property
    def memory_gb(self) -> float:
        """Capacity in GB (1e9 bytes): H200's 143,771 MiB are 150.8 GB."""
        return self.memory_mib * MIB / 1e9

    @property
    def supports_fp8(self) -> bool:
        return self.fp8_tflops is not None
