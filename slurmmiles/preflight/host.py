"""What each node says of itself: shared directory, addresses, limits. Judges are pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurmmiles.nodefacts import NodeFacts
from slurmmiles.planfile import Plan
from slurmmiles.preflight.addresses import judge_own_name
from slurmmiles.preflight.limits import judge_memlock, judge_nofile, judge_shm, judge_stack
from slurmmiles.report import Finding, Verdict

RDMA = ("infiniband", "roce", "slingshot", "efa")


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
    names = judge_own_name(node.node, node.hostname, node.resolves_to, given=node.address)
    if several and any(f.verdict is Verdict.WARN for f in names):
        yield from _of(node, names)
        return
    yield Finding(
        code="address",
        verdict=Verdict.PASS,
        subject=node.node,
        message=f"{node.address} on {node.interface}",
        evidence=evidence,
    )


def _limits(node: NodeFacts, plan: Plan) -> Iterator[Finding]:
    """By the same judges as saved evidence; what only GPUs need is asked of GPU runs only."""
    asked = plan.preflight
    yield from _of(node, judge_nofile(node.limits["nofile"], asked=asked.min_nofile))
    if asked.memlock_unlimited:
        rdma = node.fabric in RDMA
        yield from _of(node, judge_memlock(node.limits["memlock"], rdma=rdma))
    if plan.device == "gpu" and node.gpus:
        yield from _of(node, judge_shm(node.shm_bytes))
        yield from _of(node, judge_stack(node.limits["stack"]))


def _of(node: NodeFacts, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings with the node's bare name as subject, as every finding here has."""
    return (f.model_copy(update={"subject": node.node}) for f in findings)


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
