"""The gate before the driver: every node's agent, then every node's raylet, then the verdict of
preflight.

Whoever is missing is named with the reason, from the agents' own reports; nothing is asked of
Slurm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from slurmmiles import gate_words as words
from slurmmiles import shell
from slurmmiles.control import HeadLine
from slurmmiles.errors import RunFailed
from slurmmiles.jsonfile import read_json, write_json
from slurmmiles.node import Node
from slurmmiles.nodefacts import NodeFacts
from slurmmiles.ports import PortBlock
from slurmmiles.preflight.environment import judge_environment, judge_seen
from slurmmiles.preflight.host import judge_hosts
from slurmmiles.preflight.network import Measurement, judge_network
from slurmmiles.ray_cluster import RayNode
from slurmmiles.report import Finding, Report, Verdict
from slurmmiles.result import Phase
from slurmmiles.timeline import Timeline

log = logging.getLogger(__name__)
POLL_S = 0.1
# How long others may still arrive when it is certain that a node never will.
SETTLE_S = 3.0


class Gate:
    """The head's wait for the others. Spare nodes are given up one by one; without any left the run
    ends.
    """

    def __init__(
        self,
        node: Node,
        timeline: Timeline,
        line: HeadLine,
        ray: RayNode,
        facts: NodeFacts,
        ports: PortBlock,
    ) -> None:
        self._node, self._timeline, self._line, self._ray = node, timeline, line, ray
        self._own, self._ports = facts, ports
        self._workers = node.allocation.nodes[1:]
        self._deadline = time.monotonic() + node.plan.ray.join_deadline_s
        self._facts: list[NodeFacts] = []
        self._findings: list[Finding] = []
        self._dropped: dict[str, str] = {}
        self.joined_after_s: float | None = None

    def wait_for_agents(self) -> None:
        """Until each worker's agent has reported its facts, or cannot; UnfitNodes when too few are
        left.
        """
        hopeless_since: float | None = None
        while missing := self._missing():
            self._check_self()
            if time.monotonic() >= self._deadline:
                break
            if all(hopeless for _, hopeless in missing.values()):
                hopeless_since = hopeless_since or time.monotonic()
                if time.monotonic() - hopeless_since >= SETTLE_S:
                    break
            else:
                hopeless_since = None
            self._timeline.say(
                words.sentence(len(self._workers) + 1, {n: why for n, (why, _) in missing.items()})
            )
            time.sleep(POLL_S)
        self._drop({name: why for name, (why, _) in missing.items()}, code="not_joined")
        self._judge_facts()

    def _missing(self) -> dict[str, tuple[str, bool]]:
        """Node to (why it is not there, whether it never will be)."""
        members, missing = self._line.members(), {}
        for name in self._workers:
            member = members.get(name)
            if member is None:
                complaint = self._line.complaints.get(name)
                missing[name] = (
                    complaint or "no task of this node has reported",
                    complaint is not None,
                )
            elif problem := member.report.get("problem"):
                missing[name] = (str(problem), True)
            elif not member.alive:
                missing[name] = ("its agent left without a word", True)
            elif "facts" not in member.report:
                missing[name] = ("its agent is up and gathers facts", False)
        return missing

    def _judge_facts(self) -> None:
        members = self._line.members()
        facts = [self._own]
        for name in self._workers:
            if name not in self._dropped:
                facts.append(NodeFacts.model_validate(members[name].report["facts"]))
        for fact in facts[1:]:
            write_json(self._node.attempt.node(fact.node), fact)
        canary = self._own.canary or ""
        found = judge_hosts(
            facts,
            self._node.plan,
            canary=canary,
            run_dir=str(self._node.run.path),
            one_machine=not self._node.allocation.is_slurm,
        )
        found += judge_environment(facts)
        self._facts = facts
        self._findings += found
        self._drop(words.condemned(found, self._node.allocation.nodes))

    def wait_for_ray(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """Until every node that is left is registered and measured; their names, in order."""
        while True:
            nodes = self._left()
            if self._watch_checks(nodes, env):
                return nodes

    def _watch_checks(self, nodes: tuple[str, ...], env: Mapping[str, str]) -> bool:
        """One run of the checks; False when nodes were dropped and the checks must start again
        without them.
        """
        child = self._start_checks(nodes, env)
        try:
            while (status := child.poll()) is None:
                self._check_self()
                if gone := self._gone(nodes):
                    self._drop(gone, code="not_joined")
                    return False
                self._report_progress(nodes)
                time.sleep(POLL_S)
        finally:
            child.stop(grace=2.0)
        if unregistered := self._unregistered(nodes):
            self._drop(unregistered, code="not_joined")
            return False
        if status != 0:
            raise RunFailed(
                f"the checks through Ray ended with exit code {status}",
                where=str(self._node.attempt.logs / "preflight.log"),
                fix="read this log",
            )
        return True

    def _report_progress(self, nodes: tuple[str, ...]) -> None:
        """Say who is missing; the phase `join` ends at the moment when nobody is."""
        missing = self._unregistered(nodes)
        if missing or self._timeline.phase is not Phase.JOIN:
            self._timeline.say(words.sentence(len(nodes), missing))
            return
        self.joined_after_s = round(time.time() - self._timeline.began, 3)
        self._line.send({"type": "joined"})
        self._timeline.enter(
            Phase.PREFLIGHT, f"all {len(nodes)} nodes joined after {self.joined_after_s:.1f} s"
        )

    def _left(self) -> tuple[str, ...]:
        return tuple(n for n in self._node.allocation.nodes if n not in self._dropped)

    def _start_checks(self, nodes: Sequence[str], env: Mapping[str, str]) -> shell.Process:
        left = max(5.0, self._deadline - time.monotonic())
        attempt = self._node.attempt
        argv = [
            self._node.values(address="", interface="", head_address="", nodes=())["python"],
            "-m",
            "slurmmiles.preflight",
            f"--address={self._own.address}:{self._ports.gcs}",
            f"--out={attempt.preflight}",
            f"--nodes={','.join(nodes)}",
            f"--env={','.join(sorted({n for f in self._facts for n in f.env}))}",
            f"--deadline={left}",
        ]
        return shell.spawn(argv, attempt.logs / "preflight.log", env=env, die_with_parent=True)

    def _unregistered(self, nodes: Sequence[str]) -> dict[str, str]:
        gate = read_json(self._node.attempt.preflight / "gate.json") or {}
        registered = gate.get("registered", {})
        members = self._line.members()
        return {n: words.ray_state(members.get(n)) for n in nodes if n not in registered}

    def _gone(self, nodes: Sequence[str]) -> dict[str, str]:
        """A raylet that gave up, or an agent that left, will not come back: do not wait for the
        deadline.
        """
        members, gone = self._line.members(), {}
        for name in nodes[1:]:
            problem = members[name].report.get("problem")
            if problem or not members[name].alive:
                gone[name] = str(problem or "its agent left without a word")
        return gone

    def judge(self, nodes: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """The nodes to run on and the verdict of all findings; UnfitNodes when too few are left."""
        seen = read_json(self._node.attempt.preflight / "env.json") or {}
        raw = read_json(self._node.attempt.preflight / "network.json") or []
        measured = [Measurement.model_validate(m) for m in raw]
        found = judge_network(measured, self._node.plan.preflight) + judge_seen(self._facts, seen)
        self._findings += found
        self._drop(words.condemned(found, self._node.allocation.nodes))
        report = self._write_report()
        good = [n for n in nodes if n not in self._dropped]
        kept, spare = good[: self._node.plan.nodes], good[self._node.plan.nodes :]
        self._line.send({"type": "finish"}, nodes=[*spare, *self._dropped])
        for finding in report.findings:
            if finding.verdict is not Verdict.PASS:
                log.info(
                    "preflight %s %s: %s", finding.verdict.value, finding.subject, finding.message
                )
        return tuple(kept), report.verdict.value

    def _drop(self, reasons: Mapping[str, str], code: str = "") -> None:
        """Give these nodes up; UnfitNodes, naming all that were, when fewer are left than the plan
        needs.
        """
        for name, why in reasons.items():
            if code:
                self._findings.append(
                    Finding(
                        code=code,
                        verdict=Verdict.FAIL,
                        subject=name,
                        message=why,
                        remedy=words.remedy(name),
                    )
                )
            self._dropped[name] = why
        left = self._left()
        if reasons and (len(left) < self._node.plan.nodes or self._node.name not in left):
            self._write_report()
            raise words.unfit(self._dropped, len(self._node.allocation.nodes))

    def _write_report(self) -> Report:
        report = Report.of(self._findings)
        write_json(self._node.attempt.preflight / "report.json", report)
        return report

    def _check_self(self) -> None:
        self._node.stop.check()
        joining = self._timeline.phase is Phase.JOIN
        self._ray.check(self._node.name, revive_until=self._deadline if joining else 0.0)
