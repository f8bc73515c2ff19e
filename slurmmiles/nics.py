"""What a node's network ports are: kind, state, rate, addresses, place, role. Pure data."""

from __future__ import annotations

import ipaddress
from enum import Enum

from pydantic import BaseModel, ConfigDict

from slurmmiles.pci import UNKNOWN_NUMA, PciDevice

ROCE_V2 = "RoCE v2"


class NicKind(str, Enum):
    """By the link layer, never by the name of a rate: Ethernet ports print EDR and HDR too."""

    IB = "ib"
    ROCE = "roce"
    CXI = "cxi"
    EFA = "efa"
    ETH = "eth"


class Role(str, Enum):
    """What a port is for on this node."""

    COMPUTE = "compute"
    STORAGE = "storage"
    MANAGEMENT = "management"
    OTHER = "other"
    """Not near a GPU, not in a bond, not on the default route: a second network."""


class Facts(BaseModel):
    """Frozen, and an unknown key is an error: facts go between processes as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Gid(Facts):
    """One entry of a port's GID table: gids/I, gid_attrs/types/I, gid_attrs/ndevs/I."""

    index: int
    value: str
    type: str = ""
    netdev: str = ""

    @property
    def address(self) -> ipaddress.IPv6Address | None:
        try:
            return ipaddress.IPv6Address(self.value)
        except ValueError:
            return None

    @property
    def is_empty(self) -> bool:
        return self.address is None or int(self.address) == 0

    @property
    def is_ipv4(self) -> bool:
        """::ffff:a.b.c.d, made from the interface's IPv4 address."""
        return self.address is not None and self.address.ipv4_mapped is not None

    @property
    def is_routable_v2(self) -> bool:
        """A RoCE v2 address that a router passes on: neither empty nor link-local."""
        return (
            self.type.strip().lower() == ROCE_V2.lower()
            and self.address is not None
            and not self.is_empty
            and not self.address.is_link_local
            and not (self.address.ipv4_mapped or ipaddress.IPv4Address("1.0.0.1")).is_link_local
        )


class NicFacts(Facts):
    """One port of one device; rates in Gbit/s."""

    name: str
    """mlx5_0, cxi0, rdmap79s0, eth0."""
    port: int = 1
    kind: NicKind
    role: Role = Role.OTHER
    state: str = ""
    """ACTIVE, INIT, ARMED, DOWN of a verbs port; UP or DOWN of an interface; "" unknown."""
    phys_state: str = ""
    rate: float | None = None
    link_layer: str = ""
    gids: tuple[Gid, ...] = ()
    netdevs: tuple[str, ...] = ()
    bond: str = ""
    """The bond that its interface belongs to."""
    driver: str = ""
    vendor: str = ""
    """PCI vendor, 0x15b3."""
    model: str = ""
    """hca_type of a verbs device, MT4129."""
    near_gpu: bool = False
    """It is below the same PCIe switches as some GPU."""
    pci_path: str = ""
    numa: int = UNKNOWN_NUMA
    virtual_function: bool = False
    mtu: int | None = None
    """MTU of the interface, which is not the verbs MTU."""

    @property
    def pci(self) -> PciDevice:
        return PciDevice(self.pci_path, self.numa)

    @property
    def is_up(self) -> bool:
        return self.state.upper() in ("ACTIVE", "UP")

    @property
    def netdev(self) -> str:
        return self.netdevs[0] if self.netdevs else ""

    @property
    def gid_index(self) -> int | None:
        """The index that NCCL 2.21 and newer choose on a RoCE port: RoCE v2 of an IPv4 address,
        else of a routable IPv6 address; None when the port has neither.
        """
        routable = [g for g in self.gids if g.is_routable_v2]
        return next(
            (g.index for g in routable if g.is_ipv4), routable[0].index if routable else None
        )


class GpuPath(Facts):
    """Where a GPU sits: its PCI address, real sysfs path and NUMA node."""

    bdf: str
    path: str
    numa: int = UNKNOWN_NUMA

    @property
    def pci(self) -> PciDevice:
        return PciDevice(self.path, self.numa)


class NodeNics(Facts):
    """The ports and GPUs of one node."""

    nics: tuple[NicFacts, ...]
    gpus: tuple[GpuPath, ...] = ()
    default_route: str = ""
    """The interface of the default route, "" when there is none."""

    def of(self, *kinds: NicKind) -> tuple[NicFacts, ...]:
        return tuple(n for n in self.nics if n.kind in kinds)

    @property
    def compute(self) -> tuple[NicFacts, ...]:
        """The ports that NCCL should use, in natural order, whether up or not."""
        return tuple(n for n in self.nics if n.role is Role.COMPUTE)

    @property
    def fabric(self) -> str:
        """infiniband, roce, slingshot, efa or ethernet: the kind of the compute ports."""
        words = {
            NicKind.IB: "infiniband",
            NicKind.ROCE: "roce",
            NicKind.CXI: "slingshot",
            NicKind.EFA: "efa",
        }
        return next((words[n.kind] for n in self.compute if n.kind in words), "ethernet")
