"""`python -m trainer --config trainer.json`: the driver of one run, on the Ray cluster of RAY_ADDRESS.

Without RAY_ADDRESS the running cluster of this machine is used and, where there is none, one is started.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from trainer.config import Config, load_config
from trainer.errors import TrainerError


def main() -> int:
    """Run; 0 when finished, else one sentence on stderr and 1, or 2 for a trainer.json that cannot work."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="PATH/trainer.json")
    path = parser.parse_args().config
    signal.signal(signal.SIGTERM, _unwind)
    try:
        run(load_config(path))
    except TrainerError as error:
        # Out of an actor comes the error with its remote traceback; the person needs the sentence.
        print(f"error: {getattr(error, 'cause', error)}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def run(config: Config) -> None:
    """The whole run: connect, start both halves, train, take everything down."""
    # After parsing: torch and Ray take seconds to import, which a typing mistake should not.
    from trainer import loop
    from trainer.cluster import colocated, ray_connection
    from trainer.device import choose_device

    start = time.monotonic()
    device = choose_device(config.device)
    with (
        ray_connection(os.environ.get("RAY_ADDRESS", "auto")),
        colocated(config, device) as cluster,
    ):
        ranks, engines = cluster.trainer.hosts, cluster.engines.hosts
        print(
            f"up in {time.monotonic() - start:.1f} s: {len(ranks)} trainer ranks on {_fold(ranks)},"
            f" {len(engines)} engines on {_fold(engines)}, {cluster.trainer.parameters} parameters",
            flush=True,
        )
        loop.run(config, cluster)


def _fold(hosts: list[str]) -> str:
    return ", ".join(dict.fromkeys(hosts))


def _unwind(number: int, _frame: FrameType | None) -> None:
    """A signal unwinds the stack, so that every actor and process of the run is ended on the way out."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
