"""How long `slurmmiles --help` takes: `python benchmarks/help_time.py`. The promise is that it is
within 250 ms of an empty Python.
"""

from __future__ import annotations

from paired import compare

if __name__ == "__main__":
    compare(("-m", "slurmmiles", "--help"), "slurmmiles --help")
