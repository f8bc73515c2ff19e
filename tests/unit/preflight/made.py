"""Texts in the form of the tools, for variants of what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from slurmmiles.preflight.replay import KNOWN, judge_evidence
from slurmmiles.report import Report

RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "preflight"
Link = Callable[[int, int], str]
CXI = "".join(
    f"/sys/class/net/hsn{i}/speed = 200000\n/sys/class/cxi/cxi{i}/device/numa_node = 0\n"
    for i in range(4)
)


def table(name: str) -> str:
    return (RECORDED / "tables" / name).read_text(encoding="utf-8")


def rows(name: str) -> list[dict[str, str]]:
    """A tab-separated table by its header."""
    head, *lines = table(name).splitlines()
    return [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]


def topo(
    gpus: int,
    link: Link | str,
    nics: Sequence[tuple[str, Sequence[int]]] = (),
    *,
    near: str = "PIX",
    columns: Sequence[str] | None = None,
    underline: bool = False,
) -> str:
    """`nvidia-smi topo -m`: `link` between GPUs, each NIC with the GPUs that it is near to.

    `columns`: names of NIC columns as old drivers wrote them; then there is no legend of NICs.
    """
    names = list(columns or [f"NIC{i}" for i in range(len(nics))])
    heads = [f"GPU{i}" for i in range(gpus)] + names
    start, end = ("\x1b[4m", "\x1b[0m") if underline else ("", "")
    lines = [
        "\t" + start + "\t".join([*heads, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + end
    ]
    for a in range(gpus):
        cells = [
            " X " if a == b else link if isinstance(link, str) else link(a, b) for b in range(gpus)
        ]
        cells += [near if a in close else "SYS" for _, close in nics]
        lines.append("\t".join([f"GPU{a}", *cells, "0-47,96-143", "0", "", "N/A"]))
    for i, (_, close) in enumerate(nics):
        cells = [near if a in close else "SYS" for a in range(gpus)]
        cells += [" X " if i == j else "NODE" for j in range(len(nics))]
        lines.append("\t".join([names[i], *cells, "", "", "", ""]))
    lines += ["", "Legend:", "", "  X    = Self", ""]
    if nics and columns is None:
        lines += ["NIC Legend:", ""]
        lines += [f"  NIC{i}: {name}" for i, (name, _) in enumerate(nics)] + [""]
    return "\n".join(lines) + "\n"


def per_gpu(gpus: int, first: int = 0) -> list[tuple[str, list[int]]]:
    """One NIC near each GPU."""
    return [(f"mlx5_{first + i}", [i]) for i in range(gpus)]


def gpus_csv(gpus: int, name: str) -> str:
    return "".join(f"{i}, {name}\n" for i in range(gpus))


def nvlink(gpus: Sequence[tuple[str, Sequence[float | None]]]) -> str:
    """`nvidia-smi nvlink -s`: a GPU's name and the rate of each link, None for an inactive one."""
    lines = []
    for i, (name, links) in enumerate(gpus):
        lines.append(f"GPU {i}: {name} (UUID: GPU-00000000-0000-0000-0000-{i:012d})")
        for number, rate in enumerate(links):
            shown = "<inactive>" if rate is None else f"{rate:.3f} GB/s"
            lines.append(f"\t Link {number}: {shown}")
    return "\n".join(lines) + "\n"


def ibstat(ports: Sequence[tuple[str, str, str, int, str]]) -> str:
    """`ibstat`: device, state, physical state, rate, link layer."""
    blocks = []
    for i, (name, state, physical, rate, layer) in enumerate(ports):
        blocks.append(
            f"CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n"
            f"\tFirmware version: 28.43.1014\n\tNode GUID: 0x{i:016x}\n\tPort 1:\n"
            f"\t\tState: {state}\n\t\tPhysical state: {physical}\n"
            f"\t\tRate: {rate}\n\t\tBase lid: {100 + i}\n\t\tLMC: 0\n\t\tSM lid: 1\n"
            f"\t\tPort GUID: 0x{i:016x}\n\t\tLink layer: {layer}\n"
        )
    return "".join(blocks)


def evidence(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if p.name in KNOWN}


def judged(files: dict[str, str]) -> tuple[str, set[str], set[str]]:
    """The verdict, and the codes and subjects of the findings at it."""
    report = Report.of(judge_evidence(files))
    at = report.at(report.verdict)
    return report.verdict.value, {f.code for f in at}, {f.subject for f in at}
