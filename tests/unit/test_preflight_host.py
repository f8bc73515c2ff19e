from __future__ import annotations

from typing import Any

import pytest

from slurmmiles.catalog import Catalog
from slurmmiles.nodefacts import NodeFacts
from slurmmiles.plan import Request, make_plan
from slurmmiles.planfile import Plan
from slurmmiles.preflight.host import judge_hosts
from slurmmiles.report import Finding, Report, Verdict

HEALTHY = {
    "node": "node01",
    "hostname": "node01",
    "address": "10.0.0.1",
    "interface": "ib0",
    "addresses": {"ib0": "10.0.0.1"},
    "resolves_to": ["10.0.0.1"],
    "ephemeral_floor": 32768,
    "port_base": 10240,
    "cpus": 96,
    "memory_bytes": 2**40,
    "shm_bytes": 2**39,
    "limits": {"nofile": 1_048_576, "memlock": -1, "stack": -1},
    "gpus": 8,
    "canary": "c",
}


def plan_of(catalog: Catalog, recipe: str = "gate-check", nodes: int = 2) -> Plan:
    r = catalog.recipe(recipe)
    model = catalog.model(r.model.facts) if r.model.facts else None
    gpu = catalog.gpu("h200")
    return make_plan(r, catalog.site("generic"), Request(nodes=nodes), model=model, gpu=gpu)


def judged(plan: Plan, **changes: Any) -> dict[str, Finding]:
    """Findings about one node by code."""
    facts = NodeFacts.model_validate({**HEALTHY, **changes})
    found = judge_hosts([facts], plan, canary="c", run_dir="/runs/r")
    assert all(f.subject == facts.node for f in found)
    assert len({f.code for f in found}) == len(found)
    return {f.code: f for f in found}


@pytest.mark.parametrize("recipe", ["tiny", "gate-check"])
def test_a_healthy_node_passes(catalog: Catalog, recipe: str) -> None:
    found = judged(plan_of(catalog, recipe))
    assert {f.verdict for f in found.values()} == {Verdict.PASS}
    assert "shared_directory" in found and "address" in found


FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"canary": None}, "shared_directory", "FAIL", "(it found nothing)"),
    (
        {"canary": None, "canary_error": "No such file or directory: /runs/r/canary"},
        "shared_directory",
        "FAIL",
        "No such file or directory",
    ),
    ({"canary": "old"}, "shared_directory", "FAIL", "another file"),
    ({"address": "127.0.0.1"}, "address_is_loopback", "FAIL", "which no other node reaches"),
    (
        {"resolves_to": ["127.0.1.1"]},
        "hostname_resolves_to_loopback",
        "WARN",
        "its name node01 resolves to 127.0.1.1 there",
    ),
    ({"gpus": 7}, "gpu_count", "FAIL", "7 of 8 GPUs are visible"),
    ({"gpus": 0}, "gpu_count", "FAIL", "0 of 8 GPUs are visible"),
    (
        {"limits": {"nofile": 1024, "memlock": -1, "stack": -1}},
        "nofile_low",
        "FAIL",
        "may open 1024 files",
    ),
    (
        {"limits": {"nofile": -1, "memlock": 65536, "stack": -1}},
        "memlock_low",
        "WARN",
        "may lock 64 KiB",
    ),
]


@pytest.mark.parametrize(("changes", "code", "verdict", "words"), FAULTS, ids=lambda v: str(v)[:30])
def test_a_fault_is_named_with_what_to_do(
    catalog: Catalog, changes: dict[str, Any], code: str, verdict: str, words: str
) -> None:
    found = judged(plan_of(catalog), **changes)
    assert found[code].verdict is Verdict(verdict)
    assert words in found[code].message
    assert found[code].remedy
    others = {f.verdict for c, f in found.items() if c != code}
    assert others <= {Verdict.PASS}


def test_a_single_node_may_be_on_loopback(catalog: Catalog) -> None:
    found = judged(plan_of(catalog, nodes=1), address="127.0.0.1", resolves_to=["127.0.1.1"])
    assert {f.verdict for f in found.values()} == {Verdict.PASS}


def test_a_name_that_also_resolves_elsewhere_is_no_fault(catalog: Catalog) -> None:
    found = judged(plan_of(catalog), resolves_to=["127.0.1.1", "10.0.0.1"])
    assert "hostname_resolves_to_loopback" not in found


def test_without_nvml_nothing_is_said_about_gpus(catalog: Catalog) -> None:
    assert not [c for c in judged(plan_of(catalog), gpus=None) if c.startswith("gpu")]


def test_a_run_on_cpus_needs_neither_gpus_nor_locked_memory(catalog: Catalog) -> None:
    limits = {"nofile": 65_536, "memlock": 65_536, "stack": 8_388_608}
    found = judged(plan_of(catalog, "tiny"), gpus=0, limits=limits)
    assert {f.verdict for f in found.values()} == {Verdict.PASS}


def test_each_node_is_judged_by_itself(catalog: Catalog) -> None:
    facts = [
        NodeFacts.model_validate({**HEALTHY, "node": f"node0{i}", "gpus": 8 - (i == 2)})
        for i in (1, 2, 3)
    ]
    report = Report.of(judge_hosts(facts, plan_of(catalog), canary="c", run_dir="/r"))
    assert report.verdict is Verdict.FAIL
    assert report.sentence() == "node02: 7 of 8 GPUs are visible"
