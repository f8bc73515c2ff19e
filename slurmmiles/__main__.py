"""`python -m slurmmiles`: the command line, in a process that is called python and not slurmmiles.

A launcher of miles runs `pkill -9 miles` on the node where it starts, and that pattern is in our
script's name.
"""

from slurmmiles.cli import run

if __name__ == "__main__":
    run()
