from __future__ import annotations

from slurmmiles import gate_words
from slurmmiles.control import Member
from slurmmiles.hostlist import expand


def test_nodes_with_the_same_reason_are_named_together() -> None:
    missing = {"node02": "no task", "node04": "no canary", "node03": "no task"}
    assert gate_words.sentence(16, missing) == (
        "13 of 16 nodes; missing: node[02-03] (no task), node04 (no canary)"
    )
    assert gate_words.sentence(2, {}).startswith("all 2 nodes are there")


def test_unfit_nodes_are_each_named_with_the_reason_and_the_way_round_them() -> None:
    error = gate_words.unfit({"node03": "7 of 8 GPUs", "node11": "no canary"}, 16)
    assert error.exit_code == 3
    assert error.what == "2 of 16 nodes are unfit: node03: 7 of 8 GPUs; node11: no canary"
    assert "--set slurm.exclude='node[03,11]'" in error.fix and "--spares 2" in error.fix
    assert expand("node[03,11]") == ("node03", "node11")


def test_how_far_a_node_came_is_said_from_its_own_report() -> None:
    said = {
        gate_words.ray_state(None if stage is None else Member({"stage": stage}, True))
        for stage in (None, "agent", "ray", "hello")
    }
    assert said == {
        "its agent is up",
        "its agent is up, and has not started ray",
        "ray has been started and is not registered",
    }


def test_the_remedy_names_the_node() -> None:
    assert "scontrol show node node07" in gate_words.remedy("node07")
