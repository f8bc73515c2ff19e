"""The environment of the network between the nodes: decided for the run, resolved on each node,
judged against what is known to fail. Pure.
"""

from __future__ import annotations

from slurmmiles.fabric.node import NodeEnv, needs_plugin, node_env_of
from slurmmiles.fabric.rules import fabric_notes, network_env, with_job_env, with_real_timeout
from slurmmiles.fabric.table import OURS, SECRET, resolve_env

__all__ = [
    "OURS",
    "SECRET",
    "NodeEnv",
    "fabric_notes",
    "needs_plugin",
    "network_env",
    "node_env_of",
    "resolve_env",
    "with_job_env",
    "with_real_timeout",
]
