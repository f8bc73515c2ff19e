from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput
from slurmmiles.fabric.table import SECRET
from slurmmiles.layouts import shape_of
from slurmmiles.planfile import SlurmPlan
from slurmmiles.recipe import Recipe
from slurmmiles.request import own_size, slurm_request, still_asked
from slurmmiles.site import Site

CATALOG = Catalog((shipped("configs"),))
SITES = sorted(CATALOG.files("sites"))
PROFILES = {"generic-ib", "generic-roce", "generic-slingshot", "aws-efa", "dgx-superpod"}
OWN = {"generic", "sandbox", "local", "laptop"}
NAMED = [name for name in SITES if name not in PROFILES | OWN]


def request(site: dict[str, Any], gpus: int = 8, **slurm: Any) -> SlurmPlan:
    recipe = Recipe.model_validate({"name": "r", "slurm": slurm})
    place = Site.model_validate({"name": "s", **site})
    return slurm_request(recipe, place, nodes=2, gpus_per_node=gpus)


def test_the_sites_of_the_issue_ship() -> None:
    assert PROFILES | {"sandbox", "local"} <= set(SITES)
    assert len(NAMED) >= 10


@pytest.mark.parametrize("name", NAMED)
def test_a_named_site_says_where_its_values_come_from_and_when_they_were_read(name: str) -> None:
    site = CATALOG.site(name)
    assert site.sources and site.description
    for source in site.sources:
        assert source.title and source.organisation and source.read >= "2026"


@pytest.mark.parametrize("name", SITES)
def test_no_site_holds_a_secret_or_a_persons_account(name: str) -> None:
    site = CATALOG.site(name)
    assert site.account is None and not [n for n in site.env if SECRET.search(n)]


@pytest.mark.parametrize("name", SITES)
def test_the_gpu_of_a_site_ships(name: str) -> None:
    gpu = CATALOG.site(name).gpu
    assert gpu is None or gpu in CATALOG.files("gpus")


def asks(site: dict[str, Any], *, gpus: int = 8, nodes: int = 2, **slurm: Any) -> list[str]:
    recipe = Recipe.model_validate({"name": "r", "driver": {"entry": "gate-check"}, "slurm": slurm})
    place = Site.model_validate({"name": "s", **site})
    shape = shape_of(recipe, None, CATALOG.gpu("h200"), nodes=nodes, gpus=gpus, ranks=gpus or 1)
    return [m.name for m in still_asked(recipe, place, shape, gpu_assumed=True)]


def test_what_a_site_asks_for_may_come_from_the_site_or_the_recipe() -> None:
    keys = ["account", "partition", "qos", "constraint"]
    assert asks({"ask": keys}) == keys
    assert asks({"ask": keys, **dict.fromkeys(keys, "x")}) == []
    assert asks({"ask": keys}, **dict.fromkeys(keys, "x")) == []


def test_a_traffic_class_is_asked_for_only_by_gpus_of_several_nodes() -> None:
    roce = {"ask": ["traffic_class"], "fabric": "roce"}
    assert asks(roce) == ["traffic_class"]
    assert asks(roce, nodes=1) == [] == asks(roce, gpus=0)
    assert asks({**roce, "traffic_class": 0}) == []
    assert asks({**roce, "env": {"NCCL_IB_TC": 106}}) == []


def test_a_kind_of_gpu_is_asked_for_only_by_runs_on_gpus() -> None:
    assert asks({"ask": ["gpu"]}) == ["gpu"]
    assert asks({"ask": ["gpu"]}, gpus=0) == []


def test_a_missing_account_refuses_the_submission_with_the_key_and_the_file(
    cli: Callable[..., Any], home: Path
) -> None:
    sites = home / ".config" / "slurmmiles" / "sites"
    sites.mkdir(parents=True)
    (sites / "mine.yaml").write_text("ask: [account]\n")
    tool = home / "bin" / "sbatch"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tool.parent}:/usr/bin:/bin"}
    answer = cli("submit", "tiny", "--site", "mine", "--runs", str(home / "runs"), env=env)
    assert answer.returncode == 2 and "Traceback" not in answer.stderr
    assert "account" in answer.stderr and str(sites / "mine.yaml") in answer.stderr
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fabrik: roce", "unknown key 'fabrik'; did you mean 'fabric'?"),
        ("fabric: token-ring", "fabric = 'token-ring'"),
        ("traffic_class: 256", "traffic_class = 256"),
        ("gpu_request: all", "gpu_request = 'all'"),
        ("ask: [password]", "'password'"),
        ("container: {runtime: docker}", "'docker'"),
        ("container: {runtime: pyxis, mounts: [data]}", "/SOURCE"),
        ("container: {runtime: pyxis, mounts: ['/a:/b,/c']}", "/SOURCE"),
        ("sources: [{title: x, organisation: y, read: yesterday}]", "YYYY-MM-DD"),
        ("gpus_per_node: -1", "gpus_per_node = -1"),
        ("extends: nowhere", "unknown site 'nowhere'"),
    ],
)
def test_a_mistake_in_a_site_file_is_named_with_its_line(
    tmp_path: Path, line: str, words: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"description: x\n{line}\n")
    with pytest.raises(BadInput) as raised:
        CATALOG.site(str(path))
    assert words in str(raised.value) and f"{path}:2" in str(raised.value)


def test_a_site_that_extends_another_has_its_values_and_changes_them(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: clariden\naccount: g1\nenv: {NCCL_PROTO: Simple}\n")
    site = CATALOG.site(str(path))
    assert (site.name, site.account, site.fabric, site.gpus_per_node) == (
        "mine",
        "g1",
        "slingshot",
        4,
    )
    assert site.env["NCCL_PROTO"] == "Simple" and site.env["FI_CXI_RX_MATCH_MODE"] == "software"
    assert site.file == str(path)


def test_gpus_modules_network_and_mpi_are_asked_for_as_the_site_has_them() -> None:
    asked = dict(request({"gpu_request": "none", "network": "disable_rdzv_get"}).directives)
    assert not {"gres", "gpus-per-node"} & set(asked)
    assert asked["network"] == "disable_rdzv_get"
    plan = request(
        {"modules": ["cuda/12.8", "a b"], "setup": ["ulimit -l unlimited"], "mpi": "none"}
    )
    assert plan.setup == ("module load cuda/12.8", "module load 'a b'", "ulimit -l unlimited")
    assert "--mpi=none" in plan.srun_args
    assert "--mpi" not in " ".join(request({}).srun_args)


def test_a_constraint_of_the_recipe_wins_over_the_sites() -> None:
    assert dict(request({"constraint": "gpu"}).directives)["constraint"] == "gpu"
    both = request({"constraint": "gpu"}, constraint="gpu&hbm80g")
    assert dict(both.directives)["constraint"] == "gpu&hbm80g"


def test_a_size_that_does_not_come_out_even_is_refused() -> None:
    recipe = Recipe.model_validate({"name": "r", "slurm": {"nodes": 3, "gpus_per_node": 3}})
    assert own_size(recipe, Site(name="s")) == (3, 3)
    with pytest.raises(BadInput, match="is for 3 x 3 GPUs"):
        own_size(recipe, Site(name="s", gpus_per_node=2))
    with pytest.raises(BadInput, match="has 0"):
        own_size(recipe, Site(name="s", gpus_per_node=0))
