"""Where each rank, group and rollout engine lies, decided before anything is submitted.

Pure arithmetic. `make_topology` (Megatron's layout), `make_rollout` (SGLang's engines) and
`check_batches` refuse what cannot work, each rule with its own message; `rank_grid`, `groups` and
`traffic` say where a rank and its communication lie.
"""

from __future__ import annotations

from slurmmiles.topology.batches import check_batches
from slurmmiles.topology.engines import Rollout, make_rollout
from slurmmiles.topology.layout import Topology, flat_topology, make_topology, warnings
from slurmmiles.topology.layout_rules import split_layers
from slurmmiles.topology.ranks import RankPlace, Reach, groups, rank_grid, traffic

__all__ = [
    "RankPlace",
    "Reach",
    "Rollout",
    "Topology",
    "check_batches",
    "flat_topology",
    "groups",
    "make_rollout",
    "make_topology",
    "rank_grid",
    "split_layers",
    "traffic",
    "warnings",
]
