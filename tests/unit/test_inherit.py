"""`extends:` in recipe and site files: sections merge, names do not, and no chain goes round."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    (tmp_path / "recipes").mkdir()
    return Catalog((tmp_path, shipped("configs")))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_recipe_takes_what_it_does_not_say_from_the_one_it_extends(
    tmp_path: Path, catalog: Catalog
) -> None:
    path = write(tmp_path, "mine.yaml", "extends: tiny\noptimizer:\n  lr: 0.5\n")
    mine, base = catalog.recipe(str(path)), catalog.recipe("tiny")
    assert mine.optimizer.lr == 0.5
    assert mine.optimizer.weight_decay == base.optimizer.weight_decay
    assert mine.rollout == base.rollout and mine.description == base.description
    assert mine.name == "mine"


def test_null_and_lists_replace_what_is_extended(tmp_path: Path, catalog: Catalog) -> None:
    text = "extends: tiny\ncheckpoint: {interval: null}\ndata: {options: {digits: 5}}\n"
    mine = catalog.recipe(str(write(tmp_path, "mine.yaml", text)))
    assert mine.checkpoint.interval is None
    assert mine.data.options == {"digits": 5} and mine.data.task == "copy"


def test_a_chain_of_three_and_paths_from_the_files_own_folder(
    tmp_path: Path, catalog: Catalog
) -> None:
    (tmp_path / "base").mkdir()
    write(tmp_path / "base", "a.yaml", "extends: tiny\noptimizer: {lr: 0.5, weight_decay: 0.3}\n")
    write(tmp_path, "b.yaml", "extends: base/a.yaml\noptimizer: {lr: 0.25}\n")
    mine = catalog.recipe(str(write(tmp_path, "c.yaml", "extends: ./b.yaml\n")))
    assert (mine.optimizer.lr, mine.optimizer.weight_decay) == (0.25, 0.3)
    assert mine.model.facts == "tiny"


def test_settings_of_the_command_line_come_last(tmp_path: Path, catalog: Catalog) -> None:
    path = write(tmp_path, "mine.yaml", "extends: tiny\noptimizer: {lr: 0.5}\n")
    assert catalog.recipe(str(path), ["optimizer.lr=0.75"]).optimizer.lr == 0.75


def test_the_slice_is_the_full_recipe_with_its_own_layout(catalog: Catalog) -> None:
    full, part = catalog.recipe("nemotron-ultra"), catalog.recipe("nemotron-ultra-4layer")
    assert part.flags == full.flags and part.algorithm == full.algorithm
    assert (part.parallel.tp, part.parallel.ep, part.slurm.nodes) == (1, 8, 1)
    assert part.slurm.exclusive == full.slurm.exclusive


@pytest.mark.parametrize("name", ["self.yaml", "./self.yaml", "../{folder}/self.yaml"])
def test_a_recipe_that_extends_itself_is_refused_with_file_and_line(
    tmp_path: Path, catalog: Catalog, name: str
) -> None:
    text = f"description: x\nextends: {name.format(folder=tmp_path.name)}\n"
    path = write(tmp_path, "self.yaml", text)
    with pytest.raises(BadInput) as caught:
        catalog.recipe(str(path))
    assert caught.value.where == f"{path}:2"
    assert "extends itself" in caught.value.what


def test_a_recipe_of_the_users_that_extends_its_own_name_is_refused(
    tmp_path: Path, catalog: Catalog
) -> None:
    path = write(tmp_path / "recipes", "loop.yaml", "extends: loop\n")
    with pytest.raises(BadInput) as caught:
        catalog.recipe("loop")
    assert caught.value.where == f"{path}:1"


def test_a_round_of_three_names_the_whole_chain(tmp_path: Path, catalog: Catalog) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        write(tmp_path, f"{name}.yaml", f"extends: {other}.yaml\n")
    with pytest.raises(BadInput) as caught:
        catalog.recipe(str(tmp_path / "a.yaml"))
    chain = " -> ".join(str(tmp_path / f"{n}.yaml") for n in "abca")
    assert chain in caught.value.what and caught.value.where == f"{tmp_path / 'c.yaml'}:1"


@pytest.mark.parametrize("value", ["[a, b]", "5", "null", "''", "{a: b}"])
def test_extends_is_one_name(tmp_path: Path, catalog: Catalog, value: str) -> None:
    path = write(tmp_path, "mine.yaml", f"\nextends: {value}\n")
    with pytest.raises(BadInput) as caught:
        catalog.recipe(str(path))
    assert caught.value.where == f"{path}:2"


def test_an_unknown_name_has_the_line_and_a_suggestion(tmp_path: Path, catalog: Catalog) -> None:
    path = write(tmp_path, "mine.yaml", "extends: tinny\n")
    with pytest.raises(BadInput) as caught:
        catalog.recipe(str(path))
    assert caught.value.where == f"{path}:1" and caught.value.fix == "did you mean 'tiny'?"


def test_an_error_of_the_extended_file_names_that_file_and_its_line(
    tmp_path: Path, catalog: Catalog
) -> None:
    base = write(tmp_path, "base.yaml", "extends: tiny\noptimizer:\n  lr: fast\n")
    path = write(tmp_path, "mine.yaml", "extends: base.yaml\n")
    with pytest.raises(BadInput) as caught:
        catalog.recipe(str(path))
    assert caught.value.where == f"{base}:3"


def test_a_section_in_place_of_a_value_is_an_error_of_this_file(
    tmp_path: Path, catalog: Catalog
) -> None:
    path = write(tmp_path, "mine.yaml", "extends: tiny\nresume: {a: 1}\n")
    with pytest.raises(BadInput) as caught:
        catalog.recipe(str(path))
    assert caught.value.where == f"{path}:2"


def test_a_site_may_extend_a_site(tmp_path: Path, catalog: Catalog) -> None:
    path = write(tmp_path, "mine.yaml", "extends: sandbox\npartition: gpu\n")
    site = catalog.site(str(path))
    assert (site.name, site.partition, site.exclusive) == ("mine", "gpu", False)


def test_a_setting_that_is_given_two_values_is_refused(catalog: Catalog) -> None:
    with pytest.raises(BadInput, match=r"optimizer.lr is set twice, to 0.1 and to 0.2"):
        catalog.recipe("tiny", ["optimizer.lr=0.1", "optimizer.lr=0.2"])
    assert catalog.recipe("tiny", ["optimizer.lr=0.1", "optimizer.lr=0.1"]).optimizer.lr == 0.1
