"""`python -m slurmmiles.gate_check`: the driver of recipe gate-check. Counts the nodes and GPUs
that Ray really has.

Then it places one task that holds all the GPUs of its node on each node, which is what a trainer
will do.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import time
from typing import Any

from slurmmiles.ray_cluster import NODE_LABEL


def main(argv: list[str]) -> int:
    """Exit 0 when the numbers are as given, 1 with a sentence otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    args = parser.parse_args(argv)
    ray: Any = importlib.import_module("ray")  # half a second, and --help does not need it
    ray.init(log_to_driver=False, logging_level=logging.ERROR)
    alive = {n["NodeID"]: n for n in ray.nodes() if n["Alive"]}
    gpus = sum(int(n["Resources"].get("GPU", 0)) for n in alive.values())
    print(f"{len(alive)} nodes and {gpus} GPUs are registered", flush=True)
    if (len(alive), gpus) != (args.nodes, args.gpus):
        print(f"expected {args.nodes} nodes and {args.gpus} GPUs", flush=True)
        return 1
    started = time.monotonic()
    held = _hold_every_node(ray, list(alive), args.gpus // args.nodes)
    names = [str(alive[node]["Labels"].get(NODE_LABEL, node)) for node in held]
    took = time.monotonic() - started
    print(f"a task with all GPUs of its node ran on {', '.join(names)} in {took:.1f} s", flush=True)
    return 0 if set(held) == set(alive) else 1


def _hold_every_node(ray: Any, nodes: list[str], gpus: int) -> list[str]:
    """The node ids that a task with `gpus` GPUs, pinned to each of `nodes`, reports from there."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def where() -> str:
        return str(ray.get_runtime_context().get_node_id())

    task = ray.remote(where)
    pinned = [
        task.options(
            num_cpus=0,
            num_gpus=gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote()
        for node in nodes
    ]
    return [str(answer) for answer in ray.get(pinned)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
