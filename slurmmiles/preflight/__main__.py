"""`python -m slurmmiles.preflight`: the part of preflight that runs through Ray, as the head's
child.

It is a process of its own because a Ray driver dies with its raylet, and the agent must not. It
waits until every
expected node is registered (the gate), measures, and leaves gate.json and network.json in the
preflight directory.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path
from typing import Any

from slurmmiles.jsonfile import write_json
from slurmmiles.preflight.network import Measurement, rounds
from slurmmiles.ray_cluster import NODE_LABEL

STREAM_S = 0.3


def main(argv: list[str]) -> int:
    """Exit 0 when evidence was gathered, 3 when nodes are missing at the deadline."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", required=True, help="comma-separated, in the run's order")
    parser.add_argument(
        "--env", default="", help="names to read back from a Ray worker of each node"
    )
    parser.add_argument(
        "--deadline", type=float, required=True, help="seconds until every node must be there"
    )
    args = parser.parse_args(argv)
    import ray

    ray.init(
        address=args.address,
        namespace="slurmmiles",
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    nodes = args.nodes.split(",")
    registered = _gate(ray, nodes, args.out, time.monotonic() + args.deadline)
    if set(nodes) - set(registered):
        return 3
    probes = _place_probes(ray, registered)
    write_json(args.out / "env.json", _read_back(ray, probes, args.env))
    measurements = _measure(ray, probes, nodes)
    write_json(args.out / "network.json", [m.model_dump() for m in measurements])
    return 0


def _gate(ray: Any, nodes: list[str], out: Path, deadline: float) -> dict[str, Any]:
    """Node name to Ray's record, as far as registered; gate.json is rewritten at every change."""
    known: dict[str, Any] = {}
    while True:
        found = {n["Labels"].get(NODE_LABEL): n for n in ray.nodes() if n["Alive"]}
        registered = {name: found[name] for name in nodes if name in found}
        if set(registered) != set(known) or not known:
            known = registered
            resources = {name: n["Resources"] for name, n in registered.items()}
            write_json(out / "gate.json", {"at": time.time(), "registered": resources})
        if len(registered) == len(nodes) or time.monotonic() >= deadline:
            return registered
        time.sleep(0.2)


def _place_probes(ray: Any, registered: dict[str, Any]) -> dict[str, Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from slurmmiles.preflight.probe import Probe

    actor = ray.remote(Probe)
    return {
        name: (
            actor.options(
                num_cpus=0,
                max_concurrency=4,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote(node["NodeManagerAddress"])
        )
        for name, node in registered.items()
    }


def _read_back(ray: Any, probes: dict[str, Any], names: str) -> dict[str, dict[str, str | None]]:
    wanted = [n for n in names.split(",") if n]
    answers = ray.get([p.environment.remote(wanted) for p in probes.values()])
    return dict(zip(probes, answers, strict=True))


def _measure(ray: Any, probes: dict[str, Any], nodes: list[str]) -> list[Measurement]:
    """All pairs of a round at once, rounds one after another."""
    endpoints = dict(
        zip(probes, ray.get([p.endpoint.remote() for p in probes.values()]), strict=True)
    )
    done: list[Measurement] = []
    for pairs in rounds(nodes):
        answers = ray.get([probes[a].measure.remote(*endpoints[b], STREAM_S) for a, b in pairs])
        done += [
            Measurement(source=a, target=b, **r) for (a, b), r in zip(pairs, answers, strict=True)
        ]
    return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
