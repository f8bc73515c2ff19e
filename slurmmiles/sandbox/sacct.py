"""The sandbox's stand-in for sacct(1): real states of real jobs, without slurmdbd.

    python -m slurmmiles.sandbox.sacct DIR [-j JOBS] [-o FIELDS] [-P | -p] [-n] [-X]

Jobs come from `scontrol show job` while slurmctld remembers them (MinJobAge), and after that from
what jobcomp/filetxt wrote. One row per job and none per step, so -X and -D change nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from slurmmiles import shell
from slurmmiles.hostlist import expand
from slurmmiles.sandbox.layout import SandboxDir

# sacct's field -> how sacct writes its name, and the keys of scontrol(1) and jobcomp that hold it
FIELDS: dict[str, tuple[str, ...]] = {
    "JobID": ("JobId",),
    "JobIDRaw": ("JobId",),
    "JobName": ("JobName", "Name"),
    "Partition": ("Partition",),
    "State": ("JobState",),
    "ExitCode": ("ExitCode",),
    "NodeList": ("NodeList",),
    "NNodes": ("NumNodes", "NodeCnt"),
    "Start": ("StartTime",),
    "End": ("EndTime",),
    "Elapsed": ("RunTime",),
    "Restarts": ("Restarts",),
    "Reason": ("Reason",),
    "WorkDir": ("WorkDir",),
}
DEFAULT_FIELDS = "JobID,JobName,Partition,State,ExitCode"
_KEY = r"[A-Z][\w:/]*="  # every key begins so, and a word of a job name seldom does
_PAIR = re.compile(rf"(?:^|\s)({_KEY})(.*?)(?=\s{_KEY}|$)")

Job = dict[str, str]


def parse_jobs(text: str) -> list[Job]:
    """Jobs of `scontrol show job -o` or of jobcomp/filetxt: a line of KEY=VALUE each."""
    lines = [line.rstrip() for line in text.splitlines() if line.startswith("JobId=")]
    return [{key[:-1]: value for key, value in _PAIR.findall(line)} for line in lines]


def job_id(job: Job) -> str:
    """As sacct writes it: `12`, or `12_3` for a task of an array."""
    if "ArrayJobId" in job:
        return f"{job['ArrayJobId']}_{job.get('ArrayTaskId', '*')}"
    return job["JobId"]


def merge(remembered: list[Job], completed: list[Job]) -> list[Job]:
    """One Job per id, in the order of ids; slurmctld's word wins over what an end left behind."""
    by_id = {job["JobId"]: job for job in [*completed, *remembered]}
    return [by_id[key] for key in sorted(by_id, key=int)]


def selected(jobs: list[Job], wanted: str) -> list[Job]:
    """The jobs that -j names: ids, arrays (all tasks), `12_3`, `12_[0-3]`; without -j, all."""
    if not wanted:
        return jobs
    names = set(expand(re.sub(r"%\d+", "", wanted)))
    return [job for job in jobs if names & {job["JobId"], job_id(job), job.get("ArrayJobId")}]


def cell(job: Job, field: str) -> str:
    """The job's value of one of FIELDS; empty when neither source knows it."""
    if field == "JobID":
        return job_id(job)
    value = next((job[key] for key in FIELDS[field] if key in job), "")
    return "None assigned" if field == "NodeList" and value in ("", "(null)") else value


def table(rows: list[list[str]], end: str | None) -> str:
    """Rows in columns, or (with `end`, "" or "|") separated by `|` as --parsable2 and -p print."""
    if end is not None:
        return "".join("|".join(row) + f"{end}\n" for row in rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[word.rjust(width) for word, width in zip(row, widths, strict=True)] for row in rows]
    return "".join(" ".join(line) + "\n" for line in lines)


def parser() -> argparse.ArgumentParser:
    """The options of sacct(1) that the stand-in answers to."""
    options = argparse.ArgumentParser(prog="sacct", description=__doc__.partition("\n")[0])
    options.add_argument("directory", type=Path)
    options.add_argument("-j", "--jobs", action="append", default=[])
    options.add_argument("-o", "--format", default=DEFAULT_FIELDS)
    options.add_argument("-P", "--parsable2", dest="end", action="store_const", const="")
    options.add_argument("-p", "--parsable", dest="end", action="store_const", const="|")
    options.add_argument("-n", "--noheader", action="store_true")
    options.add_argument("-X", "--allocations", action="store_true")
    options.add_argument("-D", "--duplicates", action="store_true")
    return options


def main(arguments: list[str]) -> int:
    """Answer one call; exit 1 with a sentence for a field that is not kept here."""
    asked = parser().parse_args(arguments)
    spelling = {field.lower(): field for field in FIELDS}
    names = [name.partition("%")[0].lower() for name in asked.format.split(",") if name]
    if unknown := [name for name in names if name not in spelling]:
        known = ",".join(FIELDS)
        print(f"sacct: no {unknown[0]!r} without slurmdbd; there are {known}", file=sys.stderr)
        return 1
    fields = [spelling[name] for name in names]
    completed = SandboxDir(asked.directory).completions.read_text()
    remembered = shell.run(["scontrol", "show", "job", "-o"], timeout=30).stdout
    jobs = selected(merge(parse_jobs(remembered), parse_jobs(completed)), ",".join(asked.jobs))
    header = [] if asked.noheader else [fields]
    rows = [*header, *([cell(job, field) for field in fields] for job in jobs)]
    sys.stdout.write(table(rows, asked.end))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
