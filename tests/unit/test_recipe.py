from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slurmmiles.catalog import Catalog
from slurmmiles.recipe import MAX_LINE, Recipe
from slurmmiles.site import Site

INJECTIONS = [
    "a b",
    "$(id)",
    "`id`",
    "a;id",
    "a'b",
    'a"b',
    "-rf",
    "../a",
    "a/b",
    ".a",
    "a\nb",
    "a\n",
    "",
    "é",
    "x" * 65,
    "a%j",
]


@pytest.mark.parametrize("name", INJECTIONS)
@pytest.mark.parametrize("model", [Recipe, Site])
def test_a_name_that_a_shell_or_a_path_would_read_otherwise_is_refused(
    model: type[Recipe | Site], name: str
) -> None:
    with pytest.raises(ValidationError, match="a name .* has at most 64 letters"):
        model(name=name)


@pytest.mark.parametrize("name", ["tiny", "a", "A.b_c-9", "9b", "x" * 64])
def test_the_usual_names_are_allowed(name: str) -> None:
    assert Recipe(name=name).name == Site(name=name).name == name


@given(st.text(max_size=20))
def test_a_line_is_one_printable_line(text: str) -> None:
    try:
        line = Recipe(name="r", description=text).description
    except ValidationError:
        assert not text.isprintable()
    else:
        assert line == text and len(line.splitlines()) <= 1


@pytest.mark.parametrize("char", ["\n", "\r", "\x00", "\t", "\x85", "\u2028", "\udcff", "\x1b"])
def test_a_character_that_ends_a_line_somewhere_is_refused(char: str) -> None:
    with pytest.raises(ValidationError):
        Recipe.model_validate({"name": "r", "slurm": {"partition": f"a{char}b"}})


def test_a_line_has_a_bounded_length() -> None:
    assert Recipe(name="r", description="x" * MAX_LINE)
    with pytest.raises(ValidationError, match=f"it has {MAX_LINE + 1} characters"):
        Recipe(name="r", description="x" * (MAX_LINE + 1))


@pytest.mark.parametrize("time", ["04:00:00", "1-00:00:00", "100:00:00", "0-00:00:01"])
def test_a_wall_time_is_slurms_longest_form(time: str) -> None:
    assert Recipe.model_validate({"name": "r", "slurm": {"time": time}}).slurm.time == time


@pytest.mark.parametrize(
    "time",
    [30, 30.0, None, "", "30", "30:00", "1-00", "00:60:00", "00:00:60", "-1:00:00", "٠٤:00:00"]
    + ["04:00:00\n", "9999-00:00:00", "9" * 5000 + "-00:00:00", "00:00:00", "0-00:00:00"],
)
def test_any_other_wall_time_is_refused(time: object) -> None:
    with pytest.raises(ValidationError, match="time limit"):
        Recipe.model_validate({"name": "r", "slurm": {"time": time}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"slurm": {"nodes": "2"}},
        {"slurm": {"nodes": 2.0}},
        {"slurm": {"nodes": True}},
        {"slurm": {"gpus_per_node": 65}},
        {"slurm": {"gpus_per_node": -1}},
        {"parallel": {"tp": 131_073}},
        {"rollout": {"mem_fraction": 1.0}},
        {"rollout": {"mem_fraction": 0.0}},
        {"optimizer": {"lr": float("inf")}},
        {"optimizer": {"lr": float("nan")}},
        {"optimizer": {"cpu_offload": 1.1}},
        {"algorithm": {"kind": "ppo"}},
        {"driver": {"entry": "bash"}},
        {"driver": {"argv": "python x.py"}},
        {"env": {"1A": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"A": None}},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_value_of_a_wrong_type_or_size_is_never_taken(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Recipe.model_validate({"name": "r", **wrong})


def test_a_recipe_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Recipe(name="r").slurm.nodes = 2  # type: ignore[misc]


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a{99999999999}"])
def test_a_host_pattern_that_is_no_regular_expression_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match="this is not a regular expression"):
        Site(name="s", host_pattern=pattern)


def test_every_shipped_file_loads_under_its_own_name(catalog: Catalog) -> None:
    readers = {
        "recipes": catalog.recipe,
        "sites": catalog.site,
        "models": catalog.model,
        "gpus": catalog.gpu,
    }
    for kind, read in readers.items():
        files = catalog.files(kind)
        assert files, kind
        for name in files:
            assert read(name).name.lower() == name, f"{kind}/{name}"


def test_every_shipped_recipe_and_site_describes_itself_in_a_line(catalog: Catalog) -> None:
    for name in catalog.files("recipes"):
        assert 10 < len(catalog.recipe(name).description) <= 80, name
    for name in catalog.files("sites"):
        assert 10 < len(catalog.site(name).description) <= 80, name
