from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmmiles.slurm import (
    ENDED,
    JobState,
    explain_refusal,
    no_cluster,
    parse_sacct,
    parse_scontrol,
    parse_squeue,
    sacct_argv,
    scontrol_argv,
    squeue_argv,
)

# One line of `scontrol show job --oneliner` of Slurm 23.11, as it prints it.
PENDING = (
    "JobId=12 JobName=tiny UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901758 Nice=0"
    " Account=(null) QOS=(null) JobState=PENDING Reason=Resources Dependency=(null) Requeue=1"
    " Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=00:30:00"
    " TimeMin=N/A SubmitTime=2026-01-01T12:00:00 Partition=main AllocNode:Sid=ctl:91"
    " ReqNodeList=(null) ExcNodeList=(null) NodeList=(null) NumNodes=2-2 NumCPUs=4 NumTasks=2"
    " Command=/runs/a JobState=FAILED NodeList=x/job.sbatch WorkDir=/runs Power="
)
RUNNING = PENDING.replace("PENDING Reason=Resources", "RUNNING Reason=None").replace(
    " NodeList=(null)", " NodeList=node[01-02]", 1
)


def test_every_question_names_the_job_and_its_own_format() -> None:
    for argv in (squeue_argv("12"), scontrol_argv("12"), sacct_argv("12")):
        assert any(word in ("12", "--jobs=12") for word in argv)
    assert any(word.startswith("--format=") for word in squeue_argv("1"))
    assert any(word.startswith("--format=") for word in sacct_argv("1"))


def test_squeue_gives_state_reason_and_nodes() -> None:
    assert parse_squeue("RUNNING|None|node[01-02]\n") == JobState(
        "RUNNING", "None", "node[01-02]", source="squeue"
    )
    assert parse_squeue("") is parse_squeue("slurm_load_jobs error: Invalid job id\n") is None
    two = "COMPLETED|None|n1\nPENDING|BeginTime|\n"
    assert parse_squeue(two) == JobState("PENDING", "BeginTime", "", source="squeue")


def test_scontrol_gives_the_first_of_each_field() -> None:
    assert parse_scontrol(PENDING) == JobState("PENDING", "Resources", "", "0:0", "scontrol")
    assert parse_scontrol(RUNNING) == JobState("RUNNING", "None", "node[01-02]", "0:0", "scontrol")
    assert parse_scontrol("slurm_load_jobs error: Invalid job id specified\n") is None


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ("COMPLETED|0:0|node01", JobState("COMPLETED", "", "node01", "0:0", "sacct")),
        ("CANCELLED by 1000|0:15|n1", JobState("CANCELLED", "", "n1", "0:15", "sacct")),
        ("CANCELLED+|0:15|n1", JobState("CANCELLED", "", "n1", "0:15", "sacct")),
        ("FAILED|7:0|n[1-2]", JobState("FAILED", "", "n[1-2]", "7:0", "sacct")),
    ],
)
def test_sacct_gives_the_state_and_the_exit_code(row: str, state: JobState) -> None:
    assert parse_sacct(f"{row}\n") == state


def test_without_accounting_there_is_no_row() -> None:
    assert parse_sacct("") is parse_sacct("Slurm accounting storage is disabled\n") is None
    assert parse_sacct("||\n") is None


@given(st.text(max_size=200) | st.text("JobState=|() \nRUNNING", max_size=200))
def test_random_text_is_no_error(text: str) -> None:
    for parse in (parse_squeue, parse_scontrol, parse_sacct):
        found = parse(text)
        assert found is None or isinstance(found.sentence, str)
    assert all(explain_refusal(text))


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED", ""])
def test_a_state_that_comes_back_is_not_an_end(state: str) -> None:
    assert not JobState(state).ended


def test_every_ended_state_is_one() -> None:
    assert all(JobState(state).ended for state in ENDED)
    assert {"COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "CANCELLED"} <= ENDED


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "it waits for nodes to become free"),
        ("(Priority)", "jobs of higher priority are ahead"),
        ("ReqNodeNotAvail, UnavailableNodes:node03", "a node that it needs is not available"),
        ("ReqNodeNotAvail,_UnavailableNodes:node03", "a node that it needs is not available"),
        ("launch failed requeued held", "its launch failed and Slurm holds it; release it"),
        ("launch_failed_requeued_held", "its launch failed and Slurm holds it; release it"),
        ("SomethingNew", "Slurm's reason is SomethingNew"),
        ("None", ""),
        ("", ""),
    ],
)
def test_the_reason_of_a_waiting_job_is_said_in_words(reason: str, words: str) -> None:
    assert JobState("PENDING", reason).sentence.startswith(words)
    assert JobState("PENDING", reason).sentence == "" or words
    assert JobState("RUNNING", reason).sentence == ""


# Slurm's own sentences (slurm_errno.c) and the word that our advice must hold.
REFUSED = {
    "Invalid partition name specified": "slurm.partition",
    "Invalid account or account/partition combination specified": "slurm.account",
    "Invalid qos specification": "slurm.qos",
    "Node count specification invalid": "fewer nodes",
    "More processors requested than permitted": "fewer nodes",
    "Requested node configuration is not available": "fewer nodes",
    "Requested partition configuration not available now": "fewer nodes",
    "Requested time limit is invalid (missing or exceeds some limit)": "slurm.time",
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)": "qos",
    "Invalid generic resource (gres) specification": "gpu_request",
    "Memory specification can not be satisfied": "slurm.mem",
    "Invalid feature specification": "slurm.constraint",
    "Requested reservation is invalid": "slurm.reservation",
    "Invalid node name specified": "slurm.exclude",
    "Unable to contact slurm controller (connect failure)": "scontrol ping",
    "Something else entirely": "slurmmiles render",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_refusal_keeps_slurms_words_and_adds_what_to_do(words: str) -> None:
    said, fix = explain_refusal(f"sbatch: error: Batch job submission failed: {words}\n")
    assert said == f"Batch job submission failed: {words}"
    assert REFUSED[words] in fix


def test_packages_without_a_cluster_are_told_from_a_cluster() -> None:
    none = (
        "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
        "sbatch: error: fetch_config: DNS SRV lookup failed\n"
        "sbatch: fatal: Could not establish a configuration source\n"
    )
    words, fix = explain_refusal(none)
    assert no_cluster(words) and words.count(";") == 2
    assert "scontrol ping" in fix
    assert not no_cluster("Batch job submission failed: Invalid partition name specified")
