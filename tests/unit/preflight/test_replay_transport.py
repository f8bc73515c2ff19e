"""EFA's devices, NCCL's log and mixed ports in a folder: other values of the same kinds."""

from __future__ import annotations

import pytest

from tests.unit.preflight.made import CXI, judged, table


def efa(devices: int, layer: str = "Unspecified", name: str = "rdmap{}s0") -> str:
    base = "/sys/class/infiniband/" + name
    return "".join(
        f"{base.format(80 + i)}/device/vendor = 0x1d0f\n"
        f"{base.format(80 + i)}/ports/1/state = 4: ACTIVE\n"
        f"{base.format(80 + i)}/ports/1/link_layer = {layer}\n"
        for i in range(devices)
    )


@pytest.mark.parametrize(
    ("instance", "devices", "verdict"),
    [
        ("p5en.48xlarge", 16, "PASS"),
        ("p5.48xlarge", 32, "PASS"),
        ("p5.48xlarge", 31, "FAIL"),
        ("ml.p5e.48xlarge", 30, "FAIL"),
        ("p4d.24xlarge", 4, "PASS"),
        ("p6-b200.48xlarge", 7, "FAIL"),
        ("p99.48xlarge", 4, "UNKNOWN"),
    ],
)
@pytest.mark.parametrize(("layer", "name"), [("Unknown", "efa_{}"), ("Unspecified", "rdmap{}s0")])
def test_efa_devices_of_an_instance(
    instance: str, devices: int, verdict: str, layer: str, name: str
) -> None:
    files = {"instance.txt": instance + "\n", "sysfs.txt": efa(devices, layer, name)}
    found = judged(files)
    assert found[0] == verdict
    codes = {"PASS": set(), "FAIL": {"efa_device_count"}, "UNKNOWN": {"efa_instance_unknown"}}
    assert found[1] == codes[verdict]


def test_stale_variables_are_warnings_where_they_are_stale() -> None:
    env = "FI_PROVIDER=efa\nFI_EFA_USE_DEVICE_RDMA=1\nFI_EFA_FORK_SAFE=1\nNCCL_PROTO=simple\n"
    files = {"env.txt": env, "instance.txt": "p5en.48xlarge\n", "sysfs.txt": efa(16)}
    found = judged({**files, "versions.txt": "libfabric 2.1.0\naws-ofi-nccl 1.17.0\n"})
    stale = {f"var={line.partition('=')[0]}" for line in env.splitlines()}
    assert found == ("WARN", {"efa_stale_variable"}, stale)
    old = judged({**files, "versions.txt": "libfabric 1.17.1\naws-ofi-nccl 1.4.0\n"})
    assert old == ("WARN", {"efa_stale_variable"}, {"var=FI_EFA_FORK_SAFE"})


def line(host: str, text: str) -> str:
    return f"{host}:4242:4311 [0] NCCL INFO {text}\n"


LOGS: dict[str, tuple[dict[str, str], str, set[str], set[str]]] = {
    "all on IB": (
        {"nccl.log": "".join(line(f"gpu-{i:02}", "Using network IB") for i in range(16))},
        "PASS",
        set(),
        set(),
    ),
    "all on EFA by the newer words": (
        {
            "nccl.log": "".join(
                line(f"ip-10-0-0-{i}", "Assigned NET plugin AWS Libfabric to comm") for i in (1, 2)
            )
        },
        "PASS",
        set(),
        set(),
    ),
    "two kinds of RDMA": (
        {
            "nccl.log": line("a", "Using network AWS Libfabric") * 2
            + line("b", "Using network AWS Libfabric")
            + line("c", "Using network IB")
        },
        "FAIL",
        {"nccl_transport_differs"},
        {"node=c"},
    ),
    "labels, colours and carriage returns": (
        {
            "nccl.log": "0: \x1b[32m"
            + line("n1", "Using network IB\x1b[0m").replace("\n", "\r\n")
            + "1: [default0]:"
            + line("n2", "Using network IB")
        },
        "PASS",
        set(),
        set(),
    ),
    "all on TCP over Slingshot": (
        {
            "nccl.log": line("n1", "Using network Socket") + line("n2", "Using network Socket"),
            "sysfs.txt": CXI,
        },
        "FAIL",
        {"nccl_fell_back_to_socket"},
        {"job=nccl"},
    ),
    "TCP that was asked for": (
        {
            "nccl.log": line("n1", "Using network Socket"),
            "env.txt": "NCCL_NET=Socket\n",
            "sysfs.txt": CXI,
        },
        "PASS",
        set(),
        set(),
    ),
    "a node that does not say": (
        {"nccl.log": line("n1", "Using network IB") + line("n2", "Bootstrap: Using eth0")},
        "UNKNOWN",
        {"nccl_transport_unknown"},
        {"node=n2"},
    ),
    "no NCCL in it": (
        {"nccl.log": "srun: error: n1: task 0: Exited with exit code 1\n"},
        "UNKNOWN",
        {"evidence_unreadable"},
        {"file=nccl.log"},
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_transports(name: str) -> None:
    files, verdict, codes, subjects = LOGS[name]
    assert judged(files) == (verdict, codes, subjects)


def test_roles_of_mixed_ports_are_told() -> None:
    files = {
        "sysfs.txt": table("sysfs-mixed-roles.txt"),
        "proc_net_route.txt": table("proc-net-route.txt"),
    }
    assert judged(files) == ("PASS", {"mixed_link_layers_info"}, {"fabric=infiniband"})
