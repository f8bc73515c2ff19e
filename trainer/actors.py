"""Ray actors whose classes are imported where they run, and a way to wait for many that fails at the first failure."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import ray

from trainer.placement import Node

CPUS = 0.1  # ranks and engines take turns on the same cores, so none reserves a whole one


class Hosted:
    """Holds an object of the class at `path` ("module:Class") and calls its methods by name.

    The driver so never imports Megatron or SGLang, which take seconds; each actor's process does.
    """

    def __init__(self, path: str, *args: object) -> None:
        module, name = path.split(":")
        self._object = getattr(importlib.import_module(module), name)(*args)

    def call(self, method: str, *args: object) -> Any:
        """The result of `method(*args)`."""
        return getattr(self._object, method)(*args)


def start(
    path: str, *args: object, node: Node, gpus: int, env: dict[str, str]
) -> ray.actor.ActorHandle:
    """An actor that holds `path` on exactly `node`, with `env` in its process before any import."""
    options = ray.remote(Hosted).options(
        num_cpus=CPUS,
        num_gpus=gpus,
        scheduling_strategy=node.pin,
        runtime_env={"env_vars": env},
    )
    return options.remote(path, *args)


def call_all(
    actors: Sequence[ray.actor.ActorHandle],
    method: str,
    *args: object,
    timeout: float | None = None,
) -> list[Any]:
    """`method(*args)` on every actor at once, results in their order.

    Raises the first failure as soon as it is known: in a collective call the other ranks may wait for the
    failed one until their own timeout. Raises ray.exceptions.GetTimeoutError after `timeout` seconds.
    """
    return wait_all([actor.call.remote(method, *args) for actor in actors], timeout=timeout)


def wait_all(refs: Sequence[ray.ObjectRef], *, timeout: float | None = None) -> list[Any]:
    """The values of `refs` in order; raises as `call_all` does."""
    pending = list(refs)
    while pending:
        done, pending = ray.wait(pending, timeout=timeout)
        if not done:
            raise ray.exceptions.GetTimeoutError(f"{len(pending)} actors gave no answer in {timeout:g} s")
        ray.get(done)
    return ray.get(list(refs))
