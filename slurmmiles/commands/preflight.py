"""`preflight`: the checks by themselves, and evidence judged again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slurmmiles import show
from slurmmiles.commands.options import json_option, print_json
from slurmmiles.preflight.saved import replay as judge_saved
from slurmmiles.report import Report, Verdict

UNFIT = 3


@click.group()
def preflight() -> None:
    """Are the nodes and the fabric fit?

    \b
    Example: slurmmiles preflight replay runs/qwen3-0007
             slurmmiles preflight replay evidence/ --json
    """


@preflight.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@json_option
def replay(folder: Path, as_json: bool) -> None:
    """Judge a saved run, or a folder of raw tool outputs (topo.txt, gpus.csv, ...), again.

    Exit 3 when something failed. What cannot be read is UNKNOWN, which is no failure.

    \b
    Example: slurmmiles preflight replay runs/tiny-20260101-120000-ab12
    """
    finish(judge_saved(folder), as_json)


def finish(report: Report, as_json: bool) -> None:
    """Print the report and end the process with its code."""
    print_json(report.model_dump(mode="json")) if as_json else show.report(report)
    sys.exit(UNFIT if report.verdict is Verdict.FAIL else 0)
