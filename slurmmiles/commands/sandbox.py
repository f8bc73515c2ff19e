"""`slurmmiles sandbox`: a real Slurm of simulated nodes on this machine."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import click

from slurmmiles import shell
from slurmmiles.sandbox import enter, faults, lifecycle
from slurmmiles.sandbox.layout import DEFAULT_DIR, LOGIN_NAME, SandboxDir, Spec

DEFAULT = Spec()


def _sandbox_dir(_: click.Context, __: click.Parameter, value: str) -> SandboxDir:
    return SandboxDir(Path(os.path.abspath(value)))


in_dir = click.option(
    "--dir",
    "where",
    default=str(DEFAULT_DIR),
    show_default=True,
    envvar="SLURMMILES_SANDBOX_DIR",
    callback=_sandbox_dir,
    help="Where the sandbox keeps its files (or SLURMMILES_SANDBOX_DIR).",
)


def _here() -> Path:
    """The working directory; / where it was removed under our feet."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


@click.group()
def sandbox() -> None:
    """A real Slurm of simulated nodes on this machine, as root on Debian or Ubuntu.

    \b
    Example: slurmmiles sandbox up --nodes 4 && slurmmiles sandbox exec sinfo
    """


@sandbox.command()
@in_dir
@click.option("--nodes", default=DEFAULT.nodes, show_default=True, help="1 to 16 nodes.")
@click.option("--cpus", default=DEFAULT.cpus, show_default=True, help="CPUs of a node.")
@click.option("--gpus", default=DEFAULT.gpus, show_default=True, help="GPUs of a node, 0 to 16.")
@click.option(
    "--slurmd-timeout",
    default=DEFAULT.slurmd_timeout,
    show_default=True,
    help="Seconds until Slurm gives up a silent node.",
)
@click.option("--topology", is_flag=True, help="Four nodes to a leaf switch (topology/tree).")
@click.option("--share", multiple=True, help="A directory under /tmp that all nodes see.")
@click.option("--force", is_flag=True, help="Restart another size even while jobs run.")
def up(
    where: SandboxDir,
    nodes: int,
    cpus: int,
    gpus: int,
    slurmd_timeout: int,
    topology: bool,
    share: tuple[str, ...],
    force: bool,
) -> None:
    """Start the sandbox and wait until every node is idle.

    Each node has its own processes, host name, address, /tmp and /dev/shm; every other directory
    is the machine's own, as on a shared filesystem. Does nothing if it runs with these sizes.

    \b
    Example: slurmmiles sandbox up --nodes 4
    """
    shared = tuple(os.path.abspath(path) for path in share)
    spec = Spec(nodes, cpus, gpus, slurmd_timeout=slurmd_timeout, topology=topology, share=shared)
    click.echo(lifecycle.up(where, spec, cwd=_here(), force=force))


@sandbox.command()
@in_dir
def down(where: SandboxDir) -> None:
    """End the sandbox, its jobs included, and leave nothing behind.

    \b
    Example: slurmmiles sandbox down
    """
    click.echo("sandbox: down" if lifecycle.down(where) else "sandbox: was not up")


@sandbox.command()
@in_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(where: SandboxDir, as_json: bool) -> None:
    """The state of every node; exit 2 when no sandbox is up.

    \b
    Example: slurmmiles sandbox status --json
    """
    enter.login_pid(where)
    nodes = lifecycle.nodes(where)
    if as_json:
        answer = {"dir": str(where.root), "bin": str(where.bin), "nodes": [*map(asdict, nodes)]}
        click.echo(json.dumps(answer, indent=1))
        return
    for node in nodes:
        click.echo(f"{node.name}  {node.address}  {node.state:<8}  {node.gres}  {node.reason}")


@sandbox.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@in_dir
@click.option("--node", default=LOGIN_NAME, show_default=True, help="ctl (login node) or nodeNN.")
@click.option("--user", help="As this user of the machine instead of root.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec(where: SandboxDir, node: str, user: str | None, command: tuple[str, ...]) -> None:
    """Run a command on a node; its exit code is the command's.

    \b
    Example: slurmmiles sandbox exec sbatch --wait --nodes 2 --wrap 'srun hostname'
    """
    path = enter.without_clients(where, os.environ.get("PATH", os.defpath))
    argv = enter.enter_argv(where, node, command, cwd=_here(), user=user, path=path)
    shell.replace_process(argv)


@sandbox.command()
@in_dir
@click.argument("node")
@click.argument("fault", type=click.Choice(list(faults.FAULTS)))
@click.argument("value", default="")
def fault(where: SandboxDir, node: str, fault: str, value: str) -> None:
    """Break a node, or mend it; VALUE is a path (hide, show) or Mbit/s (throttle).

    \b
    Example: slurmmiles sandbox fault node02 poweroff
    """
    faults.FAULTS[fault](where, node, value)
    click.echo(f"sandbox: {node} {fault} {value}".rstrip())
