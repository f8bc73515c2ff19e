"""The networks of a cluster's nodes, described beforehand: kernel trees, saved trees or the facts
that a run left, one for each node in one folder; and what a plan would set on each.
"""

from __future__ import annotations

from pathlib import Path

from slurmmiles.errors import BadInput
from slurmmiles.fabric import node_env_of
from slurmmiles.fabric.across import global_list_note
from slurmmiles.jsonfile import read_json
from slurmmiles.netlibs import PLUGINS
from slurmmiles.nics import NodeNics
from slurmmiles.planfile import EnvValue, Plan
from slurmmiles.sysfs import read_node
from slurmmiles.systree import DiskTree, TextTree


def read_nodes(folder: Path) -> dict[str, NodeNics]:
    """Node to its network, by name: NODE/ with sys/ (and proc/) below, NODE.txt of lines
    `PATH = CONTENT`, or NODE.json of a run's nodes/. BadInput when there is none.
    """
    found: dict[str, NodeNics] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        nics = _nics(path)
        if nics is not None:
            found[path.stem if path.is_file() else path.name] = nics
    if not found:
        raise BadInput(
            "no node is described here",
            where=str(folder),
            fix="give a folder with NODE/sys/..., NODE.txt or NODE.json for each node",
        )
    return found


def _nics(path: Path) -> NodeNics | None:
    if path.is_dir():
        return read_node(DiskTree(path)) if (path / "sys").is_dir() else None
    if path.suffix == ".txt":
        return read_node(TextTree.parse(path.read_text(errors="replace")))
    if path.suffix == ".json" and not path.name.endswith(".env.json"):
        nics = (read_json(path) or {}).get("nics")
        return NodeNics.model_validate(nics) if nics else None
    return None


def node_tables(plan: Plan, nodes: dict[str, NodeNics]) -> dict[str, dict[str, EnvValue]]:
    """The network environment of each node under the plan; libraries are taken as loadable."""
    tables: dict[str, dict[str, EnvValue]] = {}
    for node, nics in nodes.items():
        assumed = {name: name for name in PLUGINS if "cassini" not in name}
        mine = node_env_of(
            node,
            plan.env,
            plan.fabric,
            nics,
            inherited={},
            plugins=assumed,
            gpu=plan.gpu or "",
        )
        tables[node] = {
            name: entry
            for name, entry in mine.table.items()
            if name not in plan.env or entry != plan.env[name]
        }
    return tables


def nodes_notes(nodes: dict[str, NodeNics]) -> list[str]:
    """What the nodes together say against one environment for all."""
    note = global_list_note(nodes)
    kinds = sorted({nics.fabric for nics in nodes.values()})
    mixed = f"the nodes' networks are of {len(kinds)} kinds: {', '.join(kinds)}"
    return [text for text in (note, mixed if len(kinds) > 1 else "") if text]


def with_nodes(plan: Plan, folder: Path | None) -> tuple[Plan, dict[str, dict[str, EnvValue]]]:
    """The plan with what the described nodes say against it, and each node's own environment."""
    if folder is None:
        return plan, {}
    nodes = read_nodes(folder)
    noted = plan.model_copy(update={"notes": (*plan.notes, *nodes_notes(nodes))})
    return noted, node_tables(plan, nodes)


def dump_tables(tables: dict[str, dict[str, EnvValue]]) -> dict[str, dict[str, dict[str, str]]]:
    """For JSON: node to NAME to value, origin and reason."""
    return {n: {k: e.model_dump() for k, e in table.items()} for n, table in tables.items()}


def table_lines(tables: dict[str, dict[str, EnvValue]]) -> list[str]:
    """For a person: one line a node with what differs from node to node."""
    pairs = [{(k, e.value) for k, e in table.items()} for table in tables.values()]
    shared = set.intersection(*pairs) if len(pairs) > 1 else set()
    lines = []
    for node, table in tables.items():
        own = [f"{k}={e.value}" for k, e in table.items() if (k, e.value) not in shared]
        lines.append(f"{node}  {'  '.join(own) or 'as the others'}")
    return lines
