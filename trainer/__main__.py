"""`python -m trainer --config trainer.json`: the driver of one run, on the Ray cluster of RAY_ADDRESS."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

from trainer.config import load_config
from trainer.errors import TrainerError


def main() -> int:
    """Run; 0 when finished, else one sentence on stderr and 1, or 2 for a bad trainer.json."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="PATH/trainer.json")
    path = parser.parse_args().config
    signal.signal(signal.SIGTERM, _end)
    try:
        config = load_config(path)
        run(config)
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def run(config):
    # After parsing: torch and Megatron take seconds to import, a typing mistake should not.
    from trainer.cluster import colocated, ray_connection
    from trainer.device import choose_device
    from trainer.loop import run as train

    device = choose_device(config.device)
    with ray_connection(os.environ.get("RAY_ADDRESS", "auto"), config.work_dir):
        with colocated(config, device) as cluster:
            train(config, cluster)


def _end(number: int, _frame: FrameType | None) -> None:
    """A signal unwinds the stack, so that every actor and process of the run is ended on the way out."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
