"""What `sbatch --test-only` says to a site's script on the sandbox."""

from __future__ import annotations

import re
from pathlib import Path

from slurm_user import User

HERE = ("slurm.partition=main", "slurm.account=lab", "slurm.qos=normal", "slurm.cpus_per_task=4")
CONSTRAINT = re.compile(r"^#SBATCH --constraint=.*\n", re.M)


def try_script(user: User, site: str) -> str:
    """Slurm's refusal, or "" when it would start the job. The sandbox's nodes have no features."""
    settings = [word for setting in HERE for word in ("--set", setting)]
    asked = user.type("render", "gate-check", "--nodes", "2", "--site", site, *settings)
    assert asked.returncode == 0, asked.stderr
    script = Path(user.runs, f"{site}.sbatch")
    script.write_text(CONSTRAINT.sub("", asked.stdout))
    said = user.sandbox.login("sbatch", "--test-only", str(script))
    return "" if said.ok else said.stderr
