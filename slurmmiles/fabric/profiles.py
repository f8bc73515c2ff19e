"""The environment of each kind of network between the nodes; pure.

Before a node is known, what it would fill in stands as a placeholder. Sources: NCCL's environment
page and its net.cc and net_ib (a fall-back to TCP is silent unless NCCL_NET is set; names match by
prefix unless the list begins with "="); HPE's ccl_env.sh for Slingshot; AWS' EFA cheatsheet and
efa-env-var.md; NVSHMEM's environment page; the CSCS page on NVSHMEM for cxi.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurmmiles.name_lists import exact
from slurmmiles.nics import NicFacts, NodeNics
from slurmmiles.planfile import EnvValue, FabricPlan

FABRIC = "fabric "
LIBFABRIC = "AWS Libfabric"  # the name that aws-ofi-nccl registers with NCCL
FAST_SOCKET_GBIT_S = 100.0  # NCCL: four threads for "generic 100G networks"
Table = dict[str, EnvValue]


def profile(plan: FabricPlan, kind: str = "", nics: NodeNics | None = None) -> Table:
    """What the fabric `kind` (else the plan's) needs on one node; empty for a run on one node,
    whose GPUs use no network.
    """
    kind = kind or plan.kind
    if not plan.multi_node or kind == "ethernet":
        return {}
    makers = {
        "infiniband": _infiniband,
        "roce": _roce,
        "slingshot": _slingshot,
        "efa": _efa,
        "tcp": _tcp,
    }
    return makers[kind](plan, nics)


def usable(nics: NodeNics) -> tuple[NicFacts, ...]:
    """The compute ports that are up; all of them where none says its state."""
    return tuple(n for n in nics.compute if n.is_up) or nics.compute


def hca_list(nics: NodeNics) -> str:
    """NCCL_IB_HCA in its exact form. A port is named only where its device has others."""
    ports = usable(nics)
    names: list[str] = []
    for nic in ports:
        of_device = [n for n in nics.nics if n.name == nic.name]
        names.append(nic.name if len(of_device) == 1 else f"{nic.name}:{nic.port}")
    return exact(list(dict.fromkeys(names)))


def _entries(kind: str, rows: Sequence[tuple[str, str, str]]) -> Table:
    return {n: EnvValue(value=v, origin=f"{FABRIC}{kind}", why=w) for n, v, w in rows}


def _infiniband(plan: FabricPlan, nics: NodeNics | None, kind: str = "infiniband") -> Table:
    hcas = hca_list(nics) if nics else "{ib_hca}"
    return _entries(
        kind,
        [
            ("NCCL_NET", "IB", "without InfiniBand NCCL stops, instead of using TCP silently"),
            ("NCCL_IB_HCA", hcas, "this node's compute ports by exact name: mlx5_1 is no mlx5_10"),
            ("NVSHMEM_REMOTE_TRANSPORT", "ibrc", "IBGDA needs driver options and privileges"),
        ],
    )


def _roce(plan: FabricPlan, nics: NodeNics | None) -> Table:
    table = _infiniband(plan, nics, "roce")
    if plan.traffic_class is not None:
        lossless = str(plan.traffic_class), "the switches' lossless class"
        table |= _entries(
            "roce",
            [("NCCL_IB_TC", *lossless), ("NVSHMEM_IB_TRAFFIC_CLASS", *lossless)],
        )
    ports = usable(nics) if nics else ()
    indices = {nic.gid_index for nic in ports}
    if len(indices) == 1 and (index := indices.pop()) is not None:
        # NCCL chooses by itself since 2.21; NVSHMEM does not.
        table |= _entries(
            "roce", [("NVSHMEM_IB_GID_INDEX", str(index), "the RoCE v2 address of these ports")]
        )
    routable = [g for nic in ports for g in nic.gids if g.is_routable_v2]
    if routable and not any(g.is_ipv4 for g in routable):
        table |= _entries("roce", [("NCCL_IB_ADDR_FAMILY", "AF_INET6", "no port has an IPv4 GID")])
    return table


def _slingshot(plan: FabricPlan, nics: NodeNics | None) -> Table:
    netdevs = [n.netdev for n in usable(nics) if n.netdev] if nics else []
    sockets = exact(netdevs) if nics else "{hsn}"
    rows = [
        ("NCCL_NET", LIBFABRIC, "without the plugin NCCL stops, instead of using TCP silently"),
        ("NCCL_CROSS_NIC", "1", "HPE: rings may use different NICs on different nodes"),
        ("NCCL_NET_GDR_LEVEL", "PHB", "HPE: GPUDirect up to the same host bridge"),
        ("FI_MR_CACHE_MONITOR", "userfaultfd", "HPE; kdreg2 is the other valid value"),
        ("FI_CXI_DISABLE_HOST_REGISTER", "1", "HPE"),
        ("FI_CXI_DEFAULT_CQ_SIZE", "131072", "HPE; the default is for small runs"),
        ("FI_CXI_DEFAULT_TX_SIZE", "2048", "HPE"),
        ("FI_CXI_RDZV_EAGER_SIZE", "0", "HPE: rendezvous only, for gdrcopy with LL128 corrupts"),
        ("FI_CXI_RDZV_THRESHOLD", "0", "HPE: the same"),
        ("FI_CXI_RDZV_GET_MIN", "0", "HPE: the same"),
        ("FI_CXI_RX_MATCH_MODE", "hybrid", "HPE: falls back to software when a NIC's list is full"),
        ("NVSHMEM_REMOTE_TRANSPORT", "libfabric", "there is no mlx5 for its default"),
        ("NVSHMEM_LIBFABRIC_PROVIDER", "cxi", "Slingshot's provider"),
        ("NVSHMEM_DISABLE_CUDA_VMM", "1", "CSCS"),
    ]
    if netdevs or not nics:
        rows.append(("NCCL_SOCKET_IFNAME", sockets, "all Slingshot interfaces, by exact name"))
    if plan.rdzv_get_disabled:
        rows.append(("FI_CXI_RDZV_PROTO", "alt_read", "HPE, with --network=disable_rdzv_get"))
    return _entries("slingshot", rows)


def _efa(plan: FabricPlan, nics: NodeNics | None) -> Table:
    return _entries(
        "efa",
        [
            ("NCCL_NET", LIBFABRIC, "without the plugin NCCL stops, instead of using TCP silently"),
            ("NVSHMEM_REMOTE_TRANSPORT", "libfabric", "there is no mlx5 for its default"),
            ("NVSHMEM_LIBFABRIC_PROVIDER", "efa", "AWS' provider"),
        ],
    )


def _tcp(plan: FabricPlan, nics: NodeNics | None) -> Table:
    rows = [
        ("NCCL_NET", "Socket", "the site asks for TCP"),
        ("NCCL_IB_DISABLE", "1", "the same"),
    ]
    route = nics.default_route if nics else ""
    rates = [n.rate or 0.0 for n in nics.nics if route in n.netdevs] if nics and route else []
    if max(rates, default=0.0) >= FAST_SOCKET_GBIT_S:
        rows.append(("NCCL_SOCKET_NTHREADS", "4", "NCCL's advice for Ethernet of 100 Gbit/s"))
    return _entries("tcp", rows)
