from __future__ import annotations

import json
from pathlib import Path

from slurmmiles.fabric import node_env_of, resolve_env
from slurmmiles.fabric.across import global_list_note, judge_nodes, judge_read_back
from slurmmiles.nics import NodeNics
from slurmmiles.planfile import FabricPlan
from slurmmiles.recipe import Recipe
from slurmmiles.site import Site
from tests.conftest import Cli
from tests.unit.fabric_trees import nics_of, on_disk, verbs

PLAN = FabricPlan(multi_node=True)


def names_of(node: int) -> list[str]:
    """Eight compute ports, called differently on each of 16 nodes: firmware slots, udev rules."""
    if node % 3 == 0:
        return [f"mlx5_{i}" for i in range(8)]
    if node % 3 == 1:
        return [f"mlx5_{i + node}" for i in range(8)]
    return [f"ibp{node * 8 + i}s0" for i in range(8)]


def sixteen(root: Path) -> dict[str, NodeNics]:
    return {f"n{i:02d}": on_disk(root / f"n{i:02d}", verbs(names_of(i))) for i in range(16)}


def env_of(node: str, nics: NodeNics, site: dict[str, str] | None = None) -> dict[str, str]:
    env = resolve_env(
        Recipe(name="r"), Site(name="s", env=dict(site or {})), device="gpu", user={}, fabric=PLAN
    )
    found = node_env_of(node, env, PLAN, nics, inherited={}, plugins={})
    return {name: entry.value for name, entry in found.table.items()}


def test_each_of_16_nodes_with_other_names_gets_its_own_list(tmp_path: Path) -> None:
    nodes = sixteen(tmp_path)
    for i, (node, nics) in enumerate(nodes.items()):
        assert env_of(node, nics)["NCCL_IB_HCA"] == "=" + ",".join(names_of(i))
    assert len({env_of(n, x)["NCCL_IB_HCA"] for n, x in nodes.items()}) == 11


def test_the_nodes_own_lists_are_right_and_one_list_for_all_is_not(tmp_path: Path) -> None:
    nodes = sixteen(tmp_path)
    interfaces = {node: ("lo", "{interface}") for node in nodes}
    own = {node: env_of(node, nics) for node, nics in nodes.items()}
    assert [f for f in judge_nodes(own, nodes, interfaces) if f.verdict.value == "FAIL"] == []
    one = {"NCCL_IB_HCA": own["n00"]["NCCL_IB_HCA"]}
    forced = {node: env_of(node, nics, one) for node, nics in nodes.items()}
    bad = {f.subject for f in judge_nodes(forced, nodes, interfaces)}
    right = {node for node in nodes if own[node]["NCCL_IB_HCA"] == one["NCCL_IB_HCA"]}
    assert bad == {f"node={node}" for node in set(nodes) - right}


def test_plan_warns_that_a_single_list_could_not_have_worked(tmp_path: Path, cli: Cli) -> None:
    sixteen(tmp_path / "nodes")
    argv = ("plan", "gate-check", "--nodes", "16", "--site", "generic-ib", "--gpu", "h200")
    answer = cli(*argv, "--node-facts", str(tmp_path / "nodes"), "--json")
    assert answer.returncode == 0, answer.stderr
    data = json.loads(answer.stdout)
    assert any("no single list works" in note for note in data["notes"])
    for i in range(16):
        value = data["node_env"][f"n{i:02d}"]["NCCL_IB_HCA"]["value"]
        assert value == "=" + ",".join(names_of(i))
    shown = cli(*argv, "--node-facts", str(tmp_path / "nodes")).stdout
    assert "NCCL_IB_HCA==mlx5_1,mlx5_2" in shown.replace("\n", "")


def test_equal_names_need_no_warning() -> None:
    same = {f"n{i}": nics_of(verbs(["mlx5_0", "mlx5_1"])) for i in range(4)}
    assert global_list_note(same) == ""


def test_a_folder_that_describes_no_node_is_bad_input(tmp_path: Path, cli: Cli) -> None:
    answer = cli("plan", "gate-check", "--node-facts", str(tmp_path / "nothing"))
    assert answer.returncode == 2 and "no node is described here" in answer.stderr


def test_an_interface_that_a_node_lacks_is_named() -> None:
    env = {n: {"NCCL_SOCKET_IFNAME": "eno1", "GLOO_SOCKET_IFNAME": "eno1"} for n in ("a", "b")}
    interfaces = {"a": ("lo", "eno1"), "b": ("lo", "eth0")}
    found = judge_nodes(env, {}, interfaces)
    assert {f.subject for f in found} == {"node=b"}
    assert {f.code for f in found} == {"socket_ifname_missing_on_node"}


HEAD = {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0", "NCCL_ALGO": "RING", "OTHER": "1"}
WORKER = {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_9", "OTHER": "2"}


def test_what_is_set_only_on_the_head_is_missing_on_the_workers() -> None:
    seen: dict[str, dict[str, str | None]] = {"head": {**HEAD}, "w": {**WORKER, "NCCL_ALGO": None}}
    (finding,) = judge_read_back({"head": HEAD, "w": WORKER}, seen)
    assert (finding.code, finding.subject) == ("env_missing_on_worker", "node=w")
    assert finding.evidence["missing"] == "NCCL_ALGO"


def test_a_workers_own_list_must_be_its_own() -> None:
    wanted = {"head": {"NCCL_IB_HCA": "=mlx5_0"}, "w": {"NCCL_IB_HCA": "=mlx5_9"}}
    assert judge_read_back(wanted, {n: {**v} for n, v in wanted.items()}) == []
    copied: dict[str, dict[str, str | None]] = {n: {"NCCL_IB_HCA": "=mlx5_0"} for n in wanted}
    (finding,) = judge_read_back(wanted, copied)
    assert (finding.code, finding.subject) == ("env_differs_on_worker", "node=w")


def test_a_node_that_did_not_answer_is_not_judged() -> None:
    assert judge_read_back({"head": HEAD, "w": WORKER}, {"head": {**HEAD}}) == []
