"""Connect to Ray, start the actors on their nodes, and take everything down again."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ray

from trainer.config import Config
from trainer.device import Device
from trainer.errors import TrainerError
from trainer.megatron import Rendezvous
from trainer.placement import ACTOR_CPUS, Node, choose_nodes
from trainer.rollout import EngineActor, Engines
from trainer.train_actor import TrainerRank
from trainer.train_group import TrainerGroup

ROOT = Path(__file__).parent.parent  # the directory that `import trainer` finds this package in


@dataclass(frozen=True, slots=True)
class Cluster:
    """Both halves, up and built."""

    trainer: TrainerGroup
    engines: Engines


@contextlib.contextmanager
def ray_connection(address: str, work_dir: Path) -> Iterator[None]:
    """A connection to the Ray cluster at `address`; "auto" means the running one, else one started here."""
    try:
        ray.init(address=address, log_to_driver=True, include_dashboard=None)
    except ConnectionError as error:
        if address != "auto":
            raise TrainerError(f"ray: no cluster at {address}: {error}") from None
        ray.init(include_dashboard=False)
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def colocated(config: Config, device: Device) -> Iterator[Cluster]:
    """Ranks and engines on the same nodes; engines and ranks start side by side. Ends all of them on exit."""
    nodes = choose_nodes(config.nodes)
    engines = [_start_engine(config, device, i, node) for i, node in enumerate(nodes)]
    ranks = [
        _start_rank(config, device, node) for node in nodes for _ in range(config.ranks_per_node)
    ]
    try:
        trainer = TrainerGroup(ranks)
        trainer.build()
        yield Cluster(trainer, Engines(engines, config.rollout.start_timeout_s))
    finally:
        _end(engines, ranks)


def _start_rank(config: Config, device: Device, node: Node) -> ray.actor.ActorHandle:
    threads = max(1, node.cpus // config.ranks_per_node)
    return (
        ray.remote(TrainerRank)
        .options(
            num_cpus=ACTOR_CPUS,
            num_gpus=device.gpus_per_rank,
            scheduling_strategy=node.pin,
            runtime_env={"env_vars": {"PYTHONPATH": f"{ROOT}:${{PYTHONPATH}}"}},
        )
        .remote(config, device, threads)
    )


def _start_engine(
    config: Config, device: Device, index: int, node: Node
) -> ray.actor.ActorHandle:
    paths = [*device.engine_path, ROOT]
    python_path = ":".join(str(path) for path in paths) + ":${PYTHONPATH}"
    return (
        ray.remote(EngineActor)
        .options(
            num_cpus=ACTOR_CPUS,
            scheduling_strategy=node.pin,
            runtime_env={"env_vars": {"PYTHONPATH": python_path, **device.engine_env}},
        )
        .remote(config, device, index)
    )


def _end(engines: list[ray.actor.ActorHandle], ranks: list[ray.actor.ActorHandle]) -> None:
    """Ask the engines to end their processes, then kill every actor."""
    with contextlib.suppress(ray.exceptions.RayError):
        ray.get([engine.shutdown.remote() for engine in engines], timeout=20)
    for actor in [*engines, *ranks]:
        ray.kill(actor)
