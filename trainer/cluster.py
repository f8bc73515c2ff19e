"""Connect to Ray, start the actors of both halves on their nodes, and take everything down again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ray

from trainer.actors import call_all, start
from trainer.config import Config
from trainer.device import Device
from trainer.rollout import Engines
from trainer.errors import TrainerError
from trainer.placement import Node, choose_nodes
from trainer.trainer_group import TrainerGroup

ROOT = Path(__file__).parent.parent  # the directory that `import trainer` finds this package in
# Megatron and SGLang warn at import, in every process, of each optional package that is not installed.
QUIET = {"PYTHONWARNINGS": "ignore::UserWarning,ignore::FutureWarning"}
SHUTDOWN_S = 20.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Both halves, up and built."""

    trainer: TrainerGroup
    engines: Engines


@contextlib.contextmanager
def ray_connection(address: str) -> Iterator[None]:
    """A connection to the Ray cluster at `address`; "auto" means the running one, else one started here."""
    try:
        ray.init(address=address)
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
    """Ranks and engines on the same nodes, started side by side; on exit all of them are ended."""
    nodes = choose_nodes(config.nodes)
    engines = [_start_engine(config, device, i, node) for i, node in enumerate(nodes)]
    ranks = [
        _start_rank(config, device, node) for node in nodes for _ in range(config.ranks_per_node)
    ]
    try:
        trainer = TrainerGroup(ranks)
        yield Cluster(trainer, Engines(engines, config.rollout.start_timeout_s))
    finally:
        with contextlib.suppress(ray.exceptions.RayError):
            call_all(engines, "shutdown", timeout=SHUTDOWN_S)
        for actor in [*engines, *ranks]:
            ray.kill(actor)


def _start_rank(config: Config, device: Device, node: Node) -> ray.actor.ActorHandle:
    threads = max(1, node.cpus // config.ranks_per_node)
    return start(
        "trainer.train_rank:TrainerRank",
        *(config, device, threads),
        node=node,
        gpus=device.gpus_per_rank,
        env={"PYTHONPATH": f"{ROOT}:${{PYTHONPATH}}", **QUIET},
    )


def _start_engine(config: Config, device: Device, index: int, node: Node) -> ray.actor.ActorHandle:
    paths = ":".join(str(path) for path in [*device.engine_path, ROOT])
    return start(
        "trainer.engine:Engine",
        *(config, device, index),
        node=node,
        gpus=0,
        env={"PYTHONPATH": f"{paths}:${{PYTHONPATH}}", **QUIET, **device.engine_env},
    )
