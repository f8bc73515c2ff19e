from __future__ import annotations

import json
from typing import Any

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput
from slurmmiles.plan import MAX_NODES, Request, make_plan
from slurmmiles.planfile import Plan

CATALOG = Catalog((shipped("configs"),))
RECIPES = sorted(CATALOG.files("recipes"))
SITES = sorted(CATALOG.files("sites"))


def planned(recipe: str = "tiny", site: str = "generic", *settings: str, **request: Any) -> Plan:
    r = CATALOG.recipe(recipe, settings)
    return make_plan(
        r,
        CATALOG.site(site),
        Request(**request),
        model=CATALOG.model(r.model.facts) if r.model.facts else None,
        gpu=CATALOG.gpu("h200"),
    )


CONTRACT = {
    "": ["recipe", "site", "nodes", "gpus_per_node", "topology", "rollout", "memory", "env"]
    + ["driver", "slurm", "cost"],
    "topology": ["tp", "pp", "cp", "ep", "etp", "dp", "world_size", "layers_per_stage"],
    "rollout": ["engines", "gpus_per_engine", "ep", "dp", "attn_tp", "nodes_per_engine"],
    "memory": ["gpu_gb", "host_gb", "verdict", "notes"],
    "driver": ["entry", "argv", "env"],
    "cost": ["gpu_hours", "usd"],
}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_shipped_recipe_has_a_plan_of_the_contract_on_every_site(
    recipe: str, site: str
) -> None:
    data = planned(recipe, site).model_dump(mode="json")
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    for section, keys in CONTRACT.items():
        part = data[section] if section else data
        if section == "rollout" and part is None:
            assert data["driver"]["entry"] != "native"  # what trains by itself has engines
            continue
        assert [key for key in keys if key not in part] == [], section
    assert {"total", "limit"} <= set(data["memory"]["gpu_gb"])
    assert {"total", "limit"} <= set(data["memory"]["host_gb"])
    assert data["memory"]["verdict"] in ("fits", "tight", "does not fit")
    assert data["topology"]["world_size"] == data["nodes"] * data["ranks_per_node"]
    for entry in [*data["env"].values(), *data["driver"]["env"].values()]:
        assert isinstance(entry["value"], str) and entry["origin"]


def test_tiny_has_data_parallelism_of_two_on_one_node_and_on_two() -> None:
    one, two = planned(), planned(nodes=2)
    assert (one.topology.dp, one.ranks_per_node, one.device) == (2, 2, "cpu")
    assert (two.topology.dp, two.ranks_per_node, two.nodes) == (2, 1, 2)


# (tp, pp, nodes): the fewest ranks a node that fill the model-parallel grid twice.
CPU_RANKS = {
    (1, 1, 1): 2,
    (1, 1, 2): 1,
    (1, 1, 3): 1,
    (2, 1, 1): 4,
    (2, 1, 3): 2,
    (2, 1, 4): 1,
    (1, 2, 2): 2,
    (2, 2, 3): 4,
    (2, 2, 4): 2,
    (4, 1, 3): 4,
}


@pytest.mark.parametrize(("tp", "pp", "nodes"), CPU_RANKS)
def test_ranks_on_cpus_are_the_fewest_that_fill_the_grid_twice(
    tp: int, pp: int, nodes: int
) -> None:
    grid = (f"parallel.tp={tp}", f"parallel.pp={pp}", "algorithm.global_batch_size=null")
    plan = planned("tiny", "generic", *grid, nodes=nodes)
    assert plan.ranks_per_node == CPU_RANKS[tp, pp, nodes]
    assert plan.topology.dp >= 2


def test_a_layout_of_any_size_is_answered_at_once() -> None:
    with pytest.raises(BadInput):
        planned("tiny", "generic", "parallel.tp=131072", "parallel.pp=131072")


@pytest.mark.parametrize("nodes", [0, -1, MAX_NODES + 1, 10**30])
def test_a_number_of_nodes_that_cannot_be_is_refused(nodes: int) -> None:
    with pytest.raises(BadInput) as raised:
        planned(nodes=nodes)
    assert str(raised.value) == f"--nodes: {nodes} nodes were asked for; give 1 to {MAX_NODES}"


