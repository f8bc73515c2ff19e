"""Who may import whom, and who may touch what: read from the source.

A ring says who may import whom: a module imports its own ring and lower ones, never upwards.
0 pure, no I/O; 1 one foreign language each; 2 and 3 act; 4 speaks to a person. A package stands for
its modules, except for those that are named themselves.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import slurmmiles

ROOT = Path(slurmmiles.__file__).resolve().parents[1]
PACKAGE = ROOT / "slurmmiles"
RINGS: dict[int, str] = {
    0: """
        __init__ allocation containers costmodel drivers economics efa_rules env_launch env_names
        env_rules errors explore fabric findings flagmerge gpu_rules gpus hostlist layouts memory
        miles miles_flags models name_lists nicroles nics nodeenv nodeorder openchecks openrecipes
        openrun parameters partitions paths pci plan planfile plannotes plantext ports preflight
        recipe report request result runblock rundir site slurm topology
        """,
    1: """
        inherit jsonfile sbatch shell systree sysfs yamlfile
        preflight.gdr preflight.ib_counters preflight.treecheck
        preflight.replay preflight.replay_env preflight.replay_gpu preflight.replay_net
        """,
    2: """
        asked catalog control driver_job gate_words netlibs node nodefacts ray_cluster sandbox
        nodetrees sitefind siteinit timeline
        preflight.__main__ preflight.environment preflight.host preflight.probe preflight.saved
        """,
    3: "agent arrival gate gate_check head health job logs runlist sitecheck submit worker",
    4: "__main__ cli commands show",
}
RING_OF = {name: ring for ring, names in RINGS.items() for name in names.split()}
# Where a process begins, and so where its environment is read.
ENTRY_POINTS = {"agent", "gate_check", "preflight.__main__", "preflight.probe", "sandbox.init"}
ENVIRONMENT = {"os.environ", "os.environb", "os.getenv"}
DOORS = {"subprocess": "shell", "rich": "show", "jinja2": "sbatch"}
HEAVY = {"torch", "ray", "megatron", "sglang", "transformers", "pynvml", "submitit"}
IO_MODULES = {"os", "socket", "psutil", "shutil", "tempfile", "subprocess", "fcntl", "resource"}
IO_CALLS = {"open", "read_text", "write_text", "read_bytes", "write_bytes", "mkdir", "unlink"}
IO_CALLS |= {"exists", "is_file", "is_dir", "iterdir", "glob", "rglob", "stat", "resolve"}


def sources(*folders: str) -> list[Path]:
    return sorted(p for f in folders for p in (ROOT / f).rglob("*.py"))


def name_of(path: Path) -> str:
    """`slurmmiles/preflight/host.py` as `preflight.host`."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def ring_of(name: str) -> int | None:
    """Of the module, or of the package that holds it."""
    return RING_OF.get(name, RING_OF.get(name.partition(".")[0]))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(tree: ast.AST, *, top_only: bool = False) -> Iterator[str]:
    """Full dotted names of what is imported; with `top_only` only when the module is loaded."""
    for node in tree.body if top_only and isinstance(tree, ast.Module) else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path, *, top_only: bool = False) -> set[str]:
    """Our modules that `path` imports, by the name that `name_of` gives them."""
    known = {name_of(p) for p in sources("slurmmiles")}
    found = set()
    for dotted in imports(tree_of(path), top_only=top_only):
        head, _, rest = dotted.partition(".")
        if head == "slurmmiles" and rest:
            found |= {n for n in (rest, f"{rest}.__init__") if n in known}
    return found - {name_of(path)}


MODULES = {name_of(path): path for path in sources("slurmmiles")}


def test_every_module_has_a_ring_and_every_ring_a_module() -> None:
    unplaced = [name for name in MODULES if ring_of(name) is None]
    assert unplaced == [], "say in RINGS who may import them"
    packages = {name.rpartition(".")[0] for name in MODULES}
    assert [name for name in RING_OF if name not in MODULES and name not in packages] == []


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_downwards(name: str) -> None:
    ring = ring_of(name)
    assert ring is not None
    upwards = [n for n in own_imports(MODULES[name]) if (ring_of(n) or 0) > ring]
    assert upwards == [], f"{name} (ring {ring})"


def test_no_module_waits_for_itself_to_be_loaded() -> None:
    below = {name: own_imports(path, top_only=True) for name, path in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above, name))
        if name not in done:
            for other in below[name]:
                visit(other, (*above, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


@pytest.mark.parametrize("package", DOORS)
def test_a_foreign_language_has_one_door(package: str) -> None:
    users = [
        n
        for n, p in MODULES.items()
        if package in {i.partition(".")[0] for i in imports(tree_of(p))}
    ]
    assert users == [DOORS[package]]


def test_no_program_is_started_past_the_door() -> None:
    past = re.compile(r"\bos\.(system|popen|exec\w+|spawn\w+|posix_spawn\w*)\(")
    found = [n for n, p in MODULES.items() if past.search(p.read_text()) and n != "shell"]
    assert found == []


def test_the_environment_is_read_where_a_process_begins() -> None:
    readers = set()
    for name, path in MODULES.items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ENVIRONMENT:
                readers.add(name)
        if ENVIRONMENT & set(imports(tree_of(path))):
            readers.add(name)
    assert {n for n in readers if not n.startswith("commands.")} <= ENTRY_POINTS


def test_a_pure_module_does_no_io() -> None:
    for name, path in MODULES.items():
        if ring_of(name) != 0:
            continue
        tree = tree_of(path)
        assert not IO_MODULES & {i.partition(".")[0] for i in imports(tree)}, name
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        called = {f.attr for f in calls if isinstance(f, ast.Attribute)}
        called |= {f.id for f in calls if isinstance(f, ast.Name)}
        assert not IO_CALLS & called, f"{name}: {IO_CALLS & called}"


def test_nothing_heavy_is_loaded_with_a_module() -> None:
    for name, path in MODULES.items():
        loaded = {i.partition(".")[0] for i in imports(tree_of(path), top_only=True)}
        assert not HEAVY & loaded, name


def test_launcher_and_trainer_know_nothing_of_each_other() -> None:
    for folder, other in (("slurmmiles", "trainer"), ("trainer", "slurmmiles")):
        for path in sources(folder):
            assert other not in {i.partition(".")[0] for i in imports(tree_of(path))}, path


def test_only_the_boundaries_catch_everything() -> None:
    broad = set()
    for name, path in MODULES.items():
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            kind = node.type.id if isinstance(node.type, ast.Name) else None
            cleans_up = isinstance(node.body[-1], ast.Raise)
            if (
                node.type is None
                or kind == "Exception"
                or (kind == "BaseException" and not cleans_up)
            ):
                broad.add(name)
    assert broad <= {"agent", "preflight.runner"}
