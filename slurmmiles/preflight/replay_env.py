"""The environment of a folder of evidence, and what the folder says of the place. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmmiles.efa_rules import expected_devices, gpu_of, judge_efa_count, older
from slurmmiles.env_names import HCA, judge_hca_list
from slurmmiles.env_rules import EnvContext, judge_env
from slurmmiles.findings import about, fail, unreadable
from slurmmiles.nics import NicKind, NodeNics
from slurmmiles.preflight.gpulist import BadQuery, parse_query
from slurmmiles.preflight.text import any_true, assignments, plain, truth
from slurmmiles.preflight.treecheck import faults
from slurmmiles.report import Finding
from slurmmiles.sysfs import read_node
from slurmmiles.systree import TextTree

Evidence = Mapping[str, str]
# The least that the models' images promise.
FLOORS = {"cuda": (12, 4), "nccl": (2, 20)}


@dataclass(frozen=True, slots=True)
class Place:
    """What several judges need to know of the node."""

    env: Mapping[str, str] = field(default_factory=dict)
    nics: NodeNics | None = None
    tree: TextTree | None = None
    fabric: str | None = None
    context: EnvContext = field(default_factory=EnvContext)
    instance: str = ""
    cut: frozenset[str] = frozenset()
    """Files that are not whole: what they do not show may still be there."""


def read_place(
    files: Evidence, node: str = "", cut: frozenset[str] = frozenset()
) -> tuple[Place, list[Finding]]:
    """The place, and findings about files that cannot be read; `cut` are those without an end."""
    findings: list[Finding] = []
    env: dict[str, str] = {}
    if "env.txt" in files:
        env, others = assignments(files["env.txt"])
        if others or not env:
            why = f"{others[0][:60]!r} is not NAME=VALUE" if others else "it sets nothing"
            findings.append(unreadable("env.txt", why, node))
    nics, tree = _nics(files, findings, node)
    instance = _instance(files, findings, node)
    fabric = nics.fabric if nics is not None and nics.nics else None
    if fabric is None and instance and expected_devices(instance):
        fabric = "efa"
    colocate, offload = _job(files, findings, node)
    versions = _versions(files, findings, node)
    context = EnvContext(
        fabric=fabric,
        colocate=colocate,
        offload=offload,
        gpu=_gpu(files) or gpu_of(instance),
        slurm_network=None if "slurm.txt" in cut else _slurm_network(files, findings, node),
        plugins=None if "libs.txt" in cut else _plugins(files, findings, node),
        libfabric=versions.get("libfabric", ""),
        aws_ofi=versions.get("aws-ofi-nccl", ""),
        efa_installer=versions.get("efa-installer", ""),
    )
    if any(f.subject.endswith("file=sysfs.txt") for f in findings):
        cut |= {"sysfs.txt"}
    return Place(env, nics, tree, fabric, context, instance, cut), findings


def judge_environment(files: Evidence, place: Place, node: str) -> list[Finding]:
    """Conflicts of env.txt, the HCA list against the devices, EFA devices, versions."""
    findings: list[Finding] = []
    if "env.txt" in files:
        findings += judge_env(place.env, place.context)
    if HCA in place.env and place.nics is not None:
        ports: dict[str, list[int]] = {}
        for nic in place.nics.of(NicKind.IB, NicKind.ROCE):
            ports.setdefault(nic.name, []).append(nic.port)
        if ports:
            findings += judge_hca_list(place.env[HCA], list(ports), ports=ports)
    if place.instance and place.nics is not None and "sysfs.txt" not in place.cut:
        seen = len({n.name for n in place.nics.of(NicKind.EFA)})
        if seen or expected_devices(place.instance) is not None:
            findings += judge_efa_count(seen, place.instance, node)
    if "versions.txt" in files:
        findings += judge_versions(files["versions.txt"], node)
    return findings


def judge_versions(text: str, node: str = "") -> list[Finding]:
    """version_too_old below what the images promise."""
    said = parse_versions(text)[0]
    return [
        fail(
            "version_too_old",
            about(node=node, software=name),
            f"{name} is {said[name]}, and at least {'.'.join(map(str, floor))} is needed",
            "use the image or the module with the newer version",
            version=said[name],
        )
        for name, floor in FLOORS.items()
        if name in said and older(said[name], floor)
    ]


def parse_versions(text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """`NAME VERSION` lines, names in lower case; and the lines that are not such."""
    found: dict[str, str] = {}
    others: list[str] = []
    for line in plain(text).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        row = re.fullmatch(r"\s*([A-Za-z][\w.+-]*)[\s=:]+v?(\d[\w.+~-]*)\s*", line, re.ASCII)
        if row:
            found[row[1].lower()] = row[2]
        else:
            others.append(line)
    return found, tuple(others)


def _nics(
    files: Evidence, findings: list[Finding], node: str
) -> tuple[NodeNics | None, TextTree | None]:
    if "sysfs.txt" not in files:
        return None, None
    route = files.get("proc_net_route.txt", "")
    tree = TextTree.parse(plain(files["sysfs.txt"]), **{"/proc/net/route": plain(route)})
    findings += [unreadable("sysfs.txt", why, node) for why in faults(tree)[:1]]
    return read_node(tree), tree


def _instance(files: Evidence, findings: list[Finding], node: str) -> str:
    if "instance.txt" not in files:
        return ""
    words = plain(files["instance.txt"]).split()
    if len(words) != 1:
        findings.append(unreadable("instance.txt", "it is not one type of instance", node))
        return ""
    return words[0]


def _gpu(files: Evidence) -> str:
    try:
        gpus = parse_query(files.get("gpus.csv", ""))
    except BadQuery:
        return ""
    return gpus[0].name


def _slurm_network(files: Evidence, findings: list[Finding], node: str) -> str | None:
    if "slurm.txt" not in files:
        return None
    said, others = assignments(files["slurm.txt"])
    if others or not said:
        findings.append(unreadable("slurm.txt", "a line is not NAME=VALUE", node))
        return None
    return said.get("SLURM_NETWORK", "")


def _plugins(files: Evidence, findings: list[Finding], node: str) -> frozenset[str] | None:
    if "libs.txt" not in files:
        return None
    lines = [w for w in map(str.strip, plain(files["libs.txt"]).splitlines()) if w]
    paths = [w for w in lines if not w.startswith("#")]
    strange = [w for w in paths if not re.fullmatch(r"[\w./+@:~-]+\.so[\w.]*", w, re.ASCII)]
    if strange:
        findings.append(unreadable("libs.txt", f"{strange[0][:60]!r} is no library", node))
        return None
    return frozenset(paths)


def _job(files: Evidence, findings: list[Finding], node: str) -> tuple[bool | None, bool | None]:
    """(colocated, something is offloaded); None where the file does not say."""
    if "job.txt" not in files:
        return None, None
    said, others = assignments(files["job.txt"])
    flags = {k: truth(v) for k, v in said.items() if k == "colocate" or k.startswith("offload")}
    if others or None in flags.values():
        findings.append(unreadable("job.txt", "a line is not NAME=true or NAME=false", node))
    colocate = flags.pop("colocate", None)
    return colocate, any_true(flags.values())


def _versions(files: Evidence, findings: list[Finding], node: str) -> dict[str, str]:
    if "versions.txt" not in files:
        return {}
    said, others = parse_versions(files["versions.txt"])
    if others or not said:
        why = f"{others[0][:60]!r} is not NAME VERSION" if others else "it names nothing"
        findings.append(unreadable("versions.txt", why, node))
    return said
