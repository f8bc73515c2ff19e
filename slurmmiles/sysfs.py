"""The network ports and GPUs of a node, read from its kernel files without root.

Sources: Documentation/ABI of Linux for /sys/class/infiniband (stable/sysfs-class-infiniband) and
/sys/class/net (testing/sysfs-class-net); Slingshot's cxi class and its hsn interfaces; EFA's vendor
0x1d0f.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurmmiles.nicroles import with_roles
from slurmmiles.nics import Gid, GpuPath, NicFacts, NicKind, NodeNics
from slurmmiles.pci import UNKNOWN_NUMA
from slurmmiles.systree import Tree

VERBS, CXI, NET, PCI = (
    "/sys/class/infiniband",
    "/sys/class/cxi",
    "/sys/class/net",
    "/sys/bus/pci/devices",
)
AMAZON, NVIDIA = "0x1d0f", "0x10de"
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*G")
_INDEX = re.compile(r"[0-9]{1,6}")
_EFA_NAME = re.compile(r"(rdmap\d+s\d+|efa_\d+)")


def read_node(tree: Tree) -> NodeNics:
    """Every port with its role, every GPU, the default route; what is absent is left empty."""
    route = default_route(tree)
    gpus = tuple(read_gpus(tree))
    ports = [*_verbs_ports(tree), *_cxi_ports(tree)]
    taken = {netdev for port in ports for netdev in port.netdevs}
    ports += [nic for nic in _interfaces(tree) if nic.name not in taken]
    nics = with_roles(ports, gpus, under(tree, route) if route else frozenset())
    return NodeNics(nics=nics, gpus=gpus, default_route=route)


def _verbs_ports(tree: Tree) -> Iterator[NicFacts]:
    for device in tree.entries(VERBS):
        base = f"{VERBS}/{device}"
        for port in tree.entries(f"{base}/ports"):
            if not _INDEX.fullmatch(port):
                continue
            at = f"{base}/ports/{port}"
            layer = tree.text(f"{at}/link_layer") or ""
            vendor = tree.text(f"{base}/device/vendor") or ""
            driver = _driver(tree, f"{base}/device")
            netdevs = tree.entries(f"{base}/device/net")
            yield NicFacts(
                name=device,
                port=int(port),
                kind=_verbs_kind(device, layer, vendor, driver),
                state=_word(tree.text(f"{at}/state")),
                phys_state=_word(tree.text(f"{at}/phys_state")),
                rate=_rate(tree.text(f"{at}/rate")),
                link_layer=layer,
                gids=tuple(_gids(tree, at)),
                netdevs=netdevs,
                bond=next((b for n in netdevs if (b := bond_of(tree, n))), "")
                or (device if "bond" in device else ""),
                driver=driver,
                vendor=vendor,
                model=tree.text(f"{base}/hca_type") or "",
                pci_path=_pci_path(tree, f"{base}/device"),
                numa=_number(tree.text(f"{base}/device/numa_node"), UNKNOWN_NUMA),
                virtual_function=tree.exists(f"{base}/device/physfn"),
                mtu=_mtu(tree, netdevs),
            )


def _verbs_kind(device: str, layer: str, vendor: str, driver: str) -> NicKind:
    """Amazon's devices have no link layer of their own: Unspecified, or Unknown on some kernels."""
    if vendor.lower() == AMAZON or driver == "efa":
        return NicKind.EFA
    if layer.lower() in ("unspecified", "unknown", "") and _EFA_NAME.fullmatch(device):
        return NicKind.EFA
    return NicKind.ROCE if layer.lower() == "ethernet" else NicKind.IB


def _gids(tree: Tree, at: str) -> Iterator[Gid]:
    for index in tree.entries(f"{at}/gids"):
        value = tree.text(f"{at}/gids/{index}")
        if value is None or not _INDEX.fullmatch(index):
            continue
        gid = Gid(
            index=int(index),
            value=value,
            type=tree.text(f"{at}/gid_attrs/types/{index}") or "",
            netdev=tree.text(f"{at}/gid_attrs/ndevs/{index}") or "",
        )
        if not gid.is_empty:  # an unused entry of the table reads as zeros
            yield gid


def _cxi_ports(tree: Tree) -> Iterator[NicFacts]:
    """Slingshot-11; Slingshot-10 has hsn interfaces over mlx5 and is RoCE."""
    for device in tree.entries(CXI):
        base = f"{CXI}/{device}"
        number = re.search(r"\d+$", device)
        netdevs = tree.entries(f"{base}/device/net")
        guess = f"hsn{number[0]}" if number else ""
        if not netdevs and guess and tree.exists(f"{NET}/{guess}"):
            netdevs = (guess,)
        at = f"{NET}/{netdevs[0]}" if netdevs else ""
        speed = _number(tree.text(f"{at}/speed"), 0) if at else 0
        yield NicFacts(
            name=device,
            kind=NicKind.CXI,
            state=(tree.text(f"{at}/operstate") or "").upper() if at else "",
            rate=speed / 1000 if speed > 0 else None,
            netdevs=netdevs,
            driver=_driver(tree, f"{base}/device"),
            vendor=tree.text(f"{base}/device/vendor") or "",
            pci_path=_pci_path(tree, f"{base}/device"),
            numa=_number(tree.text(f"{base}/device/numa_node"), UNKNOWN_NUMA),
            mtu=_mtu(tree, netdevs),
        )


