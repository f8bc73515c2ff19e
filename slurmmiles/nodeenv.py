"""The environment of this node's Ray processes: ours on top of Slurm's, with placeholders filled
in. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from slurmmiles.planfile import EnvValue, filled

# An MPI library in a child that finds these believes that it was started by srun, and hangs or
# aborts.
LAUNCHER_NAMES = re.compile(r"^(SLURM|SLURMD|SRUN|PMI|PMIX|PMI2|OMPI|MPI|SUBMITIT)_|^SLURMMILES_")
# Would point Ray at another cluster, or start a second Python environment.
NOT_INHERITED = frozenset({"RAY_ADDRESS", "RAY_RUNTIME_ENV_HOOK", "RAY_JOB_HEADERS"})


def node_env(
    inherited: Mapping[str, str],
    table: Mapping[str, EnvValue],
    values: Mapping[str, str],
    ray: Mapping[str, str],
) -> dict[str, str]:
    """What `ray start` gets on this node, and so every Ray worker of it."""
    kept = {
        k: v for k, v in inherited.items() if not LAUNCHER_NAMES.match(k) and k not in NOT_INHERITED
    }
    ours = {name: str(filled(entry.value, values)) for name, entry in table.items()}
    return {**kept, **ours, **ray}


def no_proxy(inherited: Mapping[str, str], nodes: Iterable[str], addresses: Iterable[str]) -> str:
    """The user's own exceptions, then loopback, every node by name, and the known addresses;
    without repeats.
    """
    own = inherited.get("no_proxy") or inherited.get("NO_PROXY") or ""
    names = [n for n in own.split(",") if n]
    return ",".join(dict.fromkeys([*names, "localhost", "127.0.0.1", *nodes, *addresses]))
