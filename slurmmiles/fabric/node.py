"""One node's own environment: the run's table, with the profile of the network that this node has;
and what speaks against the node. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurmmiles.env_rules import EnvContext, judge_env
from slurmmiles.fabric.profiles import FABRIC, LIBFABRIC, profile, usable
from slurmmiles.fabric.table import NETWORK, SECRET, is_low, spoken
from slurmmiles.nics import NodeNics
from slurmmiles.planfile import EnvValue, FabricPlan
from slurmmiles.report import Finding, Verdict

RDZV = "disable_rdzv_get"
MODULE = "node environment"
CASSINI, OFI, PLAIN = "libnccl-net-cassini.so", "libnccl-net-ofi.so", "libnccl-net.so"


@dataclass(frozen=True, slots=True)
class NodeEnv:
    """The kind of network, the table of this node (placeholders still in it), the findings."""

    kind: str
    table: dict[str, EnvValue]
    findings: tuple[Finding, ...]


def node_env_of(
    node: str,
    env: Mapping[str, EnvValue],
    fabric: FabricPlan,
    nics: NodeNics,
    *,
    inherited: Mapping[str, str],
    plugins: Mapping[str, str],
    gpu: str = "",
) -> NodeEnv:
    """The environment of `node`.

    `inherited` is what the agent was started with: what a module set there wins over the profile.
    `plugins` are the NCCL network plugins that can be loaded on the node: library name to path.
    """
    kind = _kind(fabric, nics)
    slurm_network = inherited.get("SLURM_NETWORK", "")
    mine = fabric.model_copy(
        update={"rdzv_get_disabled": fabric.rdzv_get_disabled or RDZV in slurm_network}
    )
    found = profile(mine, kind, nics)
    findings = list(_against(node, fabric, kind, nics))
    looked = needs_plugin(fabric, kind)
    if looked:
        plugin, fault = _plugin(node, kind, plugins)
        found |= plugin
        findings += fault
        if "NCCL_NET_PLUGIN" in plugin and "NCCL_NET" not in plugin:
            del found["NCCL_NET"]  # the name that cassini registers is its own
    table = {n: e for n, e in env.items() if is_low(e) and not e.origin.startswith(FABRIC)} | found
    for name in [n for n in inherited if NETWORK.match(n) and not SECRET.search(n)]:
        table[name] = EnvValue(
            value=inherited[name], origin=MODULE, why="set on this node by a module or the site"
        )
    table |= {n: e for n, e in env.items() if not is_low(e)}
    about = EnvContext(
        fabric=kind,
        colocate=fabric.colocate,
        gpu=gpu,
        slurm_network=slurm_network or (RDZV if mine.rdzv_get_disabled else ""),
        plugins=frozenset((*plugins, *plugins.values())) if looked else None,
    )
    judged = judge_env(spoken(table), about)
    known = {f.code for f in findings}
    findings += [_of(node, f) for f in judged if f.code not in known]
    return NodeEnv(kind, dict(sorted(table.items())), tuple(findings))


def needs_plugin(fabric: FabricPlan, kind: str) -> bool:
    """Whether NCCL has no transport of its own for this network."""
    return fabric.multi_node and kind in ("slingshot", "efa")


def _kind(fabric: FabricPlan, nics: NodeNics) -> str:
    if fabric.kind == "tcp":
        return "tcp"
    return nics.fabric


def _of(node: str, finding: Finding) -> Finding:
    """A rule about a variable, as a finding about the node that has it."""
    said = f"{finding.subject.partition('=')[2] or finding.subject}: {finding.message}"
    evidence = {**finding.evidence, "about": finding.subject}
    return finding.model_copy(update={"subject": node, "message": said, "evidence": evidence})


def _against(node: str, fabric: FabricPlan, kind: str, nics: NodeNics) -> Iterator[Finding]:
    """What the node lacks for a run of several nodes."""
    if not fabric.multi_node or kind == "tcp":
        return
    if kind == "ethernet":
        yield _fail(
            node,
            "fabric_not_found",
            "it has no InfiniBand, RoCE, Slingshot or EFA port for compute, and NCCL over TCP is"
            " about a tenth as fast",
            "leave the node out, or ask for TCP with `fabric: tcp` in the site file",
        )
    elif fabric.kind not in ("auto", kind):
        yield _fail(
            node,
            "fabric_differs_from_site",
            f"the site says {fabric.kind}, and this node's compute ports are {kind}",
            "leave the node out, or mend `fabric` in the site file",
        )
    elif not any(n.is_up or not n.state for n in usable(nics)):
        yield _fail(
            node,
            "no_compute_port_up",
            f"none of its compute ports is up: {', '.join(n.name for n in nics.compute)}",
            "leave the node out and tell the site",
        )
    if fabric.deepep and kind in ("slingshot", "efa"):
        yield _fail(
            node,
            "deepep_needs_mlx5",
            f"DeepEP's transport needs an mlx5 adapter, and this node has {kind}",
            "take DeepEP out of the rollout's flags",
        )


def _plugin(
    node: str, kind: str, plugins: Mapping[str, str]
) -> tuple[dict[str, EnvValue], list[Finding]]:
    """How NCCL reaches libfabric here: the cassini plugin, else aws-ofi-nccl, else a finding.

    NCCL opens libnccl-net.so by itself and another name by NCCL_NET_PLUGIN (plugin_open.cc).
    """

    def entry(value: str, why: str) -> EnvValue:
        return EnvValue(value=value, origin=f"{FABRIC}{kind}", why=why)

    if kind == "slingshot" and CASSINI in plugins:
        found = {"NCCL_NET_PLUGIN": entry("cassini", f"{plugins[CASSINI]} can be loaded")}
        return found, []
    if PLAIN in plugins:
        return {"NCCL_NET": entry(LIBFABRIC, f"{plugins[PLAIN]} can be loaded")}, []
    if OFI in plugins:
        found = {
            "NCCL_NET": entry(LIBFABRIC, f"{plugins[OFI]} can be loaded"),
            "NCCL_NET_PLUGIN": entry("ofi", "NCCL would look for libnccl-net.so only"),
        }
        return found, []
    return {}, [
        _fail(
            node,
            "nccl_net_plugin_not_found",
            f"NCCL cannot reach {kind}: none of {CASSINI}, {PLAIN} and {OFI} can be loaded",
            "load the site's aws-ofi-nccl module (`modules` in the site file), or install"
            " aws-ofi-nccl and libfabric in the image and name them in LD_LIBRARY_PATH",
        )
    ]


def _fail(node: str, code: str, message: str, remedy: str) -> Finding:
    return Finding(code=code, verdict=Verdict.FAIL, subject=node, message=message, remedy=remedy)
