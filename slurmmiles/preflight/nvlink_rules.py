"""Judge of NVLink between GPUs, from the topology table and the product. Pure.

A GPU whose whole row is low has lost links itself; a pair alone is low where boards are wired
directly; no NVLink at all on a product that has it by design is the node's fault: the fabric
manager, or GPUs that were passed into a virtual machine without their switches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slurmmiles.findings import about, fail, warn
from slurmmiles.preflight.products import NvLink, Product
from slurmmiles.preflight.topo import Topology
from slurmmiles.report import Finding

_RESET = "reset the GPU (nvidia-smi --gpu-reset -i N); have the node drained if it stays"
_FABRIC = (
    "check that nvidia-fabricmanager runs in the driver's version, and that GPUs passed into a"
    " virtual machine have their switches"
)


def judge_topology(topology: Topology, product: Product | None, node: str = "") -> list[Finding]:
    """nvlink_missing, nvlink_unequal, nvlink_count_low, nvlink_bridge_missing, gpu_without_nic.

    `product` None (not known): only what the pairs show of each other is judged.
    """
    gpus = topology.gpus
    findings: list[Finding] = []
    if len(gpus) > 1 and not (product and product.nvlink in (NvLink.NONE, NvLink.MESH)):
        by_design = product is not None and product.nvlink is NvLink.BOARD
        by_design = by_design or all(topology.links(*pair) for pair in _pairs(gpus))
        findings += _whole(topology, node) if by_design else _bridged(topology, product, node)
        findings += _count(topology, product, node)
    return findings + _rails(topology, node)


def _pairs(gpus: Sequence[str]) -> list[tuple[str, str]]:
    return [(a, b) for i, a in enumerate(gpus) for b in gpus[i + 1 :]]


def _number(gpu: str) -> str:
    return gpu.removeprefix("GPU")


def _whole(topology: Topology, node: str) -> list[Finding]:
    """A board on which every pair must have the same number of links."""
    counts = {pair: topology.links(*pair) for pair in _pairs(topology.gpus)}
    best = max(counts.values())
    if best == 0:
        return [
            fail(
                "nvlink_missing",
                about(node=node),
                "no pair of its GPUs has NVLink, and this product has it by design",
                _FABRIC,
                gpus=len(topology.gpus),
            )
        ]
    low = {pair for pair, n in counts.items() if n < best}
    guilty = [g for g in topology.gpus if all(p in low for p in counts if g in p)]
    findings = []
    for gpu in guilty:
        seen = [counts[p] for p in counts if gpu in p]
        findings.append(_short_of(seen, best, about(node=node, gpu=_number(gpu))))
    for a, b in sorted(low):
        if a not in guilty and b not in guilty:
            subject = about(node=node, pair=f"{_number(a)}-{_number(b)}")
            findings.append(_short_of([counts[a, b]], best, subject))
    return findings


def _short_of(seen: Sequence[int], best: int, subject: str) -> Finding:
    usual = Counter(seen).most_common(1)[0][0]
    if usual == 0:
        return fail(
            "nvlink_missing",
            subject,
            f"it goes over PCIe where other pairs of the node have NV{best}",
            _RESET,
            links=0,
            others=best,
        )
    return fail(
        "nvlink_unequal",
        subject,
        f"it has NV{usual} where other pairs of the node have NV{best}",
        _RESET,
        links=usual,
        others=best,
    )


def _bridged(topology: Topology, product: Product | None, node: str) -> list[Finding]:
    """Cards that bridges join, or an unknown product: only pairs that have NVLink are compared."""
    joined = {p: n for p in _pairs(topology.gpus) if (n := topology.links(*p))}
    findings = []
    best = max(joined.values(), default=0)
    for (a, b), links in sorted(joined.items()):
        if links < best:
            subject = about(node=node, pair=f"{_number(a)}-{_number(b)}")
            findings.append(_short_of([links], best, subject))
    if product is not None and product.nvlink is NvLink.PAIRS:
        alone = [g for g in topology.gpus if not any(g in pair for pair in joined)]
        for gpu in alone:
            findings.append(
                warn(
                    "nvlink_bridge_missing",
                    about(node=node, gpu=_number(gpu)),
                    f"{product.name} is made to be bridged in pairs, and it has no NVLink partner",
                    "check the bridge between the two cards",
                )
            )
    return findings


def _count(topology: Topology, product: Product | None, node: str) -> list[Finding]:
    """The number itself, against the product's table: equal among pairs may still be low."""
    counts = [topology.links(*p) for p in _pairs(topology.gpus)]
    best = max(counts)
    if product is None or best == 0:
        return []
    if product.nvlink is NvLink.BOARD:
        wanted = product.pair_counts(len(topology.gpus))
        if not wanted or best in wanted:
            return []
        return [
            fail(
                "nvlink_count_low",
                about(node=node),
                f"its pairs have NV{best}, and {product.name} has"
                f" {' or '.join(f'NV{n}' for n in sorted(wanted))}",
                _FABRIC,
                links=best,
                expected=max(wanted),
            )
        ]
    if product.nvlink is NvLink.PAIRS and best < product.links:
        return [
            warn(
                "nvlink_count_low",
                about(node=node),
                f"its pairs have NV{best}, and {product.name} with all its bridges has"
                f" NV{product.links}",
                "check that every bridge is mounted",
                links=best,
                expected=product.links,
            )
        ]
    return []


def _rails(topology: Topology, node: str) -> list[Finding]:
    """A GPU without a near NIC where nearly every other has one: a card that is not seen."""
    lonely = [g for g in topology.gpus if not topology.near_nics(g)]
    if not lonely or len(lonely) * 4 >= len(topology.gpus):
        return []
    return [
        warn(
            "gpu_without_nic",
            about(node=node, gpu=_number(gpu)),
            "no NIC is below its PCIe switch, while the other GPUs have theirs",
            "look for the card in lspci and in the BIOS",
        )
        for gpu in lonely
    ]
