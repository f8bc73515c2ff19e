"""The runs of a directory: all of them, one by name, and whether one is still at work."""

from __future__ import annotations

from pathlib import Path

from slurmmiles.errors import BadInput, did_you_mean
from slurmmiles.job import Job
from slurmmiles.rundir import RunDir


def refuse_active(run: RunDir) -> None:
    """BadInput when an earlier job of this run id has not ended: two jobs would write the same
    checkpoints.
    """
    if not run.submission.exists():
        return
    state = Job(run).state()
    if not (state.ended or state.state in ("ENDED", "UNKNOWN")):
        raise BadInput(
            f"run {run.run_id!r} has a job that is {state.state}",
            where="--run-id",
            fix="cancel it, wait for its end, or choose another id",
        )


def find_run(runs: Path, name: str | None) -> RunDir:
    """The run called `name` (an id or a path), or the newest; BadInput when there is none."""
    if name and Path(name).is_dir() and RunDir(Path(name)).plan.exists():
        return RunDir(Path(name).resolve())
    known = all_runs(runs)
    if name is None:
        if not known:
            raise BadInput(
                "there are no runs here",
                where=str(runs),
                fix="submit one, or name its place with --runs",
            )
        return known[-1]
    for run in known:
        if run.run_id == name:
            return run
    hint = did_you_mean(name, [r.run_id for r in known]) if known else "there are no runs here"
    raise BadInput(f"there is no run {name!r}", where=str(runs), fix=hint)


def all_runs(runs: Path) -> list[RunDir]:
    """Every run in the directory, oldest submission first; none where there is no directory yet."""
    if not runs.exists():
        return []
    if not runs.is_dir():
        raise BadInput(
            "this is not a directory",
            where=str(runs),
            fix="name the place of your runs with --runs DIR",
        )
    found = [
        RunDir(p)
        for p in runs.iterdir()
        if (p / "plan.json").is_file() and (p / "submission.json").is_file()
    ]
    return sorted(found, key=lambda r: r.submission.stat().st_mtime)
