from __future__ import annotations

from typing import Any

from slurmmiles.nodefacts import NodeFacts
from slurmmiles.planfile import EnvValue
from slurmmiles.preflight.environment import judge_environment, judge_seen, known_env
from slurmmiles.report import Finding, Verdict
from tests.unit.fabric_trees import nics_of, verbs


def facts(node: str, env: dict[str, str], **changes: Any) -> NodeFacts:
    known: dict[str, Any] = {
        "node": node,
        "hostname": node,
        "address": "10.0.0.1",
        "interface": "eth0",
        "addresses": {"eth0": "10.0.0.1"},
        "resolves_to": ("10.0.0.1",),
        "ephemeral_floor": 32768,
        "port_base": 20000,
        "cpus": 8,
        "memory_bytes": 1,
        "shm_bytes": 1,
        "limits": {},
        "gpus": 8,
        "nics": nics_of(verbs(["mlx5_0", "mlx5_1"])),
        "env": {name: EnvValue(value=value, origin="site s") for name, value in env.items()},
    }
    return NodeFacts(**{**known, **changes})


def codes(findings: list[Finding]) -> dict[str, str]:
    return {f.subject: f.code for f in findings if f.verdict is Verdict.FAIL}


def test_what_a_node_says_against_itself_is_kept() -> None:
    own = Finding(code="fabric_not_found", verdict=Verdict.FAIL, subject="b", message="x")
    assert codes(judge_environment([facts("a", {}), facts("b", {}, findings=(own,))])) == {
        "b": "fabric_not_found"
    }


def test_a_list_or_an_interface_that_a_node_does_not_have_is_named_by_the_node() -> None:
    good = {"NCCL_IB_HCA": "=mlx5_0,mlx5_1", "GLOO_SOCKET_IFNAME": "{interface}"}
    assert codes(judge_environment([facts("a", good), facts("b", good)])) == {}
    wrong = facts("b", {**good, "NCCL_IB_HCA": "=mlx5_0,mlx5_9"})
    assert codes(judge_environment([facts("a", good), wrong])) == {"b": "hca_list_invalid_on_node"}
    lost = facts("b", {**good, "GLOO_SOCKET_IFNAME": "eno9"})
    assert codes(judge_environment([facts("a", good), lost])) == {
        "b": "socket_ifname_missing_on_node"
    }


def test_a_value_that_only_the_agent_can_fill_in_is_not_compared() -> None:
    node = facts("a", {"TMPDIR": "{scratch}", "GLOO_SOCKET_IFNAME": "{interface}"})
    assert known_env(node) == {"GLOO_SOCKET_IFNAME": "eth0"}


def test_what_rays_workers_see_is_compared_with_what_was_resolved() -> None:
    nodes = [facts("a", {"NCCL_NET": "IB"}), facts("b", {"NCCL_NET": "IB"})]
    same: dict[str, dict[str, str | None]] = {n: {"NCCL_NET": "IB"} for n in ("a", "b")}
    right = judge_seen(nodes, same)
    assert {(f.code, f.subject, f.verdict) for f in right} == {
        ("env_read_back_info", "a", Verdict.PASS),
        ("env_read_back_info", "b", Verdict.PASS),
    }
    assert codes(judge_seen(nodes, {**same, "b": {"NCCL_NET": None}})) == {
        "b": "env_missing_on_worker"
    }
    assert codes(judge_seen(nodes, {**same, "b": {"NCCL_NET": "Socket"}})) == {
        "b": "env_differs_on_worker"
    }
    assert judge_seen(nodes, {}) == []
