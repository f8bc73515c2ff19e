"""`python -m slurmmiles.gate_check`: the driver of recipe gate-check. Counts the nodes and GPUs that Ray really has.

Then it places one actor that holds all the GPUs of its node on each node, which is what a trainer will do.
"""

from __future__ import annotations

import argparse
import sys
import time

from slurmmiles.ray_cluster import NODE_LABEL


def main(argv: list[str]) -> int:
    """Exit 0 when the numbers are as given, 1 with a sentence otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    args = parser.parse_args(argv)
    import ray

    ray.init(log_to_driver=False, logging_level="ERROR")
    alive = [n for n in ray.nodes() if n["Alive"]]
    gpus = sum(int(n["Resources"].get("GPU", 0)) for n in alive)
    print(f"{len(alive)} nodes and {gpus} GPUs are registered", flush=True)
    if (len(alive), gpus) != (args.nodes, args.gpus):
        print(f"expected {args.nodes} nodes and {args.gpus} GPUs", flush=True)
        return 1
    started = time.monotonic()
    names = _hold_every_node(ray, alive, args.gpus // args.nodes)
    print(
        f"an actor with all GPUs ran on {', '.join(names)} in {time.monotonic() - started:.1f} s",
        flush=True,
    )
    return 0 if len(set(names)) == args.nodes else 1


def _hold_every_node(ray: object, alive: list[dict[str, object]], gpus: int) -> list[str]:
    import ray as r
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def where() -> str:
        return str(r.get_runtime_context().get_node_id())

    labels = {n["NodeID"]: n["Labels"].get(NODE_LABEL, "?") for n in alive}  # type: ignore[attr-defined]
    task = r.remote(where)
    refs = [
        task.options(
            num_cpus=0,
            num_gpus=gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(str(node), soft=False),
        ).remote()
        for node in labels
    ]
    return [str(labels[node]) for node in r.get(refs)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
