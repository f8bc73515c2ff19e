from __future__ import annotations

import json
from typing import Any

import pytest

from slurmmiles.catalog import Catalog
from slurmmiles.errors import BadInput
from slurmmiles.plan import Request, make_plan
from slurmmiles.planfile import Plan

DIRS = {"models": "/m", "data": "/d", "miles": "/miles"}


def planned(
    catalog: Catalog,
    *settings: str,
    site: str = "generic-ib",
    environ: dict[str, str] | None = None,
    gpu: str = "h200",
    **request: Any,
) -> Plan:
    recipe = catalog.recipe("nemotron-ultra", settings)
    return make_plan(
        recipe,
        catalog.site(site),
        Request(variables=DIRS, environ=environ or {}, **request),
        model=catalog.model(str(recipe.model.facts)),
        gpu=catalog.gpu(gpu),
    )


def test_the_plan_shows_the_fabrics_environment_with_origins(catalog: Catalog) -> None:
    env = planned(catalog).env
    assert (env["NCCL_NET"].value, env["NCCL_NET"].origin) == ("IB", "fabric infiniband")
    assert env["NCCL_IB_HCA"].value == "{ib_hca}"
    assert env["NVSHMEM_DISABLE_NCCL"].value == "1"


def test_an_unknown_fabric_is_said_in_a_note_and_nothing_is_guessed(catalog: Catalog) -> None:
    plan = planned(catalog, site="generic")
    assert plan.fabric.kind == "auto" and "NCCL_NET" not in plan.env
    assert any("does not name its fabric" in note for note in plan.notes)


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
@pytest.mark.parametrize("value", ["expandable_segments:True", "a:1, expandable_segments:true"])
def test_expandable_segments_are_refused_in_a_colocated_run_from_anywhere(
    catalog: Catalog, name: str, value: str
) -> None:
    for how in ({"settings": (f"env.{name}='{value}'",)}, {"environ": {name: value}}):
        settings = how.pop("settings", ())
        with pytest.raises(BadInput) as raised:
            planned(catalog, *settings, **how)  # type: ignore[arg-type]
        assert name in str(raised.value) and "expandable_segments" in str(raised.value)


def test_a_gloo_list_that_excludes_is_refused(catalog: Catalog) -> None:
    with pytest.raises(BadInput, match="Gloo takes names of interfaces") as raised:
        planned(catalog, environ={"GLOO_SOCKET_IFNAME": "^lo,docker"})
    assert raised.value.where == "env.GLOO_SOCKET_IFNAME, from environment"


def test_every_conflict_is_named_at_once(catalog: Catalog) -> None:
    bad = {"GLOO_SOCKET_IFNAME": "^lo", "FI_CXI_RDZV_PROTO": "alt_read"}
    with pytest.raises(BadInput, match="2 settings of the environment are known to fail") as raised:
        planned(catalog, site="clariden", gpu="h200", environ=bad)
    assert "GLOO_SOCKET_IFNAME" in raised.value.what and "disable_rdzv_get" in raised.value.what


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NCCL_MNNVL_ENABLE", "1", "does nothing"),
        ("NCCL_SOCKET_IFNAME", "^docker0", "lets"),
        ("NCCL_TIMEOUT", "900", "reads"),
    ],
)
def test_a_value_that_does_nothing_is_a_note_with_its_origin(
    catalog: Catalog, name: str, value: str, words: str
) -> None:
    notes = [n for n in planned(catalog, environ={name: value}).notes if n.startswith(name)]
    assert len(notes) == 1 and "from environment" in notes[0], notes


def test_stale_efa_variables_are_noted_on_efa(catalog: Catalog) -> None:
    stale = {"FI_EFA_USE_DEVICE_RDMA": "1", "FI_EFA_FORK_SAFE": "1", "NCCL_PROTO": "simple"}
    plan = planned(catalog, site="aws-efa", environ=stale)
    for name in stale:
        assert any(note.startswith(f"{name} ") for note in plan.notes), name


def test_nccl_timeout_sets_the_option_that_is_read(catalog: Catalog) -> None:
    argv = planned(catalog, environ={"NCCL_TIMEOUT": "900"}).driver.argv
    assert argv[argv.index("--distributed-timeout-minutes") + 1] == "15"
    own = planned(
        catalog, "flags.--distributed-timeout-minutes=40", environ={"NCCL_TIMEOUT": "900"}
    ).driver.argv
    assert own.count("--distributed-timeout-minutes") == 1
    assert own[own.index("--distributed-timeout-minutes") + 1] == "40"
    assert "--distributed-timeout-minutes" not in planned(catalog).driver.argv


@pytest.mark.parametrize(
    "flag", ["flags.--sglang-moe-a2a-backend=deepep", "flags.--moe-enable-deepep=true"]
)
def test_deepep_is_refused_on_a_site_without_mlx5(catalog: Catalog, flag: str) -> None:
    for site in ("generic-slingshot", "aws-efa"):
        with pytest.raises(BadInput, match="needs mlx5 adapters"):
            planned(catalog, flag, site=site)
    assert planned(catalog, flag).fabric.deepep


def test_the_nvshmem_opt_out_goes_into_the_jobs_environment(catalog: Catalog) -> None:
    assert "NVSHMEM_DISABLE_NCCL" not in planned(catalog).driver.env
    job = planned(catalog, environ={"NVSHMEM_DISABLE_NCCL": "0"}).driver.env
    assert job["NVSHMEM_DISABLE_NCCL"].value == "0"


def test_a_site_of_smaller_nodes_gets_as_many_gpus_on_more_nodes(catalog: Catalog) -> None:
    plan = planned(catalog, site="generic-ib")
    assert (plan.nodes, plan.gpus_per_node) == (16, 8)
    plan = planned(catalog, site="deltaai")
    assert (plan.nodes, plan.gpus_per_node) == (32, 4)
    assert planned(catalog, site="deltaai", nodes=64).gpus_per_node == 4


SCRIPT = ("driver.entry=script", "driver.script=scripts/x.py", "resume=off")


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("NCCL_DEBUG=WARN", ""),
        ('{"NCCL_IB_HCA": "=mlx5_0", "NCCL_NET": "AWS Libfabric"}', ""),
        ("NCCL_IB_HCA==mlx5_0,mlx5_1", "NCCL_IB_HCA==mlx5_0,mlx5_1 arrives as ''"),
        ("A=1 NCCL_NET=AWS Libfabric", "IndexError"),
        ("TORCH_X=a=b", "arrives as 'a'"),
    ],
)
@pytest.mark.parametrize("joined", [False, True])
def test_a_value_that_miles_launcher_would_lose_is_refused(
    catalog: Catalog, text: str, lost: str, joined: bool
) -> None:
    option = "--extra-env-vars"
    words = [f"{option}={text}"] if joined else [option, text]
    args = f"driver.script_args={json.dumps(words)}"
    if not lost:
        planned(catalog, *SCRIPT, args)
        return
    with pytest.raises(BadInput) as raised:
        planned(catalog, *SCRIPT, args)
    assert lost in raised.value.what and raised.value.where == option
