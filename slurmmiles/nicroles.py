"""Which ports carry the training traffic: the role of each, from several signals together. Pure.

One signal alone misclassifies some platform (NVSentinel PR#1221 and #1229): a storage port may be
InfiniBand, a compute port may be in a bond, and Ethernet ports print the rate names of InfiniBand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from slurmmiles.nics import GpuPath, NicFacts, NicKind, Role
from slurmmiles.pci import Distance, distance

_RDMA = (NicKind.IB, NicKind.ROCE)
_NEAR = (Distance.PIX, Distance.PXB)


def with_roles(
    nics: Iterable[NicFacts], gpus: Sequence[GpuPath], routed: frozenset[str]
) -> tuple[NicFacts, ...]:
    """`nics` with `role` set; `routed` are the interfaces below the default route.

    Slingshot and EFA ports are compute by what they are. Of the others the default route makes a
    port management and a bond makes it storage; of what is left, the ports below a GPU's PCIe
    switch are compute, or, where none is, the group of equal ports with the highest total rate.
    """
    ports = tuple(n.model_copy(update={"near_gpu": _is_near(n, gpus)}) for n in nics)
    managed = {_key(n) for n in ports if routed & {n.name, *n.netdevs, n.bond}}
    compute = _compute(ports, managed)
    return tuple(n.model_copy(update={"role": _role(n, compute, managed)}) for n in ports)


def _key(nic: NicFacts) -> tuple[str, int]:
    return nic.name, nic.port


def _is_near(nic: NicFacts, gpus: Sequence[GpuPath]) -> bool:
    return any(distance(gpu.pci, nic.pci) in _NEAR for gpu in gpus)


def _role(
    nic: NicFacts, compute: frozenset[tuple[str, int]], managed: set[tuple[str, int]]
) -> Role:
    if nic.kind in (NicKind.CXI, NicKind.EFA) or _key(nic) in compute:
        return Role.COMPUTE
    if _key(nic) in managed:
        return Role.MANAGEMENT
    return Role.STORAGE if nic.bond else Role.OTHER


def _compute(nics: Sequence[NicFacts], managed: set[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """The compute ports among InfiniBand and RoCE ports."""
    if any(n.kind in (NicKind.CXI, NicKind.EFA) for n in nics):
        return frozenset()  # a verbs port beside these belongs to storage or to the host
    rdma = [n for n in nics if n.kind in _RDMA]
    parents = [n for n in rdma if not n.virtual_function] or rdma
    free = [n for n in parents if _key(n) not in managed]
    # A bond below a GPU's switch carries training traffic, and so does the only port of a node.
    for candidates in (
        [n for n in free if n.near_gpu],
        [n for n in free if not n.bond],
        free,
        parents,
    ):
        if candidates:
            return frozenset(map(_key, _strongest(candidates)))
    return frozenset()


def _strongest(nics: Sequence[NicFacts]) -> list[NicFacts]:
    """The largest group of one kind, by total rate of its fastest members; ties go to InfiniBand.

    Within the winning kind a port that is up and slower than the others is of another network,
    unless it sits by a GPU or is of the same model: then it is a compute port that lost speed.
    """
    groups: dict[NicKind, list[NicFacts]] = defaultdict(list)
    for nic in nics:
        groups[nic.kind].append(nic)

    def weight(kind: NicKind) -> tuple[float, int, bool]:
        group = groups[kind]
        return sum(n.rate or 0.0 for n in group), len(group), kind is NicKind.IB

    chosen = groups[max(groups, key=weight)]
    by_rate: dict[float, float] = defaultdict(float)
    for nic in chosen:
        by_rate[nic.rate or 0.0] += nic.rate or 0.0
    usual = max(by_rate, key=lambda rate: (by_rate[rate], rate))
    models = {n.model for n in chosen if n.rate == usual and n.model}
    return [
        n
        for n in chosen
        if n.rate in (usual, None) or not n.is_up or n.near_gpu or n.model in models
    ]


def compute_cards(nics: Iterable[NicFacts]) -> list[NicFacts]:
    """One compute port of each card: the one that is up, then the lowest function.

    Two functions of one card share its PCIe link and must not count as two.
    """
    chosen: dict[str, NicFacts] = {}
    for nic in sorted(nics, key=lambda n: (not n.is_up, n.pci.bdf, n.port)):
        if nic.role is Role.COMPUTE:
            chosen.setdefault(nic.pci.card or f"{nic.name}:{nic.port}", nic)
    return list(chosen.values())
