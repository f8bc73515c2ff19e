from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmmiles.errors import BadInput
from slurmmiles.planfile import SlurmPlan
from slurmmiles.recipe import WALL_TIME, Recipe
from slurmmiles.request import DECIDED, slurm_request, wall_seconds
from slurmmiles.site import Site


def request(
    nodes: int = 2, gpus: int = 8, *, site: dict[str, Any] | None = None, **slurm: Any
) -> SlurmPlan:
    recipe = Recipe.model_validate({"name": "r", "slurm": slurm})
    place = Site.model_validate({"name": "s", **(site or {})})
    return slurm_request(recipe, place, nodes=nodes, gpus_per_node=gpus)


def lines(plan: SlurmPlan) -> dict[str, str | None]:
    assert len(dict(plan.directives)) == len(plan.directives)
    return dict(plan.directives)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:01", 1),
        ("04:00:00", 14_400),
        ("100:00:00", 360_000),
        ("1-00:00:00", 86_400),
        ("2-03:04:05", 183_845),
    ],
)
def test_a_wall_time_is_counted_as_slurm_counts_it(text: str, seconds: int) -> None:
    assert wall_seconds(text) == seconds


@given(st.from_regex(WALL_TIME, fullmatch=True))
def test_every_wall_time_that_a_recipe_may_have_is_counted(text: str) -> None:
    assert 0 <= wall_seconds(text) < 1042 * 86_400


def test_the_request_asks_for_one_task_a_node_and_all_gpus() -> None:
    asked = lines(request(nodes=16))
    assert (asked["nodes"], asked["ntasks-per-node"], asked["gpus-per-node"]) == ("16", "1", "8")
    assert asked["exclusive"] is None and asked["mem"] == "0"
    assert "gpus-per-task" not in asked and "gres" not in asked


def test_a_run_on_cpus_asks_for_no_gpu_and_shares_its_nodes() -> None:
    asked = lines(request(gpus=0, cpus_per_task=2))
    assert not {"gpus-per-node", "gres", "exclusive", "mem"} & set(asked)
    assert asked["cpus-per-task"] == "2"


def test_gpus_are_asked_for_as_the_site_wants_them() -> None:
    asked = lines(request(site={"gpu_request": "gres"}))
    assert asked["gres"] == "gpu:8" and "gpus-per-node" not in asked


def test_the_recipe_wins_over_the_site() -> None:
    site = {"partition": "batch", "account": "lab", "qos": "low", "exclusive": False}
    asked = lines(request(site=site, partition="gpu", exclusive=True))
    assert (asked["partition"], asked["account"], asked["qos"]) == ("gpu", "lab", "low")
    assert asked["exclusive"] is None
    asked = lines(request(site={"extra": {"comment": "site", "nice": 5}}, extra={"nice": 7}))
    assert (asked["comment"], asked["nice"]) == ("site", "7")


def test_an_extra_option_may_have_no_value_or_be_taken_back() -> None:
    asked = lines(request(site={"extra": {"requeue": True}}, extra={"exclusive": "user"}))
    assert asked["requeue"] is None and asked["exclusive"] == "user"
    assert "requeue" not in lines(
        request(site={"extra": {"requeue": True}}, extra={"requeue": False})
    )


@pytest.mark.parametrize("name", [*sorted(DECIDED), "ntasks-per", "job-n", "nod", "tim"])
def test_an_option_that_the_plan_decides_is_refused_even_abbreviated(name: str) -> None:
    for where, given_ in (
        ("recipe r, extra", {"extra": {name: 1}}),
        ("site s, extra", {"site": {"extra": {name: 1}}}),
    ):
        with pytest.raises(BadInput, match="is decided by the plan") as raised:
            request(**given_)  # type: ignore[arg-type]
        assert raised.value.where == where


def test_gres_is_decided_only_where_gpus_are_asked_for_with_it() -> None:
    assert lines(request(extra={"gres": "tmp:100G"}))["gres"] == "tmp:100G"
    with pytest.raises(BadInput, match="'gres' is decided"):
        request(site={"gpu_request": "gres"}, extra={"gres": "tmp:100G"})


@pytest.mark.parametrize("name", ["--nice", "-n", "", "ni ce", "nice=5 --wrap", "Nice", "é", "a_b"])
def test_what_is_no_long_option_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="is not an sbatch long option"):
        request(extra={name: 1})


def test_the_step_gets_the_cpus_that_srun_would_not_inherit() -> None:
    assert "--cpus-per-task=6" in request(cpus_per_task=6).srun_args
    assert "--cpus-per-task=$SLURM_CPUS_ON_NODE" in request().srun_args
    assert "--cpus-per-task=96" in request(site={"cpus_per_node": 96}).srun_args
    assert request(site={"srun_args": ["--mpi=none"]}).srun_args[-1] == "--mpi=none"


def test_a_site_that_knows_its_cpus_asks_for_all_only_of_whole_nodes() -> None:
    assert lines(request(site={"cpus_per_node": 96}))["cpus-per-task"] == "96"
    shared = request(site={"cpus_per_node": 96, "exclusive": False})
    assert "cpus-per-task" not in lines(shared)
