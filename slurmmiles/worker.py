"""A worker node's part of a run: find the head, say what this node is, hold a raylet until the run
is over.
"""

from __future__ import annotations

import logging
import random
import socket
import time
from multiprocessing import AuthenticationError
from pathlib import Path

from slurmmiles import control, nodefacts
from slurmmiles.control import Message, WorkerLine
from slurmmiles.errors import RunFailed, UnfitNodes
from slurmmiles.jsonfile import read_json
from slurmmiles.node import Node
from slurmmiles.nodefacts import NodeFacts
from slurmmiles.ports import PortBlock, preferred
from slurmmiles.ray_cluster import RayNode, worker_argv

log = logging.getLogger(__name__)
CANARY_S = (
    10.0  # NFS clients may keep "no such file" for acregmax; the head writes before anyone connects
)


def run_worker(node: Node) -> None:
    """Until the head says that the run is over; RunFailed when the head or this node's raylet is
    lost.
    """
    line = find_head(node)
    try:
        welcome = _welcome(node, line)
        block, guard, facts = _settle(node, line, welcome)
        with guard:
            line.report(stage="agent", facts=facts.model_dump(mode="json"))
            if facts.canary != welcome["canary"]:
                _sit_out(node, line)
                return
            _hold_raylet(node, line, welcome, block, facts)
    finally:
        line.close()


def find_head(node: Node) -> WorkerLine:
    """Connect to the head's agent with growing, jittered pauses until the plan's deadline."""
    deadline = time.monotonic() + node.plan.ray.join_deadline_s
    default = preferred(node.allocation.job_id, nodefacts.ephemeral_floor()).control
    pause, last = 0.05, "nothing was tried"
    while time.monotonic() < deadline:
        node.stop.check()
        known = read_json(node.attempt.head) or {}
        host, port = known.get("address", node.allocation.head), int(known.get("control", default))
        try:
            return control.join(host, port, node.token, node.name, timeout=5.0)
        except (OSError, EOFError, AuthenticationError) as error:
            last = f"{host}:{port}: {error}"
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 1.6, 2.0)
    raise UnfitNodes(
        f"the head {node.allocation.head} was not reached in {node.plan.ray.join_deadline_s:g} s"
        f" ({last})",
        where=node.name,
        fix="check the network between these two nodes, or name the interface in the site file",
    )


def _welcome(node: Node, line: WorkerLine) -> Message:
    line.report(stage="hello")
    while (message := line.receive(1.0)) is None:
        node.stop.check()
    return message


def _settle(
    node: Node, line: WorkerLine, welcome: Message
) -> tuple[PortBlock, socket.socket, NodeFacts]:
    """Claim ports and gather this node's facts, with what it reads of the head's canary."""
    floor = nodefacts.ephemeral_floor()
    claimed = nodefacts.claim_ports(node.allocation.job_id, floor)
    if claimed is None:
        line.report(stage="failed", problem=f"no free block of ports below {floor}")
        raise UnfitNodes(
            f"no free block of ports below {floor}", where=node.name, fix="end other runs on it"
        )
    block, guard = claimed
    interface = node.plan.interface or nodefacts.interface_of(line.address)
    address = nodefacts.ipv4_addresses().get(interface, line.address)
    gathered = nodefacts.gather(
        node.name, address=address, interface=interface, floor=floor, port_base=block.base
    )
    facts = node.resolved(gathered)
    text, error = _read_canary(node.attempt.canary, str(welcome["canary"]))
    return block, guard, facts.model_copy(update={"canary": text, "canary_error": error})


def _read_canary(path: Path, expected: str) -> tuple[str | None, str]:
    deadline = time.monotonic() + CANARY_S
    while True:
        try:
            text, error = path.read_text(), ""
        except OSError as problem:
            text, error = None, f"{problem.strerror}: {path}"
        if text == expected or time.monotonic() >= deadline:
            return text, error
        time.sleep(0.2)


def _sit_out(node: Node, line: WorkerLine) -> None:
    """This node is unfit and has said so: wait for the head to decide what becomes of the run."""
    try:
        while True:
            node.stop.check()
            message = line.receive(1.0)
            if message and message.get("type") == "finish":
                return
    except ConnectionError:
        return


def _hold_raylet(
    node: Node, line: WorkerLine, welcome: Message, block: PortBlock, facts: NodeFacts
) -> None:
    values = node.values(
        address=facts.address,
        interface=facts.interface,
        head_address=str(welcome["head_address"]),
        nodes=node.allocation.nodes,
    )
    argv = worker_argv(
        node.plan.ray,
        block,
        python=values["python"],
        node=node.name,
        address=facts.address,
        gcs=str(welcome["gcs"]),
    )
    ray = RayNode(argv, node.attempt.ray_log(node.name), node.ray_env(facts, values))
    line.report(stage="ray", facts=facts.model_dump(mode="json"))
    try:
        _stay(node, line, ray)
    except ConnectionError as error:
        raise RunFailed(
            "the head's agent is gone", where=node.name, fix="see the head's log"
        ) from error
    finally:
        ray.stop()


def _stay(node: Node, line: WorkerLine, ray: RayNode) -> None:
    """Until the head says `finish`; a raylet that ends before it joined is started again."""
    revive_until = time.monotonic() + node.plan.ray.join_deadline_s
    while True:
        node.stop.check()
        message = line.receive(0.5) or {}
        if message.get("type") == "joined":
            revive_until = 0.0
        if message.get("type") == "finish":
            line.report(stage="bye", bye=True)
            return
        try:
            ray.check(node.name, revive_until=revive_until)
        except RunFailed as error:
            line.report(stage="failed", problem=error.what)
            raise
