"""AWS EFA: how many devices an instance has, and variables of older releases. Pure.

Sources: aws-ofi-nccl doc/efa-env-var.md; awsome-distributed-training's EFA sheet; AWS's table of
accelerated instances for the counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from slurmmiles.findings import about, fail, unknown, warn
from slurmmiles.report import Finding

# Instance type to (EFA devices, GPU product).
INSTANCES = {
    "p4d.24xlarge": (4, "NVIDIA A100-SXM4-40GB"),
    "p4de.24xlarge": (4, "NVIDIA A100-SXM4-80GB"),
    "p5.48xlarge": (32, "NVIDIA H100 80GB HBM3"),
    "p5e.48xlarge": (32, "NVIDIA H200"),
    "p5en.48xlarge": (16, "NVIDIA H200"),
    "p6-b200.48xlarge": (8, "NVIDIA B200"),
}


def _known(instance: str) -> tuple[int, str] | None:
    """SageMaker writes the same types with `ml.` before them."""
    return INSTANCES.get(instance.strip().lower().removeprefix("ml."))


def gpu_of(instance: str) -> str:
    """The GPU product of an instance type, "" when it is not in the table."""
    known = _known(instance)
    return known[1] if known else ""


def expected_devices(instance: str) -> int | None:
    """EFA devices of an instance type; None when it is not in the table."""
    known = _known(instance)
    return known[0] if known else None


def judge_efa_count(seen: int, instance: str, node: str = "") -> list[Finding]:
    """efa_device_count when fewer are seen than the instance has."""
    expected = expected_devices(instance)
    if expected is None:
        return [
            unknown(
                "efa_instance_unknown",
                about(node=node),
                f"{instance!r} is not in the table of instances; {seen} EFA devices are seen",
                "compare with AWS's table of accelerated instances",
                seen=seen,
            )
        ]
    if seen >= expected:
        return []
    return [
        fail(
            "efa_device_count",
            about(node=node),
            f"{seen} of the {expected} EFA devices of {instance} are seen",
            "look again three times, 5 s apart (they can come late after a boot), then replace the"
            " node",
            seen=seen,
            expected=expected,
        )
    ]


def judge_efa(
    env: Mapping[str, str],
    *,
    sure: bool = True,
    libfabric: str = "",
    aws_ofi: str = "",
    installer: str = "",
) -> Iterator[Finding]:
    """efa_stale_variable for each; `sure`: the fabric is EFA, so that common names count too."""
    for name, value, since in (
        ("FI_EFA_USE_DEVICE_RDMA", "1", older(libfabric, (1, 18))),
        ("FI_EFA_FORK_SAFE", "", False),
        ("FI_PROVIDER", "efa", older(aws_ofi, (1, 5))),
        ("FI_EFA_SET_CUDA_SYNC_MEMOPS", "0", older(installer, (1, 29, 1))),
        ("RDMAV_FORK_SAFE", "", False),
        ("RDMAV_HUGEPAGES_SAFE", "", False),
    ):
        if name in env and value in ("", env[name].strip().lower()) and not since:
            yield _stale(name, env[name], "the plugin and libfabric set this themselves")
    if sure and env.get("NCCL_PROTO", "").lower() == "simple" and not older(aws_ofi, (1, 6)):
        why = "only plugin 1.5 and older needed it, and it costs speed of small messages"
        yield _stale("NCCL_PROTO", env["NCCL_PROTO"], why)


def older(version: str, than: tuple[int, ...]) -> bool:
    """Whether `version` is known and below `than`."""
    found = re.findall(r"\d{1,6}", version)[:4]
    return bool(found) and tuple(map(int, found)) < than


def _stale(name: str, value: str, why: str) -> Finding:
    return warn(
        "efa_stale_variable",
        about(var=name),
        f"{name}={value} is of older releases: {why}",
        "leave it out",
        value=value,
    )
