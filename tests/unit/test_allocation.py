from __future__ import annotations

import pytest

from slurmmiles.allocation import Allocation
from slurmmiles.errors import BadInput

STEP = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NODELIST": "node[01-04]",
    "SLURM_STEP_NODELIST": "node[02,04]",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_RESTART_COUNT": "3",
    "SLURMMILES_STARTED": "1767225600",
}


def test_a_task_knows_its_place_in_its_step() -> None:
    a = Allocation.from_env(STEP)
    assert (a.job_id, a.nodes, a.rank, a.restart) == ("12", ("node02", "node04"), 1, 3)
    assert (a.node, a.head, a.is_head, a.is_slurm) == ("node04", "node02", False, True)
    assert a.started == 1_767_225_600.0


def test_the_job_is_the_step_where_slurm_names_no_step() -> None:
    a = Allocation.from_env(
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[2-1]".replace("2-1", "1-2")}
    )
    assert (a.nodes, a.rank, a.restart, a.started, a.is_head) == (("n1", "n2"), 0, 0, None, True)


def test_a_shell_without_the_clock_falls_back_on_slurms() -> None:
    old = {**STEP, "SLURMMILES_STARTED": "", "SLURM_JOB_START_TIME": "5"}
    assert Allocation.from_env(old).started == 5.0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"SLURM_JOB_ID": ""}, "this process is not in a Slurm step"),
        ({"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""}, "this process is not in a Slurm"),
        ({"SLURM_STEP_NODELIST": " "}, "SLURM_NODEID is 1 but the step has 0 nodes"),
        ({"SLURM_STEP_NODELIST": "n[1-"}, "is not a Slurm node list"),
        ({"SLURM_NODEID": "2"}, "SLURM_NODEID is 2 but the step has 2 nodes"),
        ({"SLURM_NODEID": "-1"}, "SLURM_NODEID is -1 but the step has 2 nodes"),
        ({"SLURM_NODEID": "x"}, "SLURM_NODEID: 'x' is not a number"),
        ({"SLURM_RESTART_COUNT": "x" * 200}, "SLURM_RESTART_COUNT: 'x"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, "the step has 2(x2) tasks per node"),
        ({"SLURM_STEP_TASKS_PER_NODE": "x"}, "'x' are not Slurm's counts per node"),
    ],
)
def test_a_task_that_cannot_be_an_agent_says_why(change: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadInput) as raised:
        Allocation.from_env({**STEP, **change})
    assert sentence in str(raised.value)


def test_a_local_run_has_simulated_nodes() -> None:
    a = Allocation.local(
        {
            "SLURMMILES_LOCAL_JOB": "7",
            "SLURMMILES_LOCAL_NODES": "local1,local2",
            "SLURMMILES_LOCAL_RANK": "1",
            "SLURMMILES_STARTED": "1.5",
        }
    )
    assert (a.nodes, a.node, a.is_slurm, a.started) == (("local1", "local2"), "local2", False, 1.5)
