"""What each node says of itself: shared directory, addresses, limits. Judges are pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurmmiles.nodefacts import NodeFacts
from slurmmiles.planfile import Plan
from slurmmiles.report import Finding, Verdict

UNLIMITED = -1


def judge_hosts(
    facts: Iterable[NodeFacts], plan: Plan, *, canary: str, run_dir: str, one_machine: bool = False
) -> list[Finding]:
    """Findings of all nodes; each rule has one code and speaks about one node."""
    findings: list[Finding] = []
    several = plan.allocated_nodes > 1 and not one_machine  # loopback reaches all of them
    for node in facts:
        findings += _canary(node, canary, run_dir)
        findings += _address(node, several)
        findings += _limits(node, plan)
        findings += _gpus(node, plan)
    return findings


def _canary(node: NodeFacts, canary: str, run_dir: str) -> Iterator[Finding]:
    if node.canary == canary:
        yield Finding(
            code="shared_directory",
            verdict=Verdict.PASS,
            subject=node.node,
            message="it reads back what the head wrote into the run directory",
        )
        return
    seen = "another file" if node.canary is not None else node.canary_error or "nothing"
    yield Finding(
        code="shared_directory",
        verdict=Verdict.FAIL,
        subject=node.node,
        message=f"it cannot see the run directory {run_dir} as the head sees it (it found {seen})",
        remedy=(
            "put the runs on a filesystem that every node mounts (--runs DIR), or have the mount"
            " repaired"
        ),
        evidence={"run_dir": run_dir, "found": seen},
    )


def _address(node: NodeFacts, several: bool) -> Iterator[Finding]:
    loopback = node.address.startswith("127.")
    name_is_loopback = bool(node.resolves_to) and all(
        a.startswith("127.") for a in node.resolves_to
    )
    evidence: dict[str, str | int | float | bool | None] = {
        "address": node.address,
        "interface": node.interface,
        "hostname": node.hostname,
        "resolves_to": " ".join(node.resolves_to),
    }
    if several and loopback:
        yield Finding(
            code="address_is_loopback",
            verdict=Verdict.FAIL,
            subject=node.node,
            message=f"its address for the run is {node.address}, which no other node reaches",
            remedy="name the interface in the site file (interface: NAME)",
            evidence=evidence,
        )
        return
    if several and name_is_loopback:
        yield Finding(
            code="hostname_is_loopback",
            verdict=Verdict.WARN,
            subject=node.node,
            message=(
                f"its name {node.hostname} resolves to {node.resolves_to[0]} there; programs that"
                " look up their own name will not be reachable"
            ),
            remedy=f"mend /etc/hosts on the node; Ray, Gloo and SGLang were given {node.address}",
            evidence=evidence,
        )
        return
    yield Finding(
        code="address",
        verdict=Verdict.PASS,
        subject=node.node,
        message=f"{node.address} on {node.interface}",
        evidence=evidence,
    )


def _limits(node: NodeFacts, plan: Plan) -> Iterator[Finding]:
    nofile, memlock = node.limits["nofile"], node.limits["memlock"]
    if nofile != UNLIMITED and nofile < plan.preflight.min_nofile:
        yield Finding(
            code="limit_nofile",
            verdict=Verdict.FAIL,
            subject=node.node,
            message=(
                f"a process may open {nofile} files and the recipe asks for"
                f" {plan.preflight.min_nofile}"
            ),
            remedy=(
                "raise the hard limit (LimitNOFILE of slurmd, or PropagateResourceLimits in"
                " slurm.conf)"
            ),
            evidence={"nofile": nofile},
        )
    if plan.preflight.memlock_unlimited and memlock != UNLIMITED:
        yield Finding(
            code="limit_memlock",
            verdict=Verdict.WARN,
            subject=node.node,
            message=(
                f"a process may lock {memlock} bytes, and RDMA registers memory without such a"
                " bound"
            ),
            remedy="set LimitMEMLOCK=infinity for slurmd",
            evidence={"memlock": memlock},
        )


def _gpus(node: NodeFacts, plan: Plan) -> Iterator[Finding]:
    """Only what NVML really shows is judged: without NVML there is no evidence, and so no finding
    of a lack.
    """
    if node.gpus is not None and node.gpus < plan.gpus_per_node:
        yield Finding(
            code="gpu_count",
            verdict=Verdict.FAIL,
            subject=node.node,
            message=f"{node.gpus} of {plan.gpus_per_node} GPUs are visible",
            remedy="look at `nvidia-smi` and the kernel log of the node, and have it drained",
            evidence={"gpus": node.gpus},
        )
