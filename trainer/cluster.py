"""Connect to Ray, start the actors of both halves on their nodes, and end all of it again."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path

import ray

from trainer.actors import Actor, call_all, start
from trainer.config import Config
from trainer.device import Device
from trainer.errors import TrainerError
from trainer.placement import Node, choose_nodes
from trainer.rollout import Engines
from trainer.trainer_group import TrainerGroup

ROOT = Path(__file__).parent.parent  # the directory that `import trainer` finds this package in
# Megatron and SGLang warn at import, in every process, of each optional package that is missing.
QUIET = {"PYTHONWARNINGS": "ignore::UserWarning,ignore::FutureWarning"}
SHUTDOWN_S = 20.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Both halves, up and built."""

    trainer: TrainerGroup
    engines: Engines


@contextlib.contextmanager
def ray_connection(address: str, env: MutableMapping[str, str], work_dir: Path) -> Iterator[None]:
    """A connection to the Ray cluster at `address`, taken down on exit; raises TrainerError.

    "auto" is the cluster that runs on this machine and, where none does, one started here; "local"
    always starts one. One started here uses the token that `env`, this process's environment,
    names, else one in `work_dir`: Ray would write it into the user's home.
    """
    try:
        if address != "local":
            ray.init(address=address)
    except ConnectionError as error:
        if address != "auto":
            raise TrainerError(f"ray: no cluster at {address}: {error}") from None
    if not ray.is_initialized():
        if not any(name.startswith("RAY_AUTH_") for name in env):
            env["RAY_AUTH_TOKEN_PATH"] = str(_new_token(work_dir))
        ray.init(address="local", include_dashboard=False)
    try:
        yield
    finally:
        ray.shutdown()


def _new_token(work_dir: Path) -> Path:
    """A file of mode 600 with a fresh secret."""
    path = work_dir / "ray_token"
    work_dir.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32))
    return path


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
        with contextlib.suppress(TrainerError, ray.exceptions.RayError):
            call_all(engines, "shutdown", timeout=SHUTDOWN_S)
        for actor in [*engines, *ranks]:
            ray.kill(actor)


def _start_rank(config: Config, device: Device, node: Node) -> Actor:
    threads = max(1, node.cpus // config.ranks_per_node)
    return start(
        "trainer.train_rank:TrainerRank",
        *(config, device, threads),
        node=node,
        gpus=device.gpus_per_rank,
        env={"PYTHONPATH": f"{ROOT}:${{PYTHONPATH}}", **QUIET},
    )


def _start_engine(config: Config, device: Device, index: int, node: Node) -> Actor:
    paths = ":".join(str(path) for path in [*device.engine_path, ROOT])
    env = {
        "PYTHONPATH": f"{paths}:${{PYTHONPATH}}",
        "SGLANG_CACHE_DIR": str(config.work_dir / "sglang_cache"),  # else in the user's home
    }
    return start(
        "trainer.engine:Engine",
        *(config, device, index),
        node=node,
        gpus=0,
        env={**env, **QUIET, **device.engine_env},
    )
