"""Which Slurm the commands talk to: the cluster's own tools, or those of a running sandbox."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import which

from slurmmiles.errors import BadInput
from slurmmiles.sandbox.layout import DEFAULT_DIR
from slurmmiles.sandbox.lifecycle import client_bin

# Debian's and most sites' place; a configless site sets SLURM_CONF.
CLUSTER_CONF = (Path("/etc/slurm/slurm.conf"), Path("/etc/slurm-llnl/slurm.conf"))
SANDBOX_SITE = "sandbox"


def find_slurm() -> str:
    """Put a running sandbox's tools on PATH where there is no cluster; its site's name, or "".

    SLURMMILES_SANDBOX_DIR names a sandbox outright. A machine that has the packages for a sandbox
    has an sbatch too, so what tells a cluster is its configuration.
    """
    named = os.environ.get("SLURMMILES_SANDBOX_DIR")
    if not named and ("SLURM_CONF" in os.environ or any(c.exists() for c in CLUSTER_CONF)):
        return ""
    tools = client_bin(Path(named or DEFAULT_DIR))
    if tools is None:
        return ""
    os.environ["PATH"] = f"{tools}:{os.environ.get('PATH', '')}"
    return SANDBOX_SITE


def need_slurm() -> str:
    """As find_slurm; BadInput where there is neither a cluster nor a sandbox."""
    site = find_slurm()
    if not site and which("sbatch") is None:
        raise BadInput(
            "there is no Slurm on this machine (no sbatch on PATH)",
            fix="log in to a cluster, use --local, or try `slurmmiles sandbox up`",
        )
    return site
