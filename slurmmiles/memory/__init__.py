"""Whether trainer and rollout fit on the GPUs and in the host's memory. Pure arithmetic.

`fit` gives every term in GB (1e9 bytes) at each phase of the colocated cycle, a verdict and notes.
"""

from __future__ import annotations

from slurmmiles.memory.fit import MemoryFit, fit
from slurmmiles.memory.terms import Verdict
from slurmmiles.memory.training import OptimizerMemory, Recompute

__all__ = ["MemoryFit", "OptimizerMemory", "Recompute", "Verdict", "fit"]
