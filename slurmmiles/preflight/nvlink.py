"""`nvidia-smi nvlink -s`: the state and rate of each NVLink of each GPU. Pure.

GPU 0: NVIDIA H200 (UUID: GPU-...)
     Link 0: 26.562 GB/s
     Link 4: <inactive>
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from slurmmiles.findings import about, fail, unknown, unreadable, warn
from slurmmiles.preflight.products import NvLink, Product, product_of
from slurmmiles.preflight.text import plain
from slurmmiles.report import Finding

_GPU = re.compile(r"GPU (\d{1,4}): (.+?) \(UUID: (\S+)\)", re.ASCII)
_LINK = re.compile(r"Link (\d{1,3}): (?:(\d{1,6}(?:\.\d{1,6})?) GB/s|(<?inactive>?))", re.ASCII)
_NO_LINK = re.compile(r".*(unable to retrieve|not supported|all links are inactive).*", re.I)
# A link that is slower than this part of the others' rate runs at a lower speed grade.
_SLOW = 0.9
_REMEDY = "reset the GPU (nvidia-smi --gpu-reset -i N), then have the node drained if it stays"


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """The links of one GPU: number to GB/s, None for an inactive one."""

    index: int
    name: str
    links: tuple[tuple[int, float | None], ...]

    @property
    def active(self) -> int:
        return sum(rate is not None for _, rate in self.links)

    @property
    def inactive(self) -> tuple[int, ...]:
        return tuple(n for n, rate in self.links if rate is None)


def parse_nvlink_status(text: str) -> tuple[tuple[GpuLinks, ...], tuple[str, ...]]:
    """The GPUs in order, and the lines that are of no known form."""
    found: list[tuple[int, str, list[tuple[int, float | None]]]] = []
    others: list[str] = []
    for line in plain(text).splitlines():
        row = line.strip()
        if not row:
            continue
        if gpu := _GPU.fullmatch(row):
            found.append((int(gpu[1]), gpu[2], []))
        elif (link := _LINK.fullmatch(row)) and found:
            found[-1][2].append((int(link[1]), float(link[2]) if link[2] else None))
        elif not _NO_LINK.fullmatch(row):
            others.append(row)
    return tuple(GpuLinks(i, name, tuple(links)) for i, name, links in found), tuple(others)


def judge_nvlink_status(
    text: str, file: str = "nvlink-s.txt", node: str = "", *, cut: bool = False
) -> list[Finding]:
    """nvlink_inactive for each link that should be up, and for a GPU that shows none.

    `cut`: the text is known not to be whole, so that its last GPU may have more links.
    """
    gpus, others = parse_nvlink_status(text)
    if not gpus:
        return [unreadable(file, "it names no GPU", node)]
    findings: list[Finding] = []
    if others:
        findings.append(unreadable(file, f"{others[0][:60]!r} is of no known form", node))
    if len({g.index for g in gpus}) != len(gpus):
        findings.append(unreadable(file, "a GPU stands twice", node))
    usual = Counter(len(g.links) for g in gpus).most_common(1)[0][0]
    rates = Counter(rate for g in gpus for _, rate in g.links if rate is not None)
    rate = rates.most_common(1)[0][0] if rates else 0.0
    for gpu in gpus:
        product = product_of(gpu.name)
        short = len(gpu.links) < _listed(product, usual)
        if gpu is gpus[-1] and short and (gpu.links or cut):
            # nvidia-smi lists every link of a GPU, so a short last block is a text that was cut.
            findings.append(unreadable(file, f"it ends within GPU {gpu.index}", node))
        else:
            findings += _judge(gpu, product, gpus, node)
        findings += _slow(gpu, product, rate, node)
    return findings


def _listed(product: Product | None, usual: int) -> int:
    by_design = product is not None and product.nvlink is NvLink.BOARD
    return max(usual, product.links if product and by_design else 0)


def _judge(
    gpu: GpuLinks, product: Product | None, gpus: Sequence[GpuLinks], node: str
) -> list[Finding]:
    by_design = product is not None and product.nvlink is NvLink.BOARD
    if product is not None and product.multi_node and len(gpus) == 1:
        return []  # a superchip alone in its node may have no partner (GH200)
    expected = product.links if product and by_design else _peers(gpu, product, gpus)
    if gpu.active >= expected:
        return _not_in_table(gpu, node) if product is None and gpu.inactive else []
    shown = [*gpu.inactive] if gpu.links else []
    if not shown:
        subjects = [about(node=node, gpu=gpu.index)]
    else:
        subjects = [about(node=node, gpu=gpu.index, link=number) for number in shown]
    name = product.name if product else gpu.name
    return [
        fail(
            "nvlink_inactive",
            subject,
            f"{gpu.active} of the {expected} NVLinks of this {name} are up"
            if by_design
            else f"{gpu.active} NVLinks of this {name} are up, and its peers have {expected}",
            _REMEDY,
            active=gpu.active,
            expected=expected,
        )
        for subject in subjects
    ]


def _not_in_table(gpu: GpuLinks, node: str) -> list[Finding]:
    return [
        unknown(
            "gpu_product_unknown",
            about(node=node, gpu=gpu.index),
            f"{gpu.name!r} is not in the table of products, so its {len(gpu.inactive)} inactive"
            " links may be by design",
            "compare with its data sheet",
            inactive=len(gpu.inactive),
        )
    ]


def _peers(gpu: GpuLinks, product: Product | None, gpus: Sequence[GpuLinks]) -> int:
    """What bridged cards of the same name show, where inactive links may be by design.

    The number of a bridged card is the most that any card of the node shows; a card without any
    link up is taken for one without a bridge.
    """
    if gpu.active == 0 or (product is not None and product.nvlink is NvLink.NONE):
        return 0
    return max(g.active for g in gpus if g.name == gpu.name)


def _slow(gpu: GpuLinks, product: Product | None, usual: float, node: str) -> list[Finding]:
    """nvlink_slow for links below the usual rate, or the product's, by more than a tenth."""
    by_design = product is not None and product.nvlink is NvLink.BOARD
    expected = max(usual, product.link_gb_s if product and by_design else 0.0)
    return [
        warn(
            "nvlink_slow",
            about(node=node, gpu=gpu.index, link=number),
            f"it runs at {rate:g} GB/s where {expected:g} is usual",
            _REMEDY,
            gb_s=rate,
            expected=expected,
        )
        for number, rate in gpu.links
        if rate is not None and rate < _SLOW * expected
    ]
