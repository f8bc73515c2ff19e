"""How long `slurmmiles plan tiny --json` takes: `python benchmarks/plan_time.py`."""

from __future__ import annotations

from paired import compare

if __name__ == "__main__":
    compare(("-m", "slurmmiles", "plan", "tiny", "--json"), "slurmmiles plan tiny --json")
