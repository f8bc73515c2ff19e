"""The head node's part of a run, top to bottom: claim, Ray, everyone joins, preflight, driver,
teardown.
"""

from __future__ import annotations

import logging
import secrets
import time
from pathlib import Path

from slurmmiles import nodefacts
from slurmmiles.control import HeadLine
from slurmmiles.driver_job import DriverJob, JobEnd, entrypoint
from slurmmiles.errors import RunFailed, UnfitNodes
from slurmmiles.gate import Gate
from slurmmiles.jsonfile import read_lines, write_json, write_text
from slurmmiles.node import Node
from slurmmiles.nodefacts import NodeFacts
from slurmmiles.planfile import filled
from slurmmiles.ports import PortBlock
from slurmmiles.ray_cluster import RayNode, head_argv
from slurmmiles.result import Phase
from slurmmiles.timeline import Timeline

log = logging.getLogger(__name__)
POLL_S = 0.5
GOODBYE_S = 10.0


class Head:
    """The state of the head while a run lasts; `run` is the line, and the attributes are what the
    result needs.
    """

    def __init__(self, node: Node, timeline: Timeline) -> None:
        self.node, self.timeline = node, timeline
        self.nodes: tuple[str, ...] = node.allocation.nodes
        self.joined_after_s: float | None = None
        self.driver_exit_code: int | None = None
        self.verdict: str | None = None
        self._line: HeadLine | None = None
        self._ray: RayNode | None = None
        self._job: DriverJob | None = None

    def run(self) -> None:
        """Until the driver has ended well; UnfitNodes, RunFailed or RunTimedOut otherwise."""
        self._refuse_incomplete()
        block, facts = self._claim()
        values = self.node.values(
            address=facts.address,
            interface=facts.interface,
            head_address=facts.address,
            nodes=self.node.allocation.nodes,
        )
        env = self.node.ray_env(facts, values)
        assert self._line is not None
        self._ray = RayNode(
            head_argv(
                self.node.plan.ray,
                block,
                python=values["python"],
                node=self.node.name,
                address=facts.address,
                temp=self.node.temp,
            ),
            self.node.attempt.ray_log(self.node.name),
            env,
        )
        gate = Gate(self.node, self.timeline, self._line, self._ray, facts, block)
        gate.wait_for_agents()
        self.nodes = gate.wait_for_ray(env)
        self.joined_after_s = gate.joined_after_s
        self.nodes, self.verdict = gate.judge(self.nodes)
        self._drive(block, facts, values)

    def _refuse_incomplete(self) -> None:
        """A rendered script may carry a plan with unknown directories: say so before Ray starts."""
        if unknown := self.node.plan.missing:
            raise RunFailed(
                f"the plan does not know {', '.join(m.name for m in unknown)}",
                where=f"recipe {self.node.plan.recipe}",
                fix="render it again with --var NAME=DIR for each",
            )

    def _claim(self) -> tuple[PortBlock, NodeFacts]:
        """Ports, addresses, canary and the line to the workers: all that they wait for."""
        attempt, allocation = self.node.attempt, self.node.allocation
        self.timeline.enter(Phase.JOIN, "the head claims its ports")
        floor = nodefacts.ephemeral_floor()
        claimed = nodefacts.claim_ports(allocation.job_id, floor)
        if claimed is None:
            raise UnfitNodes(
                f"no free block of ports below {floor}",
                where=self.node.name,
                fix="end other runs on it",
            )
        block, guard = claimed
        address, interface = self._address()
        canary = secrets.token_hex(16)
        write_text(attempt.canary, canary)
        gathered = nodefacts.gather(
            self.node.name, address=address, interface=interface, floor=floor, port_base=block.base
        )
        facts = self.node.resolved(gathered.model_copy(update={"canary": canary}))
        write_json(attempt.node(self.node.name), facts)
        welcome = {"canary": canary, "head_address": address, "gcs": f"{address}:{block.gcs}"}
        self._line = HeadLine(guard, self.node.token, allocation.nodes[1:], welcome)
        write_json(
            attempt.head,
            {"address": address, "control": block.control, "dashboard": block.dashboard},
        )
        return block, facts

    def _address(self) -> tuple[str, str]:
        """By the site's interface; else on the route to the next node; else the machine's own way
        out.
        """
        wanted, nodes = self.node.plan.interface, self.node.allocation.nodes
        if wanted:
            address = nodefacts.ipv4_addresses().get(wanted)
            if address is None:
                raise UnfitNodes(
                    f"there is no interface {wanted!r} with an IPv4 address (there are:"
                    f" {', '.join(nodefacts.ipv4_addresses())})",
                    where=self.node.name,
                    fix="mend `interface` in the site file",
                )
            return address, wanted
        found = (
            nodefacts.resolve(nodes[1]) if len(nodes) > 1 and self.node.allocation.is_slurm else ()
        )
        address = nodefacts.address_towards(found[0]) if found else "127.0.0.1"
        return address, nodefacts.interface_of(address)

    def _drive(self, block: PortBlock, facts: NodeFacts, values: dict[str, str]) -> None:
        """Start the driver and stay with it; RunFailed when it, a node or the head's raylet is
        lost.
        """
        attempt, plan = self.node.attempt, self.node.plan
        self.timeline.enter(
            Phase.DRIVER, f"the driver ({plan.driver.entry}) starts on {len(self.nodes)} nodes"
        )
        if plan.trainer is not None:
            write_json(attempt.trainer_config, filled(plan.trainer, values))
        argv = [str(word) for word in filled(plan.driver.argv, values)]
        env = {name: str(filled(entry.value, values)) for name, entry in plan.driver.env.items()}
        self._job = DriverJob(
            f"http://{facts.address}:{block.dashboard}", f"driver-{self.node.allocation.restart}"
        )
        self._job.submit(entrypoint(argv, self.node.run.path, attempt.driver_log), env)
        end = self._stay(self._job)
        self._job = None
        self.driver_exit_code = end.exit_code
        if not end.ok:
            raise RunFailed(
                f"the driver ended with exit code {end.exit_code}:"
                f" {_last_words(attempt.driver_log) or end.message}",
                where=f"{self.node.name}, {attempt.driver_log}",
                fix="read this log",
            )

    def _stay(self, job: DriverJob) -> JobEnd:
        assert self._ray is not None and self._line is not None
        while True:
            self.node.stop.check()
            self._ray.check(self.node.name)
            self._check_workers()
            try:
                end = job.poll()
            except (RuntimeError, OSError):
                end = None  # a dead dashboard shows as a dead raylet in the next round
            if end is not None:
                return end
            self.timeline.say(self._step())
            time.sleep(POLL_S)

    def _check_workers(self) -> None:
        assert self._line is not None
        members = self._line.members()
        for name in self.nodes:
            problem = members[name].report.get("problem") if name in members else None
            if problem:
                raise RunFailed(
                    f"node {name} left the run: {problem}", where=name, fix="see its log"
                )
        lost = [name for name in self._line.lost() if name in self.nodes]
        if lost:
            raise RunFailed(
                f"lost the agent of {', '.join(lost)}",
                where=lost[0],
                fix="see the node's log and `sinfo -R`",
            )

    def _step(self) -> str:
        records = read_lines(self.node.attempt.metrics)
        if not records:
            return "the driver runs"
        reward = records[-1].get("reward_mean")
        shown = f", reward {reward:.3f}" if isinstance(reward, float) else ""
        return f"step {records[-1].get('step', len(records))}{shown}"

    def teardown(self) -> None:
        """Stop the driver, let the workers go, stop this node's Ray; never raises for what is gone
        already.
        """
        if self._job is not None:
            self._job.stop(patience=GOODBYE_S)
        if self._line is not None:
            self._line.send({"type": "finish"})
        if self._ray is not None:
            self._ray.stop()
        if self._line is not None:
            self._wait_for_goodbyes()
            self._line.close()

    def _wait_for_goodbyes(self) -> None:
        assert self._line is not None
        deadline = time.monotonic() + GOODBYE_S
        while any(m.alive for m in self._line.members().values()) and time.monotonic() < deadline:
            time.sleep(0.05)


def _last_words(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    spoken = [line.strip() for line in lines if line.strip()]
    return spoken[-1][:300] if spoken else ""