def _interfaces(tree: Tree) -> Iterator[NicFacts]:
    """Interfaces of a device; bonds, bridges and veth pairs have none of their own."""
    for name in tree.entries(NET):
        at = f"{NET}/{name}"
        if not tree.exists(f"{at}/device"):
            continue
        speed = _number(tree.text(f"{at}/speed"), 0)
        yield NicFacts(
            name=name,
            kind=NicKind.ETH,
            state=(tree.text(f"{at}/operstate") or "").upper(),
            rate=speed / 1000 if speed > 0 else None,
            netdevs=(name,),
            bond=bond_of(tree, name),
            driver=_driver(tree, f"{at}/device"),
            vendor=tree.text(f"{at}/device/vendor") or "",
            pci_path=_pci_path(tree, f"{at}/device"),
            numa=_number(tree.text(f"{at}/device/numa_node"), UNKNOWN_NUMA),
            virtual_function=tree.exists(f"{at}/device/physfn"),
            mtu=_mtu(tree, (name,)),
        )


def read_gpus(tree: Tree) -> Iterator[GpuPath]:
    """NVIDIA's display and 3D controllers (PCI class 0x0300 and 0x0302), in order of address."""
    for bdf in tree.entries(PCI):
        base = f"{PCI}/{bdf}"
        kind = tree.text(f"{base}/class") or ""
        vendor = (tree.text(f"{base}/vendor") or "").lower()
        if vendor == NVIDIA and kind.startswith(("0x0300", "0x0302")):
            numa = _number(tree.text(f"{base}/numa_node"), UNKNOWN_NUMA)
            yield GpuPath(bdf=bdf, path=tree.real(base), numa=numa)


def default_route(tree: Tree) -> str:
    """The interface of the IPv4 default route of the lowest metric, "" without one.

    /proc/net/route: Iface Destination Gateway Flags RefCnt Use Metric Mask ...
    """
    best: tuple[int, str] | None = None
    for line in (tree.text("/proc/net/route") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or fields[1] != "00000000" or fields[7] != "00000000":
            continue
        route = (_number(fields[6], 0), fields[0])
        best = min(best, route) if best else route
    return best[1] if best else ""


def bond_of(tree: Tree, netdev: str) -> str:
    """The bond that `netdev` is a member of, "" when it is in none."""
    master = tree.real(f"{NET}/{netdev}/master").rpartition("/")[2]
    if tree.exists(f"{NET}/{master}/bonding") or master.startswith(("bond", "team")):
        return master
    for name in tree.entries(NET):
        if netdev in (tree.text(f"{NET}/{name}/bonding/slaves") or "").split():
            return name
    return ""


def under(tree: Tree, netdev: str) -> frozenset[str]:
    """`netdev` and what carries it: the members of a bond or bridge, the base of a VLAN."""
    found, left = set[str](), [netdev]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        at = f"{NET}/{name}"
        left += [e.removeprefix("lower_") for e in tree.entries(at) if e.startswith("lower_")]
        left += (tree.text(f"{at}/bonding/slaves") or "").split()
        left += [name.rpartition(".")[0]] if re.fullmatch(r".+\.\d+", name) else []
    return frozenset(found)


def _driver(tree: Tree, device: str) -> str:
    driver = tree.real(f"{device}/driver").rpartition("/")[2]
    return "" if driver == "driver" else driver


def _pci_path(tree: Tree, device: str) -> str:
    real = tree.real(device)
    return "" if real == device else real


def _word(state: str | None) -> str:
    """`4: ACTIVE` to ACTIVE, `5: LinkUp` to LinkUp."""
    return (state or "").rpartition(":")[2].strip()


def _rate(text: str | None) -> float | None:
    """`400 Gb/sec (4X NDR)` to 400.0: the name in brackets says nothing on Ethernet."""
    found = _RATE.match(text or "")
    return float(found[1]) if found else None


def _number(text: str | None, missing: int) -> int:
    return int(text) if text and re.fullmatch(r"-?[0-9]{1,15}", text) else missing


def _mtu(tree: Tree, netdevs: tuple[str, ...]) -> int | None:
    known = _number(tree.text(f"{NET}/{netdevs[0]}/mtu"), 0) if netdevs else 0
    return known or None