def test_spares_are_allocated_and_paid_for_but_not_planned_with() -> None:
    plan = planned("gate-check", "generic", nodes=2, spares=1)
    assert (plan.nodes, plan.spares, plan.allocated_nodes) == (2, 1, 3)
    assert dict(plan.slurm.directives)["nodes"] == "3"
    assert plan.cost.gpu_hours == pytest.approx(3 * 8 * 0.25)
    assert plan.topology.world_size == 16


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"spares": -1}, "--spares: -1 spares were asked for"),
        ({"spares": MAX_NODES}, f"--spares: {MAX_NODES} spares were asked for"),
        ({"spares": 1, "local": True}, "--spares: a local run has no spare nodes"),
        ({"gpus_per_node": -1}, "--gpus-per-node: -1 GPUs per node were asked for; give 0 to 64"),
        ({"gpus_per_node": 10**9}, "--gpus-per-node: 1000000000 GPUs per node were asked for"),
    ],
)
def test_a_request_that_cannot_be_is_refused(request_: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as raised:
        planned(**request_)
    assert str(raised.value).startswith(sentence)


def test_a_node_cannot_have_more_gpus_than_the_sites_have() -> None:
    with pytest.raises(BadInput, match="a node of site 'sandbox' has 8; give at most 8"):
        planned("gate-check", "sandbox", gpus_per_node=16)
    assert planned("gate-check", "sandbox", gpus_per_node=4).gpus_per_node == 4


def test_the_command_line_wins_over_the_recipe_for_nodes_and_gpus() -> None:
    plan = planned("gate-check", "generic", nodes=3, gpus_per_node=4)
    assert (plan.nodes, plan.gpus_per_node, plan.topology.world_size) == (3, 4, 12)
    assert "12" in plan.driver.argv


@pytest.mark.parametrize("name", ["RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"])
def test_what_the_agent_sets_cannot_be_set(name: str) -> None:
    with pytest.raises(BadInput):
        planned("tiny", "generic", f"env.{name}=x")


def test_a_variable_of_the_user_has_the_users_name_on_it() -> None:
    plan = planned("tiny", "generic", "env.FOO=bar", user_env={"FOO": ""})
    assert (plan.env["FOO"].value, plan.env["FOO"].origin) == ("bar", "user")
    plan = planned("tiny", "generic", "env.FOO=bar")
    assert plan.env["FOO"].origin == "recipe tiny"


def test_the_cost_is_the_most_that_the_job_can_use() -> None:
    assert planned("gate-check", "generic", "slurm.time=02:30:00", nodes=4).cost.gpu_hours == 80
    assert planned("gate-check").cost.usd is None
    assert planned("tiny").cost.gpu_hours == 0


def test_a_recipe_that_trains_names_a_model() -> None:
    with pytest.raises(BadInput, match="trains a model but names none"):
        planned("tiny", "generic", "model.facts=null")


def test_a_model_that_the_native_trainer_cannot_build_is_refused() -> None:
    with pytest.raises(BadInput, match="builds dense transformers"):
        planned("tiny", "generic", "model.facts=inkling-small")


def test_a_command_is_taken_as_it_is_and_only_as_a_command() -> None:
    settings = ("driver.entry=command", "driver.argv=[echo, $(id), '{run_dir}']")
    assert planned("gate-check", "generic", *settings).driver.argv == ("echo", "$(id)", "{run_dir}")
    with pytest.raises(BadInput, match=r"driver\.argv: the entry is 'command' and no argv"):
        planned("gate-check", "generic", "driver.entry=command")
    with pytest.raises(BadInput, match=r"driver\.argv: driver\.argv is given, but the entry is"):
        planned("gate-check", "generic", "driver.argv=[echo]")


def test_the_native_trainer_is_told_what_was_planned() -> None:
    plan = planned("tiny", "generic", "optimizer.lr=0.5", "parallel.tp=2", "resume=off")
    config = plan.trainer
    assert config is not None
    assert config["optimizer"]["lr"] == 0.5
    assert config["parallel"]["tp"] == plan.topology.tp == 2
    assert config["nodes"] * config["ranks_per_node"] == plan.topology.world_size
    assert config["checkpoint"]["resume"] == "off"
    assert "{attempt_dir}" in config["metrics"]
    assert planned("gate-check").trainer is None


def test_ray_has_a_slot_for_every_rank_and_engine_of_a_cpu_node() -> None:
    plan = planned()
    assert plan.rollout is not None
    assert plan.ray.num_cpus is not None
    assert plan.ray.num_cpus >= plan.ranks_per_node + plan.rollout.gpus_per_engine
    assert (plan.ray.num_gpus, planned("gate-check").ray.num_gpus) == (0, 8)


def test_the_largest_plan_is_made_and_stays_small() -> None:
    plan = planned("gate-check", "generic", nodes=MAX_NODES)
    assert plan.topology.world_size == 8 * MAX_NODES
    assert len(plan.model_dump_json()) < 2_000_000
