"""The laws of the house that one file alone shows: sizes, promises, words, what ships."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import slurmmiles
from slurmmiles import yamlfile
from slurmmiles.catalog import shipped

ROOT = Path(slurmmiles.__file__).resolve().parents[1]


def sources(*folders: str) -> list[Path]:
    return sorted(p for f in folders for p in (ROOT / f).rglob("*.py"))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def short(path: Path) -> str:
    return "/".join(path.parts[-2:])


@pytest.mark.parametrize("path", sources("slurmmiles", "trainer", "tests", "benchmarks"), ids=short)
def test_a_file_has_at_most_250_lines_and_a_function_60(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 250
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 60, node.name


@pytest.mark.parametrize("path", sources("slurmmiles"), ids=short)
def test_every_public_function_and_class_states_its_promise(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree), "the module"
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name


TEMPLATES = sorted(shipped("sbatch_templates").glob("*"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_holds_no_logic(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 60
    bash = "\n".join(line for line in lines if not line.lstrip().startswith(("# ", "{%")))
    words = re.findall(
        r"\b(?:pkill|killall|sleep|while|until|for|if|case|function)\b|<<|\(\)", bash
    )
    assert words == []


@pytest.mark.parametrize("path", sorted(shipped("configs").rglob("*.yaml")), ids=short)
def test_every_shipped_yaml_is_a_mapping(path: Path) -> None:
    assert yamlfile.load_mapping(path)


def test_no_file_names_the_place_where_it_was_written() -> None:
    places = [f"{place}/" for place in (ROOT, Path(sys.prefix).resolve()) if len(place.parts) > 2]
    kinds = ("*.py", "*.md", "*.yaml", "*.toml", "*.j2", "*.txt", "*.sbatch")
    folders = (
        "slurmmiles",
        "trainer",
        "configs",
        "sbatch_templates",
        "tests",
        "docs",
        "benchmarks",
    )
    files = [p for kind in kinds for folder in folders for p in (ROOT / folder).rglob(kind)]
    for path in [*files, *ROOT.glob("*.md"), *ROOT.glob("*.toml")]:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert not [place for place in places if place in text], path
