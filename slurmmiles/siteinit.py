"""A site file of the user's own, from what the machine shows: Slurm's partitions and accounts, the
network, the container runtime. What cannot be seen is asked for.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from slurmmiles import partitions, shell
from slurmmiles.catalog import Catalog
from slurmmiles.errors import BadInput
from slurmmiles.jsonfile import write_text
from slurmmiles.partitions import Association, Partition
from slurmmiles.recipe import NAME
from slurmmiles.site import Site
from slurmmiles.sitefind import GENERIC, cluster_name

ASK_S = 15.0
RUNTIMES = ("apptainer", "podman")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the machine shows; anything may be empty."""

    cluster: str = ""
    partitions: tuple[Partition, ...] = ()
    accounts: tuple[Association, ...] = ()
    runtime: str = ""


def look() -> Seen:
    """Ask this machine; a program that is missing or silent leaves its part empty."""
    return Seen(
        cluster=cluster_name(),
        partitions=tuple(partitions.parse_sinfo(_ask(partitions.sinfo_argv()))),
        accounts=tuple(
            partitions.parse_sacctmgr(_ask(partitions.sacctmgr_argv(getpass.getuser())))
        ),
        runtime=_runtime(),
    )


def _ask(argv: Sequence[str]) -> str:
    if which(argv[0]) is None:
        return ""
    done = shell.run(argv, timeout=ASK_S)
    return done.stdout if done.ok else ""


def _runtime() -> str:
    """pyxis shows in srun's help; other runtimes are programs."""
    if "--container-image" in _ask(["srun", "--help"]):
        return "pyxis"
    return next((name for name in RUNTIMES if which(name)), "")


def propose(
    seen: Seen,
    *,
    base: Site,
    gpus: Collection[str],
    ask: Callable[[str, Sequence[str]], str] | None = None,
) -> dict[str, Any]:
    """The keys of the site file, pure but for `ask`, which answers a question or gives "".

    `base` is the site to extend, `gpus` the known kinds of GPU. A partition or an account that is
    not clear goes to `ask`; without an answer the file asks for it at each submission.
    """
    site: dict[str, Any] = {} if base.name == GENERIC else {"extends": base.name}
    if seen.cluster:
        site["cluster_name"] = seen.cluster
    open_: list[str] = []
    with_gpus = [p for p in seen.partitions if p.gpus] or list(seen.partitions)
    names = list(dict.fromkeys(p.name for p in with_gpus))
    default = next((p.name for p in with_gpus if p.is_default), "")
    chosen = default or _one("partition", names, ask, open_)
    if chosen and chosen != default:
        site["partition"] = chosen
    accounts = [a.account for a in seen.accounts]
    if account := _one("account", accounts, ask, open_):
        site["account"] = account
    node = next((p for p in with_gpus if p.name == chosen), None)
    if node:
        site |= _node_keys(node, gpus)
    if seen.runtime:
        site["container"] = {"runtime": seen.runtime}
    open_ += [key for key in base.ask if key not in site and key not in open_]
    return site | ({"ask": open_} if open_ else {})


def _one(
    key: str,
    choices: Sequence[str],
    ask: Callable[[str, Sequence[str]], str] | None,
    open_: list[str],
) -> str:
    """The only choice, else the answer; a choice that stays open is noted."""
    if len(choices) <= 1:
        return "".join(choices)
    answer = ask(key, choices) if ask else ""
    if not answer:
        open_.append(key)
    return answer


def _node_keys(node: Partition, gpus: Collection[str]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    kind = node.gpu_type.lower()
    if node.gpus:
        keys["gpus_per_node"] = node.gpus
    known = [name for name in sorted(gpus, key=len, reverse=True) if name in kind]
    if kind and known:
        keys["gpu"] = known[0]
    if node.cpus:
        keys["cpus_per_node"] = node.cpus
    if node.memory_mb:
        keys["host_memory_gb"] = round(node.memory_mb * 1024 * 1024 / 1e9, 1)
    return keys


def write_site(catalog: Catalog, name: str, text: str, *, force: bool) -> Path:
    """Write the user's file `name` and read it back; BadInput for a name that is taken or none."""
    if not NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} cannot be a site's name",
            where="NAME",
            fix="use letters, digits, '-' and '_'",
        )
    path = catalog.roots[0] / "sites" / f"{name}.yaml"
    if path.exists() and not force:
        raise BadInput("this file is there already", where=str(path), fix="give --force or a NAME")
    if f"extends: {name}\n" in text:
        raise BadInput(
            f"a site cannot extend the one of its own name, {name!r}",
            where="NAME",
            fix="choose another NAME",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    catalog.site(str(path))
    return path
