"""Which Slurm the commands talk to: the cluster's own tools, or those of a running sandbox."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from slurmmiles.errors import BadInput
from slurmmiles.sandbox.layout import DEFAULT_DIR, SandboxDir, read_record
from slurmmiles.sandbox.lifecycle import client_bin

# Debian's and most sites' place; a configless site sets SLURM_CONF.
CLUSTER_CONF = (Path("/etc/slurm/slurm.conf"), Path("/etc/slurm-llnl/slurm.conf"))
SANDBOX_SITE = "sandbox"


@dataclass(frozen=True, slots=True)
class Clients:
    """Whose tools are on PATH: a sandbox's, with its site and shared paths, or a cluster's."""

    site: str | None = None
    shared: tuple[Path, ...] = ()


def find_slurm() -> Clients:
    """Put a running sandbox's tools on PATH where there is no cluster.

    SLURMMILES_SANDBOX_DIR names a sandbox outright. A machine that has the packages for a sandbox
    has an sbatch too, so what tells a cluster is its configuration.
    """
    named = os.environ.get("SLURMMILES_SANDBOX_DIR")
    if not named and ("SLURM_CONF" in os.environ or any(c.exists() for c in CLUSTER_CONF)):
        return Clients()
    root = Path(named or DEFAULT_DIR)
    tools = client_bin(root)
    if tools is None:
        return Clients()
    os.environ["PATH"] = f"{tools}:{os.environ.get('PATH', '')}"
    spec, _ = read_record(SandboxDir(root))
    return Clients(SANDBOX_SITE, (root, *(Path(p) for p in spec.share)))


def need_slurm() -> Clients:
    """As find_slurm; BadInput where there is neither a cluster nor a sandbox."""
    clients = find_slurm()
    if clients.site is None and which("sbatch") is None:
        raise BadInput(
            "there is no Slurm on this machine (no sbatch on PATH)",
            fix="log in to a cluster, use --local, or try `slurmmiles sandbox up`",
        )
    return clients
