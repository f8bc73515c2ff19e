"""`python -m trainer --config trainer.json`: the driver of one run on a Ray cluster.

It uses the cluster of RAY_ADDRESS; without that, the one that runs on this machine and, where none
does, one that it starts. RAY_ADDRESS=local always starts one.
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
    """Run; 0 when finished, else one sentence on stderr and 1, or 2 for a bad trainer.json."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="PATH/trainer.json")
    path = parser.parse_args().config
    try:
        run(load_config(path))
    except TrainerError as error:
        if error.__cause__ is not None:  # not foreseen: whoever repairs it needs the traceback
            print(error.__cause__, file=sys.stderr)
        # What an actor raised carries its remote traceback in str(); `cause` is the sentence.
        print(f"error: {getattr(error, 'cause', error)}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def run(config: Config) -> None:
    """The whole run: connect, start both halves, train, take everything down."""
    # Not before the config is read: these imports take seconds, a typing mistake should not.
    from trainer import loop
    from trainer.cluster import colocated, ray_connection
    from trainer.device import choose_device

    start = time.monotonic()
    device = choose_device(config.device)
    address = os.environ.get("RAY_ADDRESS", "auto")
    with ray_connection(address, os.environ, config.work_dir):
        signal.signal(signal.SIGTERM, _unwind)  # Ray's core has set its own, which aborts
        with colocated(config, device) as cluster:
            ranks, engines = cluster.trainer.hosts, cluster.engines.hosts
            print(
                f"up in {time.monotonic() - start:.1f} s:"
                f" {len(ranks)} trainer ranks on {_fold(ranks)};"
                f" {len(engines)} engines on {_fold(engines)};"
                f" {max(cluster.trainer.parameters):,} parameters a rank",
                flush=True,
            )
            loop.run(config, cluster)


def _fold(hosts: list[str]) -> str:
    return ", ".join(dict.fromkeys(hosts))


def _unwind(number: int, _frame: FrameType | None) -> None:
    """A signal unwinds the stack, so that each actor and process of the run is ended on the way."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
