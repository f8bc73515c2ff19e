from __future__ import annotations

import pytest

from slurmmiles.fabric.profiles import hca_list, profile
from slurmmiles.nics import NodeNics
from slurmmiles.planfile import FabricPlan
from tests.unit.fabric_trees import GID4, GID6, gids, nics_of, slingshot, verbs

SEVERAL = FabricPlan(multi_node=True)
NONE = NodeNics(nics=())


def values(kind: str, nics: NodeNics | None = None, plan: FabricPlan = SEVERAL) -> dict[str, str]:
    return {name: entry.value for name, entry in profile(plan, kind, nics).items()}


def test_infiniband_names_its_compute_ports_exactly_and_makes_a_fall_back_an_error() -> None:
    found = values("infiniband", nics_of(verbs(["mlx5_0", "mlx5_1", "mlx5_10"])))
    assert found["NCCL_NET"] == "IB"
    assert found["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1,mlx5_10"
    assert found["NVSHMEM_REMOTE_TRANSPORT"] == "ibrc"
    assert not {"NCCL_IB_GID_INDEX", "NCCL_IB_SL", "NCCL_ALGO", "NCCL_PROTO"} & set(found)


def test_a_port_that_is_down_is_left_out_while_others_are_up() -> None:
    assert hca_list(nics_of(verbs(["mlx5_0", "mlx5_1"], down=["mlx5_1"]))) == "=mlx5_0"
    both = ["mlx5_0", "mlx5_1"]
    assert hca_list(nics_of(verbs(both, down=both))) == "=mlx5_0,mlx5_1"


def test_a_port_number_is_written_only_where_a_device_has_several() -> None:
    second = {
        f"/sys/class/infiniband/mlx5_0/ports/2/{name}": value
        for name, value in {"state": "1: DOWN", "link_layer": "InfiniBand"}.items()
    }
    assert hca_list(nics_of({**verbs(["mlx5_0", "mlx5_1"]), **second})) == "=mlx5_0:1,mlx5_1"


def test_roce_sets_the_lossless_class_for_both_libraries_and_leaves_the_gid_to_nccl() -> None:
    files = verbs(["mlx5_0"], "Ethernet") | gids("mlx5_0", {3: (GID4, "RoCE v2")})
    plan = FabricPlan(multi_node=True, traffic_class=41)
    found = values("roce", nics_of(files), plan)
    assert (found["NCCL_IB_TC"], found["NVSHMEM_IB_TRAFFIC_CLASS"]) == ("41", "41")
    assert found["NVSHMEM_IB_GID_INDEX"] == "3" and "NCCL_IB_GID_INDEX" not in found
    assert "NCCL_IB_ADDR_FAMILY" not in found
    assert "NCCL_IB_TC" not in values("roce", nics_of(files))


def test_roce_ports_that_differ_get_no_common_gid_index_for_nvshmem() -> None:
    files = verbs(["mlx5_0", "mlx5_1"], "Ethernet")
    files |= gids("mlx5_0", {3: (GID4, "RoCE v2")}) | gids("mlx5_1", {5: (GID4, "RoCE v2")})
    assert "NVSHMEM_IB_GID_INDEX" not in values("roce", nics_of(files))


def test_roce_with_ipv6_addresses_only_says_so_to_nccl() -> None:
    files = verbs(["mlx5_0"], "Ethernet") | gids("mlx5_0", {1: (GID6, "RoCE v2")})
    assert values("roce", nics_of(files))["NCCL_IB_ADDR_FAMILY"] == "AF_INET6"


def test_slingshot_is_hpes_list_and_alt_read_only_with_the_jobs_option() -> None:
    found = values("slingshot", nics_of(slingshot()))
    assert found["NCCL_SOCKET_IFNAME"] == "=hsn0,hsn1,hsn2,hsn3"
    assert found["NCCL_NET"] == "AWS Libfabric"
    assert found["FI_CXI_DEFAULT_CQ_SIZE"] == "131072"
    zeros = ("FI_CXI_RDZV_EAGER_SIZE", "FI_CXI_RDZV_THRESHOLD", "FI_CXI_RDZV_GET_MIN")
    assert [found[name] for name in zeros] == ["0", "0", "0"]
    assert found["NVSHMEM_LIBFABRIC_PROVIDER"] == "cxi"
    assert "FI_CXI_RDZV_PROTO" not in found
    with_option = FabricPlan(multi_node=True, rdzv_get_disabled=True)
    assert values("slingshot", None, with_option)["FI_CXI_RDZV_PROTO"] == "alt_read"


def test_efa_sets_nothing_that_is_stale() -> None:
    found = values("efa", nics_of(verbs(["rdmap79s0"], "Unspecified", vendor="0x1d0f")))
    assert found["NCCL_NET"] == "AWS Libfabric" and found["NVSHMEM_LIBFABRIC_PROVIDER"] == "efa"
    assert not [name for name in found if name.startswith("FI_")]


@pytest.mark.parametrize(("speed", "threads"), [("400000", "4"), ("100000", "4"), ("25000", None)])
def test_tcp_gets_more_threads_on_fast_ethernet(speed: str, threads: str | None) -> None:
    nics = nics_of({"/sys/class/net/eth0/device/": "x", "/sys/class/net/eth0/speed": speed})
    found = values("tcp", nics.model_copy(update={"default_route": "eth0"}))
    assert (found["NCCL_NET"], found["NCCL_IB_DISABLE"]) == ("Socket", "1")
    assert found.get("NCCL_SOCKET_NTHREADS") == threads


@pytest.mark.parametrize("kind", ["infiniband", "roce", "slingshot", "efa", "tcp"])
def test_a_run_on_one_node_sets_no_network(kind: str) -> None:
    assert values(kind, NONE, FabricPlan(kind=kind)) == {}


@pytest.mark.parametrize("kind", ["infiniband", "roce", "slingshot", "efa", "tcp"])
def test_every_value_has_its_reason_and_origin(kind: str) -> None:
    for name, entry in profile(SEVERAL, kind, None).items():
        assert entry.why and entry.origin == f"fabric {kind}", name
