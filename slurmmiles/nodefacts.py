"""What is true of this node, gathered without load: names, addresses, limits, memory, CPUs that we
may use.
"""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, Field

from slurmmiles.nics import NodeNics
from slurmmiles.planfile import EnvValue
from slurmmiles.ports import DEFAULT_FLOOR, PortBlock, candidates
from slurmmiles.report import Finding
from slurmmiles.sysfs import read_node
from slurmmiles.systree import DiskTree

EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NodeFacts(BaseModel):
    """nodes/<node>.json. Sizes in bytes; a limit of -1 is unlimited (setrlimit(2))."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    hostname: str
    address: str
    interface: str
    addresses: dict[str, str]
    resolves_to: tuple[str, ...]
    """What the node's own name resolves to, here."""
    ephemeral_floor: int
    port_base: int
    cpus: int
    """CPUs that this process may run on: what Slurm really gave, not what the node has."""
    memory_bytes: int
    shm_bytes: int
    limits: dict[str, int]
    gpus: int | None
    """GPUs that NVML shows, or None where there is no NVML."""
    canary: str | None = None
    """What this node read from the head's canary file; None when it was not there."""
    canary_error: str = ""
    nics: NodeNics | None = None
    """Its network ports and GPUs, from the kernel's files."""
    fabric: str = ""
    """The kind of network that its environment was resolved for."""
    env: dict[str, EnvValue] = Field(default_factory=dict)
    """What its Ray processes are started with, beyond what they inherit."""
    findings: tuple[Finding, ...] = ()
    """What speaks against it in the run's environment."""


def ephemeral_floor() -> int:
    """The first port that the kernel hands out by itself (ip(7)); Linux's default where it cannot
    be read.
    """
    try:
        return int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return DEFAULT_FLOOR


def ipv4_addresses() -> dict[str, str]:
    """Interface to its first IPv4 address."""
    found: dict[str, str] = {}
    for name, addresses in psutil.net_if_addrs().items():
        for a in addresses:
            if a.family == socket.AF_INET:
                found.setdefault(name, a.address)
    return found


def interface_of(address: str) -> str:
    """The interface that has `address`; `lo` when none has."""
    return next((name for name, a in ipv4_addresses().items() if a == address), "lo")


def resolve(name: str) -> tuple[str, ...]:
    """The IPv4 addresses of `name`, in the resolver's order; empty when it does not resolve."""
    try:
        infos = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter for a label of more than 63 characters
        return ()
    return tuple(dict.fromkeys(str(info[4][0]) for info in infos))


def address_towards(target: str) -> str:
    """This node's address on the route to `target`; no packet is sent. 127.0.0.1 when there is no
    route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))  # the port does not matter for a UDP socket that never sends
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def claim_ports(job_id: str, floor: int) -> tuple[PortBlock, socket.socket] | None:
    """The first block whose fixed ports are free here, and the socket that holds it; None when all
    are taken.
    """
    for block in candidates(job_id, floor):
        try:
            guard = socket.create_server(("", block.control), backlog=256)
        except OSError:
            continue
        if all(_is_free(port) for port in block.fixed[1:]):
            return block, guard
        guard.close()
    return None


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


def _limits() -> dict[str, int]:
    kinds = {
        "memlock": resource.RLIMIT_MEMLOCK,
        "nofile": resource.RLIMIT_NOFILE,
        "stack": resource.RLIMIT_STACK,
    }
    return {name: resource.getrlimit(kind)[0] for name, kind in kinds.items()}


def raise_nofile() -> None:
    """The soft limit of open files up to the hard one: Ray and NCCL open thousands, and login
    shells allow 1024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _shm_bytes() -> int:
    try:
        return psutil.disk_usage("/dev/shm").total
    except OSError:
        return 0


def _gpu_count() -> int | None:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def gather(node: str, *, address: str, interface: str, floor: int, port_base: int) -> NodeFacts:
    """The facts of this node; only what cannot be asked is left empty, nothing is raised."""
    hostname = socket.gethostname()
    return NodeFacts(
        node=node,
        hostname=hostname,
        address=address,
        interface=interface,
        addresses=ipv4_addresses(),
        resolves_to=resolve(hostname),
        ephemeral_floor=floor,
        port_base=port_base,
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        shm_bytes=_shm_bytes(),
        limits=_limits(),
        gpus=_gpu_count(),
        nics=read_node(DiskTree()),
    )
