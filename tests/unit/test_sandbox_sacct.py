"""The sandbox's stand-in for sacct, on recorded text."""

from __future__ import annotations

import pytest

from slurmmiles.sandbox import sacct

# scontrol show job -o and jobcomp/filetxt of Slurm 22.05.8, with fewer keys
REMEMBERED = (
    "JobId=701 ArrayJobId=700 ArrayTaskId=0 JobName=a b=c d UserId=root(0) JobState=COMPLETED"
    " Reason=None Restarts=0 ExitCode=0:0 RunTime=00:00:02 Partition=main AllocNode:Sid=ctl:0"
    " NodeList=node01 BatchHost=node01 NumNodes=1 CPUs/Task=1 WorkDir=/root StdErr=/dev/null \n"
    "JobId=703 JobName=wrap UserId=root(0) JobState=PENDING Reason=Priority ExitCode=0:0"
    " RunTime=00:00:00 Partition=main AllocNode:Sid=ctl:0 NodeList=(null) NumNodes=2 WorkDir=/ \n"
)
COMPLETED = (
    "JobId=690 UserId=root(0) GroupId=root(0) Name=old JobState=FAILED Partition=main"
    " NodeList=node[01-02] NodeCnt=2 ProcCnt=2 WorkDir=/root ReservationName= ExitCode=7:0 \n"
    "JobId=701 UserId=root(0) GroupId=root(0) Name=a b=c d JobState=REQUEUED Partition=main"
    " NodeList=node01 NodeCnt=1 ArrayJobId=700 ArrayTaskId=0 DerivedExitCode=0:0 ExitCode=0:0 \n"
)


def jobs() -> list[sacct.Job]:
    return sacct.merge(sacct.parse_jobs(REMEMBERED), sacct.parse_jobs(COMPLETED))


def row(job: sacct.Job) -> list[str]:
    return [
        sacct.cell(job, field) for field in ("JobID", "JobName", "State", "NodeList", "ExitCode")
    ]


def test_sacct_knows_old_jobs_and_takes_slurmctlds_word_for_new_ones() -> None:
    assert [row(job) for job in jobs()] == [
        ["690", "old", "FAILED", "node[01-02]", "7:0"],
        ["700_0", "a b=c d", "COMPLETED", "node01", "0:0"],
        ["703", "wrap", "PENDING", "None assigned", "0:0"],
    ]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("", ["690", "701", "703"]),
        ("690,703", ["690", "703"]),
        ("700", ["701"]),
        ("700_[0-3%2]", ["701"]),
    ],
)
def test_sacct_selects_by_job_array_or_task(wanted: str, found: list[str]) -> None:
    assert [job["JobId"] for job in sacct.selected(jobs(), wanted)] == found


def test_sacct_prints_as_asked() -> None:
    rows = [["JobID", "State"], ["7", "FAILED"]]
    assert sacct.table(rows, "") == "JobID|State\n7|FAILED\n"
    assert sacct.table(rows, "|") == "JobID|State|\n7|FAILED|\n"
    assert sacct.table(rows, None) == "JobID  State\n    7 FAILED\n"


def test_sacct_refuses_a_field_it_does_not_keep(capsys: pytest.CaptureFixture[str]) -> None:
    assert sacct.main(["/var/lib/box", "-o", "JobID,MaxRSS"]) == 1
    assert "no 'maxrss' without slurmdbd" in capsys.readouterr().err
