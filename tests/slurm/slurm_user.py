"""A person at the sandbox's login node, who types slurmmiles."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmmiles import shell
from slurmmiles.sandbox.handle import Sandbox

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class User:
    """A person on the sandbox's login node, with a directory of runs of their own."""

    sandbox: Sandbox
    runs: Path

    def type(self, *words: str, timeout: float = 300.0) -> shell.Completed:
        """`slurmmiles WORDS` in a process of its own."""
        env = {
            **os.environ,
            "SLURMMILES_SANDBOX_DIR": str(self.sandbox.dir),
            "SLURMMILES_RUNS": str(self.runs),
            "PYTHONPATH": str(ROOT),
        }
        argv = [sys.executable, "-m", "slurmmiles", *words]
        return shell.run(argv, timeout=timeout, env=env, cwd=self.runs)

    def submit(self, *words: str, timeout: float = 300.0) -> tuple[int, dict[str, Any]]:
        """`submit --wait --json`: its exit code and what it printed."""
        ended = self.type("submit", *words, "--wait", "--json", timeout=timeout)
        assert ended.stdout, ended.stderr
        return ended.returncode, json.loads(ended.stdout)

    def slurm_state(self, job_id: str) -> str:
        """What scontrol says: `STATE EXIT:SIGNAL`."""
        text = self.sandbox.login("scontrol", "show", "job", "--oneliner", job_id).stdout
        fields = dict(word.split("=", 1) for word in text.split() if "=" in word)
        return f"{fields['JobState']} {fields['ExitCode']}"

    def recipe(self, name: str, text: str) -> str:
        """A recipe file in the user's directory."""
        path = self.runs / f"{name}.yaml"
        path.write_text(text)
        return str(path)
