"""Each mistake is answered with exit 2 and one sentence that says what, where and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmmiles import shell
from slurmmiles.shell import Completed

Refused = Callable[..., str]
Cli = Callable[..., Completed]

COMMAND_LINES = [
    (["plna", "tiny"], "there is no command 'plna'; did you mean 'plan'?"),
    (["plan"], "Missing argument 'RECIPE'"),
    (["plan", "tiny", "--noodes", "2"], "--noodes"),
    (["plan", "tinny"], "RECIPE: unknown recipe 'tinny'; did you mean 'tiny'?"),
    (["plan", "tiny", "--site", "genric"], "--site: unknown site 'genric'; did you mean 'gen"),
    (["plan", "gate-check", "--gpu", "h20"], "--gpu: unknown gpu 'h20'; did you mean 'h200'?"),
    (["recipes", "show", "tinny"], "unknown recipe 'tinny'; did you mean 'tiny'?"),
    (["sites", "show", "labtop"], "unknown site 'labtop'; did you mean 'laptop'?"),
    (["plan", "tiny", "--nodes", "0"], "--nodes: 0 nodes were asked for; give 1 to 8192"),
    (["plan", "tiny", "--nodes", "-1"], "--nodes: -1 nodes were asked for; give 1 to 8192"),
    (["plan", "tiny", "--nodes", "abc"], "'--nodes': 'abc' is not a valid integer"),
    (["plan", "tiny", "--nodes", "1e3"], "'--nodes': '1e3' is not a valid integer"),
    (["plan", "tiny", "--spares", "-1"], "--spares: -1 spares were asked for"),
    (["plan", "tiny", "--gpus-per-node", "-1"], "--gpus-per-node: -1 GPUs per node were"),
    (["plan", "tiny", "--set", "slurm.nodse=2"], "unknown key 'slurm.nodse'; did you mean 'nodes'"),
    (["plan", "tiny", "--set", "slurm"], "--set: 'slurm' is not of the form a.b=value"),
    (["plan", "tiny", "--set", "slurm.time=30"], "--set slurm.time: slurm.time = 30: a time lim"),
    (["plan", "tiny", "--set", "slurm.nodes=two"], "--set slurm.nodes: slurm.nodes = 'two': inp"),
    (["plan", "tiny", "--set", "name=a b"], "--set name: name = 'a b': a name"),
    (["plan", "tiny", "--set", "name=$(id)"], "--set name: name = '$(id)': a name"),
    (
        ["plan", "tiny", "--set", "optimizer.lr=.inf"],
        "optimizer.lr = inf: input should be a finite",
    ),
    (["plan", "tiny", "--set", "env.HF_TOKEN=x"], "HF_TOKEN holds a secret"),
    (["render", "tiny", "--set", 'slurm.partition="a\\nb"'], "control characters are not allowed"),
    (["plan", "tiny", "--set", "slurm.extra.nodes=3"], "'nodes' is decided by the plan; remove it"),
    (["plan", "missing.yaml"], "missing.yaml: cannot read this file: No such file or directory"),
    (["plan", "./folder"], "folder: cannot read this file: Is a directory; check the path"),
    (["plan", "/" + "x" * 300], "cannot read this file: File name too long"),
    (["status"], "there are no runs here; submit one, or name its place with --runs"),
    (["status", "nothing"], "there is no run 'nothing'; there are no runs here"),
    (["status", "x" * 300], "File name too long"),
    (["logs"], "there are no runs here"),
    (["cancel", "nothing"], "there is no run 'nothing'"),
    (["attach", "nothing"], "there is no run 'nothing'"),
    (["submit", "tiny"], "there is no Slurm on this machine (no sbatch on PATH); log in to a"),
    (["submit", "tiny", "--local", "--run-id", "a b"], "--run-id: 'a b' cannot be a run id; use"),
    (["submit", "tiny", "--local", "--run-id", ""], "--run-id: '' cannot be a run id; use"),
    (["submit", "tiny", "--local", "--run-id", "."], "--run-id: '.' cannot be a run id; use"),
    (["submit", "tiny", "--local", "--run-id", "../up"], "--run-id: '../up' cannot be a run id"),
    (["submit", "tiny", "--local", "--run-id", "/tmp/x"], "--run-id: '/tmp/x' cannot be a run id"),
    (["submit", "tiny", "--local", "--run-id=-x"], "--run-id: '-x' cannot be a run id; use"),
    (["submit", "tiny", "--local", "--run-id", "$(id)"], "--run-id: '$(id)' cannot be a run id"),
    (["submit", "tiny", "--local", "--run-id", "x" * 300], "cannot be a run id; use at most 100"),
    (["submit", "tiny", "--local", "--spares", "1"], "--spares: a local run has no spare nodes"),
    (["submit", "tiny", "--local", "--runs", "/proc/x"], "the run directory cannot be written to:"),
    (["submit", "tiny", "--local", "--runs", "/dev/null/x"], "cannot be written to: Not a direct"),
    (["submit", "tiny", "--local", "--runs", "/" + "x" * 300], "File name too long"),
]


@pytest.mark.parametrize(
    ("argv", "sentence"), COMMAND_LINES, ids=[" ".join(a)[:50] for a, _ in COMMAND_LINES]
)
def test_a_mistake_on_the_command_line(
    refused: Refused, home: Path, argv: list[str], sentence: str
) -> None:
    (home / "work" / "folder").mkdir()
    assert sentence in refused(*argv)


@pytest.mark.parametrize(
    ("argv", "sentence"), COMMAND_LINES[::6], ids=[" ".join(a)[:50] for a, _ in COMMAND_LINES[::6]]
)
def test_a_mistake_ends_the_process_with_exit_2_and_one_sentence(
    cli: Cli,
    home: Path,
    list_below: Callable[[Path], list[str]],
    sentence_of: Callable[[str], str],
    argv: list[str],
    sentence: str,
) -> None:
    before = list_below(home)
    answer = cli(*argv)
    assert answer.returncode == 2
    assert sentence in sentence_of(answer.stderr)
    assert answer.stdout == "" and list_below(home) == before


FILES = [
    (b"slurm:\n  node: 2\n", "r.yaml:2: unknown key 'slurm.node'; did you mean 'nodes'?"),
    (b"slurm: {nodes: '2'}\n", "r.yaml:1: slurm.nodes = '2': input should be a valid integer; wri"),
    (b"slurm:\n\n  time: 30\n", "r.yaml:3: slurm.time = 30: a time limit is written"),
    (b"slurm:\n  nodes: 1\n  nodes: 2\n", "r.yaml:3: this is not YAML: found duplicate key"),
    (b"slurm:\n\tnodes: 2\n", "r.yaml:2: this is not YAML: found character '\\t'"),
    (b"\xff\xfe\x00", "r.yaml: cannot read this file: it is not UTF-8 text"),
    (b"", "recipe 'r' trains a model but names none"),
    (b"- tiny\n", "r.yaml:1: the file's top level must be `key: value` lines"),
    (
        b"driver: {entry: gate-check}\nenv: {WANDB_API_KEY: x}\n",
        "recipe r, env: WANDB_API_KEY holds a secret",
    ),
    (b"model: {facts: tinny}\n", "model.facts: unknown model 'tinny'; did you mean 'tiny'?"),
]


@pytest.mark.parametrize(("content", "sentence"), FILES, ids=[s[:40] for _, s in FILES])
def test_a_mistake_in_a_recipe_file(
    refused: Refused, home: Path, content: bytes, sentence: str
) -> None:
    (home / "work" / "r.yaml").write_bytes(content)
    assert sentence in refused("plan", "r.yaml")


def test_a_mistake_in_a_site_file(refused: Refused, home: Path) -> None:
    (home / "work" / "s.yaml").write_text("scratch: /tmp\nhost_pattern: '('\nenv: {X_TOKEN: 1}\n")
    said = refused("plan", "tiny", "--site", "s.yaml")
    assert "s.yaml:2: host_pattern = '(': this is not a regular expression" in said
    (home / "work" / "s.yaml").write_text("env: {X_TOKEN: 1}\n")
    assert "site s, env: X_TOKEN holds a secret" in refused("plan", "tiny", "--site", "s.yaml")


def test_a_recipe_that_the_user_broke_is_named_by_its_file(refused: Refused, home: Path) -> None:
    folder = home / "slurmmiles" / "recipes"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("slrum: {}\n")
    said = refused("recipes", env={"XDG_CONFIG_HOME": str(home)})
    assert f"{folder}/mine.yaml:1: unknown key 'slrum'" in said


@pytest.fixture
def sbatch(home: Path) -> dict[str, str]:
    """An sbatch on PATH that must not be called: it would leave a file."""
    (home / "bin").mkdir()
    (home / "bin" / "sbatch").write_text(f"#!/bin/bash\ntouch {home}/called\n")
    (home / "bin" / "sbatch").chmod(0o755)
    return {"PATH": f"{home}/bin:/usr/bin:/bin", "SLURM_CONF": "/nonexistent/slurm.conf"}


@pytest.mark.parametrize("where", ["/tmp/runs", "/dev/shm/runs", "/var/tmp/x", "/run/x", "work"])
def test_a_run_directory_that_other_nodes_do_not_see(
    refused: Refused, sbatch: dict[str, str], home: Path, where: str
) -> None:
    folder = str(home / where)  # an absolute path stays what it is
    if not folder.startswith(("/tmp", "/dev/shm", "/var/tmp", "/run")):
        pytest.skip("pytest's temporary directories are not under /tmp here")
    said = refused("submit", "tiny", "--runs", folder, env=sbatch)
    assert "the run directory is not shared with the nodes" in said
    assert "choose a directory on the cluster's shared filesystem with --runs DIR" in said


def test_a_run_that_still_runs_is_not_submitted_again(refused: Refused, home: Path) -> None:
    run = home / "work" / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "plan.json").write_text("{}")
    (run / "submission.json").write_text("[1]")
    said = refused("submit", "tiny", "--local", "--run-id", "mine")
    assert "submission.json: this file is not what this version of slurmmiles writes" in said
    assert "not what this version of slurmmiles writes" in refused("status", "mine")


def test_a_sandbox_that_is_not_there_is_named(refused: Refused) -> None:
    said = refused("sandbox", "status", "--dir", "/nonexistent/sandbox")
    assert "no sandbox is up" in said or "root" in said


def test_a_full_disk_is_a_sentence(home: Path, sentence_of: Callable[[str], str]) -> None:
    script = f"{sys.executable} -m slurmmiles plan tiny --json > /dev/full"
    env = {"PYTHONPATH": str(Path(shell.__file__).parents[1]), "HOME": str(home)}
    done = shell.run(["bash", "-c", script], env=env, cwd=home)
    assert done.returncode == 2
    assert sentence_of(done.stderr).startswith("No space left on device")
