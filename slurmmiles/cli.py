"""`slurmmiles`: the group of commands, loaded one by one, and where errors become sentences.

Nothing but click is imported here: `slurmmiles --help` must not wait for pydantic, rich or ray.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from slurmmiles import __version__
from slurmmiles.errors import SlurmmilesError, did_you_mean

# command: (module of slurmmiles.commands, one line of help)
COMMANDS = {
    "recipes": ("configs", "List the recipes, or show one."),
    "sites": ("configs", "List the sites, show one, or detect this one."),
    "plan": ("plan", "Every decision of a run; touches nothing."),
    "render": ("plan", "The exact sbatch script of a run, to stdout."),
    "submit": ("submit", "Plan, render and submit a run, here or to Slurm."),
    "status": ("runs", "How a run is doing, or how it ended."),
    "logs": ("runs", "What a run's driver or one of its nodes wrote."),
    "cancel": ("runs", "End a run."),
    "attach": ("runs", "A shell on a node of a running job."),
    "runs": ("runs", "List the runs of a directory."),
    "preflight": ("preflight", "Are the nodes and the fabric fit? Judge saved evidence again."),
    "sandbox": ("sandbox", "A real Slurm of simulated nodes on this machine."),
    "doctor": ("doctor", "Is this machine fit to submit from?"),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"slurmmiles.commands.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], list(COMMANDS))
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table, so that help does not import every command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="slurmmiles")
def main() -> None:
    """Reinforcement-learning post-training of very large models on Slurm.

    \b
    Example: slurmmiles plan tiny
             slurmmiles submit tiny --local --wait
             slurmmiles submit --nodes 2 tiny --wait
    """


def run() -> None:
    """The console script: exit codes of errors.py, a sentence and no traceback for a mistake."""
    _open_streams()
    try:
        code: Any = main.main(standalone_mode=False)
        sys.stdout.flush()  # a reader that has left shows here, and not at the interpreter's end
    except SlurmmilesError as error:
        fail(str(error), error.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        fail(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of our output (head, less) has left: not an error, and nobody is there to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}; check this path and its filesystem", 2)
    sys.exit(code if isinstance(code, int) else 0)


def _open_streams() -> None:
    """A closed stdout is nobody's fault, and a terminal that is not UTF-8 gets escapes."""
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def fail(text: str, code: int) -> NoReturn:
    """One sentence on stderr, and the end."""
    click.echo(f"Error: {text}", err=True)
    sys.exit(code)
