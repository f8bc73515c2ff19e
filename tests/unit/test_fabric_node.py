from __future__ import annotations

from typing import Any

import pytest

from slurmmiles.fabric import NodeEnv, node_env_of, resolve_env
from slurmmiles.nics import NodeNics
from slurmmiles.planfile import FabricPlan
from slurmmiles.recipe import Recipe
from slurmmiles.report import Verdict
from slurmmiles.site import Site
from tests.unit.fabric_trees import nics_of, slingshot, verbs

IB = nics_of(verbs(["mlx5_0", "mlx5_1"]))
CXI = nics_of(slingshot())
OFI = {"libnccl-net.so": "/opt/ofi/lib/libnccl-net.so.0.0.0"}


def node(
    nics: NodeNics = IB,
    *,
    kind: str = "auto",
    site: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    inherited: dict[str, str] | None = None,
    plugins: dict[str, str] | None = None,
    gpu: str = "H200",
    **fabric: Any,
) -> NodeEnv:
    plan = FabricPlan(kind=kind, multi_node=True, **fabric)
    env = resolve_env(
        Recipe(name="r"),
        Site(name="s", env=site or {}),
        device="gpu",
        user={},
        environ=environ,
        fabric=plan,
    )
    return node_env_of(
        "n1", env, plan, nics, inherited=inherited or {}, plugins=plugins or {}, gpu=gpu
    )


def codes(found: NodeEnv, verdict: Verdict = Verdict.FAIL) -> list[str]:
    return [f.code for f in found.findings if f.verdict is verdict]


def test_a_node_finds_its_own_network_and_names_its_own_ports() -> None:
    found = node()
    assert found.kind == "infiniband" and codes(found) == []
    assert found.table["NCCL_IB_HCA"].value == "=mlx5_0,mlx5_1"
    assert found.table["NCCL_IB_HCA"].origin == "fabric infiniband"


def test_environment_over_site_over_module_over_profile() -> None:
    name = "NCCL_NET"
    assert node().table[name].value == "IB"
    by_module = node(inherited={name: "M"}).table[name]
    assert (by_module.value, by_module.origin) == ("M", "node environment")
    by_site = node(site={name: "S"}, inherited={name: "M"}).table[name]
    assert (by_site.value, by_site.origin) == ("S", "site s")
    mine = node(site={name: "S"}, inherited={name: "U"}, environ={name: "U"}).table[name]
    assert (mine.value, mine.origin) == ("U", "environment")


def test_only_the_networks_variables_of_the_shell_enter_the_plan_and_no_secret() -> None:
    shell = {"NCCL_DEBUG": "INFO", "PATH": "/x", "FI_API_KEY": "hunter2", "HOME": "/h"}
    table = node(environ=shell).table
    assert table["NCCL_DEBUG"].value == "INFO"
    assert not {"PATH", "HOME", "FI_API_KEY"} & set(table)
    assert "FI_API_KEY" not in node(inherited=shell).table


def test_a_node_of_another_network_than_the_sites_is_named() -> None:
    found = node(CXI, kind="infiniband", plugins=OFI)
    assert "fabric_differs_from_site" in codes(found)
    assert {f.subject for f in found.findings} == {"n1"}


def test_tcp_is_used_only_where_it_was_asked_for() -> None:
    assert codes(node(NodeNics(nics=()))) == ["fabric_not_found"]
    asked = node(NodeNics(nics=()), kind="tcp")
    assert codes(asked) == [] and asked.table["NCCL_NET"].value == "Socket"


def test_a_node_whose_ports_are_all_down_is_unfit() -> None:
    dead = nics_of(verbs(["mlx5_0"], down=["mlx5_0"]))
    assert codes(node(dead)) == ["no_compute_port_up"]


def test_slingshot_takes_cassini_if_it_can_be_loaded() -> None:
    found = node(CXI, plugins={"libnccl-net-cassini.so": "/x/libnccl-net-cassini.so", **OFI})
    assert found.table["NCCL_NET_PLUGIN"].value == "cassini"
    assert "NCCL_NET" not in found.table and codes(found) == []


def test_slingshot_takes_aws_ofi_nccl_else() -> None:
    found = node(CXI, plugins=OFI)
    assert found.table["NCCL_NET"].value == "AWS Libfabric"
    assert "NCCL_NET_PLUGIN" not in found.table and codes(found) == []
    named = node(CXI, plugins={"libnccl-net-ofi.so": "/x/libnccl-net-ofi.so"})
    assert named.table["NCCL_NET_PLUGIN"].value == "ofi" and codes(named) == []


def test_slingshot_without_a_plugin_is_refused_with_what_to_install() -> None:
    (fault,) = [f for f in node(CXI).findings if f.verdict is Verdict.FAIL]
    assert fault.code == "nccl_net_plugin_not_found" and "aws-ofi-nccl" in fault.remedy


def test_a_plugin_that_the_user_names_and_is_not_there_is_refused() -> None:
    found = node(CXI, plugins=OFI, environ={"NCCL_NET_PLUGIN": "cassini"})
    assert codes(found) == ["nccl_net_plugin_not_found"]


def test_alt_read_follows_the_jobs_own_network_option() -> None:
    job = {"SLURM_NETWORK": "disable_rdzv_get"}
    assert "FI_CXI_RDZV_PROTO" not in node(CXI, plugins=OFI).table
    assert node(CXI, plugins=OFI, inherited=job).table["FI_CXI_RDZV_PROTO"].value == "alt_read"
    by_hand = node(CXI, plugins=OFI, environ={"FI_CXI_RDZV_PROTO": "alt_read"})
    assert codes(by_hand) == ["cxi_alt_read_needs_network_option"]


def test_gdrcopy_on_grace_hopper_is_safe_with_the_profile_and_refused_without() -> None:
    gdr = {"NCCL_GDRCOPY_ENABLE": "1"}
    assert codes(node(CXI, plugins=OFI, environ=gdr, gpu="GH200")) == []
    eager = {**gdr, "FI_CXI_RDZV_THRESHOLD": "16384"}
    found = node(CXI, plugins=OFI, environ=eager, gpu="GH200")
    assert codes(found) == ["gdrcopy_ll128_corruption"]


@pytest.mark.parametrize("nics", [CXI, nics_of(verbs(["rdmap1s0"], "", vendor="0x1d0f"))])
def test_deepep_is_refused_where_there_is_no_mlx5(nics: NodeNics) -> None:
    assert codes(node(nics, plugins=OFI, deepep=True)) == ["deepep_needs_mlx5"]
    assert codes(node(IB, deepep=True)) == []


def test_a_run_on_cpus_has_no_network_environment() -> None:
    plan = FabricPlan()
    env = resolve_env(Recipe(name="r"), Site(name="s"), device="cpu", user={}, fabric=plan)
    found = node_env_of("n1", env, plan, NodeNics(nics=()), inherited={}, plugins={})
    assert found.table == env and found.findings == ()
