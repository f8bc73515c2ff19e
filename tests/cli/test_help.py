from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from slurmmiles import __version__, shell
from slurmmiles.cli import COMMANDS, main
from slurmmiles.shell import Completed

ROOT = str(Path(shell.__file__).resolve().parents[1])
HEAVY = ["pydantic", "rich", "ray", "torch", "jinja2", "psutil", "ruamel", "submitit"]


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and subcommand, as the words that a person types."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None, name
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


ALL = list(commands(main))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_the_help_of_every_command_has_an_example_of_itself(words: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(main, [*words, "--help"])
    assert answer.exit_code == 0
    examples = answer.output.partition("Example: ")[2]
    assert f"slurmmiles {' '.join(words)}" in examples
    assert max(len(line) for line in answer.output.splitlines()) <= 100


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_option_and_argument_of_a_command_is_explained(words: tuple[str, ...]) -> None:
    command: click.Command | None = main
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{' '.join(words)} {parameter.name}"


def test_every_command_of_the_contract_is_there() -> None:
    contract = "recipes sites plan render submit status logs cancel attach runs sandbox doctor"
    assert set(contract.split()) <= set(COMMANDS)
    assert {("recipes", "show"), ("sites", "show"), ("sites", "detect")} <= set(ALL)
    assert {("sandbox", name) for name in ("up", "down", "status", "exec")} <= set(ALL)


def test_help_lists_every_command_once(cli: Callable[..., Completed]) -> None:
    for argv in (("--help",), ("-h",)):
        answer = cli(*argv)
        listed = [line.split()[0] for line in answer.stdout.splitlines() if line.startswith("  ")]
        assert [name for name in listed if name in COMMANDS] == list(COMMANDS)
        assert "Example: slurmmiles plan tiny" in answer.stdout
        assert (answer.returncode, answer.stderr) == (0, "")


def test_the_version_is_the_packages(cli: Callable[..., Completed]) -> None:
    assert cli("--version").stdout == f"slurmmiles, version {__version__}\n"


def test_help_waits_for_no_heavy_package() -> None:
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); sys.argv = ['slurmmiles', '--help']\n"
        "from slurmmiles.cli import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = shell.run([sys.executable, "-c", code])
    assert done.stdout.splitlines()[-1] == "loaded: []", done.stderr


@pytest.mark.parametrize("words", [("plan", "tiny", "--json"), ("recipes",), ("render", "tiny")])
def test_looking_waits_for_neither_ray_nor_torch(words: tuple[str, ...]) -> None:
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); sys.argv = ['slurmmiles', *{words!r}]\n"
        "from slurmmiles.cli import run\n"
        "try: run()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print('loaded:', [n for n in ('ray', 'torch', 'megatron', 'sglang') if n in sys.modules])"
    )
    done = shell.run([sys.executable, "-c", code])
    assert done.stdout.splitlines()[-1] == "loaded: []", done.stderr


def test_a_reader_that_leaves_early_is_no_error(cli: Callable[..., Completed]) -> None:
    script = f"{sys.executable} -m slurmmiles plan tiny --json | head -c 1"
    done = shell.run(["bash", "-c", script], env={"PYTHONPATH": ROOT, "PATH": "/usr/bin:/bin"})
    assert (done.stdout, done.stderr) == ("{", "")
