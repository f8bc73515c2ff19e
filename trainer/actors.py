"""Ray actors whose classes are imported where they run, and calls that fail at first failure."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import ray
from ray.exceptions import RayActorError, RayTaskError

from trainer.errors import TrainerError
from trainer.placement import Node

Actor: TypeAlias = "ray.actor.ActorHandle[Hosted]"
Ref: TypeAlias = "ray.ObjectRef[Any]"
CPUS = 0.1  # ranks and engines take turns on the same cores, so none reserves a whole one


class Hosted:
    """Holds an object of the class at `path` ("module:Class") and calls its methods by name.

    So the driver never imports Megatron or SGLang, which take seconds; each actor's process does.
    """

    def __init__(self, path: str, *args: object) -> None:
        module, self._name = path.split(":")
        self._object = getattr(importlib.import_module(module), self._name)(*args)

    def call(self, method: str, *args: object) -> Any:
        """The result of `method(*args)`."""
        return getattr(self._object, method)(*args)

    def __repr__(self) -> str:
        """The name that Ray puts before each line of this process's output."""
        return self._name


def start(path: str, *args: object, node: Node, gpus: int, env: dict[str, str]) -> Actor:
    """An actor that holds `path` on exactly `node`, with `env` in its process before any import."""
    options = ray.remote(Hosted).options(
        num_cpus=CPUS,
        num_gpus=gpus,
        scheduling_strategy=node.pin,
        runtime_env={"env_vars": env},
    )
    return cast(Actor, options.remote(path, *args))


def call_all(
    actors: Sequence[Actor],
    method: str,
    *args: object,
    timeout: float | None = None,
) -> list[Any]:
    """`method(*args)` on every actor at once; results, and errors, as of `wait_all`."""
    refs = [actor.call.remote(method, *args) for actor in actors]
    return wait_all(refs, method, timeout=timeout)


def wait_all(refs: Sequence[Ref], what: str, *, timeout: float | None = None) -> list[Any]:
    """The values of `refs` in order; `what` names the call in errors.

    Raises the first failure as soon as it is known: in a collective call the other ranks may wait
    for the failed one until their own timeout. Raises TrainerError: the actor's own, or one that
    says that it raised something else, that its process died, or that none answered for `timeout`
    seconds.
    """
    pending = list(refs)
    try:
        while pending:
            done, pending = ray.wait(pending, timeout=timeout)
            if not done:
                raise TrainerError(f"{what}: no answer in {timeout:g} s")
            ray.get(done)
        return ray.get(list(refs))
    except RayActorError as error:
        raise TrainerError(f"{what}: a process of the run died: {_reason(error)}") from None
    except RayTaskError as error:
        if isinstance(error, TrainerError):
            raise
        cause = error.cause
        raise TrainerError(f"{what}: {type(cause).__name__}: {cause}") from error


def _reason(error: RayActorError) -> str:
    """Which process, where, and why, in one line: Ray tells it in a page of advice or traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "creation task" in lines[0]:  # its __init__ raised, and the error ends the remote traceback
        return lines[-1]
    told = ("pid: ", "ip: ", "The actor is dead")
    return ", ".join(line.split(". ")[0] for line in lines if line.startswith(told))
