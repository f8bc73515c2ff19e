"""The checks of `doctor`: what this machine, from which runs are submitted, has and lacks."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which

from slurmmiles import shell
from slurmmiles.errors import BadInput
from slurmmiles.report import Finding, Verdict
from slurmmiles.site import Site
from slurmmiles.sitecheck import judge_site
from slurmmiles.siteinit import look
from slurmmiles.submit import refuse_node_local

SLURM_TOOLS = ("sbatch", "srun", "squeue", "scontrol", "scancel")
CORE = ("submitit", "ray", "click", "pydantic", "jinja2", "ruamel.yaml", "psutil")
TRAINER = ("torch", "megatron-core", "sglang", "transformers")
GPU = ("transformer-engine", "flash-attn")
ASK_S = 10.0


def examine(runs: Path, site: Site | None = None) -> Iterator[Finding]:
    """Findings about Slurm, the site file, the run directory, containers and packages."""
    yield from _slurm()
    if site is not None:
        yield from judge_site(site, look())
    yield from _run_directory(runs)
    yield from _containers()
    yield from _packages()


def _slurm() -> Iterator[Finding]:
    missing = [tool for tool in SLURM_TOOLS if which(tool) is None]
    if missing:
        yield Finding(
            code="slurm_tools",
            verdict=Verdict.WARN,
            subject="slurm",
            message=f"not on PATH: {', '.join(missing)}; only --local runs can be started here",
            remedy="log in to a cluster, or try `slurmmiles sandbox up`",
        )
        return
    ping = shell.run(["scontrol", "ping"], timeout=ASK_S)
    said = " ".join((ping.stdout or ping.stderr).split())[:200]
    up = ping.ok and "UP" in ping.stdout
    yield Finding(
        code="slurm_controller",
        verdict=Verdict.PASS if up else Verdict.FAIL,
        subject="slurm",
        message=said or "scontrol ping said nothing",
        remedy="" if up else "slurmctld does not answer: try later, or ask the site",
    )
    accounting = which("sacct") is not None and shell.run(["sacct", "--noheader"], timeout=ASK_S).ok
    yield Finding(
        code="slurm_accounting",
        verdict=Verdict.PASS if accounting else Verdict.WARN,
        subject="sacct",
        message=(
            "accounting answers"
            if accounting
            else "no accounting; result.json and squeue are used instead"
        ),
    )


def _run_directory(runs: Path) -> Iterator[Finding]:
    parent = next(p for p in (runs, *runs.parents) if p.exists())
    if not _can_write(parent):
        yield Finding(
            code="runs_writable",
            verdict=Verdict.FAIL,
            subject=str(runs),
            message=f"{parent} cannot be written to",
            remedy="choose another directory with --runs DIR",
        )
        return
    try:
        refuse_node_local(runs)
    except BadInput as problem:
        yield Finding(
            code="runs_shared",
            verdict=Verdict.WARN,
            subject=str(runs),
            message=problem.what,
            remedy=problem.fix,
        )
        return
    yield Finding(
        code="runs_shared",
        verdict=Verdict.PASS,
        subject=str(runs),
        message=(
            "writable, and not on a filesystem known to be node-local; each run proves that it is"
            " shared"
        ),
    )


def _can_write(folder: Path) -> bool:
    """By doing it: permissions alone say nothing on a read-only or full filesystem."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError:
        return False
    return True


def _containers() -> Iterator[Finding]:
    found = [name for name in ("enroot", "apptainer", "singularity", "podman") if which(name)]
    yield Finding(
        code="container_runtime",
        verdict=Verdict.PASS,
        subject="containers",
        message=(
            ", ".join(found) if found else "none on PATH (runs without a container do not need one)"
        ),
    )


def _packages() -> Iterator[Finding]:
    yield Finding(
        code="python",
        verdict=Verdict.PASS,
        subject="python",
        message=f"{platform.python_version()} on {platform.machine()}",
    )
    for names, absent, why in (
        (CORE, Verdict.FAIL, "install slurmmiles again"),
        (TRAINER, Verdict.WARN, "the native trainer needs it: pip install 'slurmmiles[trainer]'"),
        (GPU, Verdict.PASS, ""),
    ):
        for name in names:
            try:
                yield Finding(
                    code="package", verdict=Verdict.PASS, subject=name, message=version(name)
                )
            except PackageNotFoundError:
                yield Finding(
                    code="package",
                    verdict=absent,
                    subject=name,
                    message="not installed",
                    remedy=why,
                )
