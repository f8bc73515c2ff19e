"""A saved run, an attempt, folders of several nodes: judged again as they were."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from slurmmiles.catalog import Catalog
from slurmmiles.errors import BadInput
from slurmmiles.jsonfile import write_json
from slurmmiles.nodefacts import NodeFacts
from slurmmiles.plan import Request, make_plan
from slurmmiles.preflight.network import Measurement
from slurmmiles.preflight.saved import replay
from slurmmiles.report import Finding, Report, Verdict
from slurmmiles.rundir import Attempt, RunDir
from tests.unit.preflight.made import RECORDED

NODES = ("node01", "node02", "node03")


def facts(node: str, **changes: Any) -> NodeFacts:
    address = f"10.0.0.{node[-1]}"
    return NodeFacts.model_validate(
        {
            "node": node,
            "hostname": node,
            "address": address,
            "interface": "eth0",
            "addresses": {"eth0": address},
            "resolves_to": [address],
            "ephemeral_floor": 32768,
            "port_base": 10240,
            "cpus": 8,
            "memory_bytes": 2**36,
            "shm_bytes": 2**35,
            "limits": {"nofile": 1_048_576, "memlock": -1, "stack": -1},
            "gpus": None,
            "canary": "c0ffee",
            **changes,
        }
    )


@pytest.fixture
def run(tmp_path: Path, catalog: Catalog) -> RunDir:
    """A finished run of three nodes, as its agents and its head left it."""
    made = RunDir(tmp_path / "tiny-0001")
    attempt = made.attempt("42", 0)
    attempt.nodes.mkdir(parents=True)
    attempt.preflight.mkdir()
    recipe = catalog.recipe("tiny", ["algorithm.global_batch_size=null"])
    model = catalog.model(recipe.model.facts) if recipe.model.facts else None
    plan = make_plan(recipe, catalog.site("generic"), Request(nodes=3), model=model)
    write_json(made.plan, plan)
    write_json(made.submission, {"mode": "slurm"})
    attempt.canary.write_text("c0ffee")
    for node in NODES:
        write_json(attempt.node(node), facts(node))
        write_json(attempt.nodes / f"{node}.env.json", {"NCCL_DEBUG": {"value": "WARN"}})
    network(attempt, {})
    return made


def network(attempt: Attempt, gbit: dict[tuple[str, str], float | None]) -> None:
    """All pairs of the nodes: 10 Gbit/s, or what `gbit` says; None: an error."""
    pairs = [(a, b) for a in NODES for b in NODES if a != b]
    rates = {pair: gbit.get(pair, gbit.get(pair[::-1], 10.0)) for pair in pairs}
    write_json(
        attempt.preflight / "network.json",
        [
            Measurement(
                source=a,
                target=b,
                gbit_s=rate,
                latency_ms=None if rate is None else 0.05,
                error="" if rate else "timed out",
            ).model_dump()
            for (a, b), rate in rates.items()
        ],
    )


def failed(report: Report) -> set[tuple[str, str]]:
    return {(f.code, f.subject) for f in report.at(Verdict.FAIL)}


def test_a_healthy_run_passes_again(run: RunDir) -> None:
    report = replay(run.path)
    assert report.verdict is Verdict.PASS, report.sentence(report.verdict)
    assert {f.subject for f in report.findings} >= set(NODES)


@pytest.mark.parametrize("where", ["run", "attempt", "latest"])
def test_its_bad_node_is_named_again(run: RunDir, where: str) -> None:
    attempt = run.attempt("42", 0)
    write_json(attempt.node("node02"), facts("node02", canary="old"))
    run.latest.symlink_to(attempt.path)
    folder = {"run": run.path, "attempt": attempt.path, "latest": run.latest}[where]
    assert failed(replay(folder)) == {("shared_directory", "node02")}


def test_its_slow_network_is_found_again(run: RunDir) -> None:
    network(run.attempt("42", 0), {("node03", "node01"): None, ("node03", "node02"): None})
    assert ("tcp_node", "node03") in failed(replay(run.path))


def test_a_node_that_never_joined_is_still_told(run: RunDir) -> None:
    attempt = run.attempt("42", 0)
    absent = Finding(
        code="not_joined", verdict=Verdict.FAIL, subject="node04", message="it left", remedy="look"
    )
    write_json(attempt.preflight / "report.json", Report.of([absent]))
    assert failed(replay(run.path)) == {("not_joined", "node04")}


def test_loopback_is_right_for_a_run_on_this_machine(run: RunDir) -> None:
    for node in NODES:
        local = facts(node, address="127.0.0.1", addresses={"lo": "127.0.0.1"}, interface="lo")
        write_json(run.attempt("42", 0).node(node), local)
    assert replay(run.path).verdict is Verdict.FAIL
    write_json(run.submission, {"mode": "local"})
    assert replay(run.path).verdict is Verdict.PASS


@pytest.mark.parametrize("text", ["", "{", "[]", '{"node": "node01"}', "\x00\x01"])
@pytest.mark.parametrize("name", ["nodes/node01.json", "preflight/network.json"])
def test_what_is_broken_in_it_is_unknown(run: RunDir, name: str, text: str) -> None:
    if name == "preflight/network.json" and text == "[]":
        return  # a whole file of no measurements
    (run.attempt("42", 0).path / name).write_text(text)
    report = replay(run.path)
    assert report.verdict is Verdict.UNKNOWN
    assert {f.code for f in report.at(Verdict.UNKNOWN)} == {"evidence_unreadable"}


def test_a_run_without_facts_is_unknown(run: RunDir) -> None:
    shutil.rmtree(run.attempt("42", 0).nodes)
    run.attempt("42", 0).nodes.mkdir()
    assert replay(run.path).verdict is Verdict.UNKNOWN


def test_raw_evidence_of_its_nodes_is_judged_with_it(run: RunDir) -> None:
    into = run.attempt("42", 0).preflight / "node02"
    shutil.copytree(RECORDED / "h200-gpu5-lost-two-links", into)
    assert failed(replay(run.path)) == {("nvlink_unequal", "node=node02,gpu=5")}


def test_folders_of_several_nodes_are_told_apart(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "h200-healthy", tmp_path / "n00")
    shutil.copytree(RECORDED / "h100-without-nvlink", tmp_path / "n01")
    shutil.copytree(RECORDED / "ib-port-waits-for-subnet-manager", tmp_path / "n02")
    (tmp_path / "notes").mkdir()
    assert failed(replay(tmp_path)) == {
        ("nvlink_missing", "node=n01"),
        ("ib_port_not_active", "node=n02,nic=mlx5_1"),
    }


def test_bytes_that_are_no_text_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_bytes(bytes(range(256)))
    (tmp_path / "gpus.csv").mkdir()
    report = replay(tmp_path)
    assert report.verdict is Verdict.UNKNOWN
    assert {f.subject for f in report.findings} == {"file=topo.txt", "file=gpus.csv"}


def test_a_folder_without_evidence_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "expected.md").write_text("nothing")
    with pytest.raises(BadInput, match="no evidence"):
        replay(tmp_path)
    with pytest.raises(BadInput, match="no directory"):
        replay(tmp_path / "absent")


def test_a_run_of_another_version_is_a_mistake(run: RunDir) -> None:
    run.plan.write_text(json.dumps({"version": 99}))
    with pytest.raises(BadInput, match="this version of slurmmiles"):
        replay(run.path)
