from __future__ import annotations

import socket
from pathlib import Path

import pytest

from slurmmiles.catalog import Catalog, shipped, user_folder
from slurmmiles.errors import BadInput
from slurmmiles.sitefind import choose_site, detect


def write(root: Path, kind: str, name: str, text: str) -> Path:
    (root / kind).mkdir(parents=True, exist_ok=True)
    path = root / kind / f"{name}.yaml"
    path.write_text(text)
    return path


def both(root: Path) -> Catalog:
    return Catalog((root, shipped("configs")))


def test_the_users_folder_follows_xdg() -> None:
    assert user_folder({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}) == Path("/c/slurmmiles")
    assert user_folder({"XDG_CONFIG_HOME": "", "HOME": "/h"}) == Path("/h/.config/slurmmiles")
    assert user_folder({}) == Path("/.config/slurmmiles")


def test_the_users_own_files_are_added_and_win(tmp_path: Path) -> None:
    write(tmp_path, "recipes", "mine", "description: mine\n")
    write(tmp_path, "recipes", "tiny", "description: another tiny\n")
    catalog = both(tmp_path)
    assert {"mine", "tiny", "gate-check"} <= set(catalog.files("recipes"))
    assert catalog.recipe("tiny").description == "another tiny"
    assert catalog.recipe("mine").name == "mine"


def test_a_users_folder_that_is_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "missing"):
        assert "tiny" in both(root).files("recipes")


def test_a_path_is_a_recipe_too_and_its_name_is_the_files(tmp_path: Path) -> None:
    path = write(tmp_path, "x", "my-run", "slurm: {nodes: 2}\n")
    catalog = Catalog((shipped("configs"),))
    assert catalog.recipe(str(path)).name == "my-run"
    path.write_text("name: other\n")
    assert catalog.recipe(str(path)).name == "other"


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("recipe", "tinny", "RECIPE: unknown recipe 'tinny'; did you mean 'tiny'?"),
        ("recipe", "zzz", "RECIPE: unknown recipe 'zzz'; known: gate-check, "),
        ("site", "laptp", "--site: unknown site 'laptp'; did you mean 'laptop'?"),
        ("model", "qwen3", "model.facts: unknown model 'qwen3'; did you mean 'qwen3-0.6b'?"),
        ("gpu", "H20", "--gpu: unknown gpu 'h20'; did you mean 'h200'?"),
        ("recipe", "", "RECIPE: unknown recipe ''; known: "),
        ("recipe", "x" * 1000, f"RECIPE: unknown recipe '{'x' * 77}...'; known: "),
    ],
    ids=lambda text: text[:20],
)
def test_an_unknown_name_is_answered_with_the_closest(
    catalog: Catalog, kind: str, name: str, sentence: str
) -> None:
    with pytest.raises(BadInput) as raised:
        getattr(catalog, kind)(name)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize("name", ["no.yaml", "./no", "a/b.yml", "/dev/null/x", "x" * 300 + "/y"])
def test_a_path_that_cannot_be_read_is_named(catalog: Catalog, name: str) -> None:
    with pytest.raises(BadInput, match="cannot read this file") as raised:
        catalog.recipe(name)
    assert raised.value.where == str(Path(name))


def test_a_gpu_is_found_in_any_case(catalog: Catalog) -> None:
    assert catalog.gpu("H200") == catalog.gpu("h200")


def test_a_gpus_file_keeps_the_case_of_its_path(tmp_path: Path, catalog: Catalog) -> None:
    text = (shipped("configs") / "gpus" / "h200.yaml").read_text()
    path = write(tmp_path, "GPUs", "Mine", text)
    assert catalog.gpu(str(path)).name == "H200"


def test_a_setting_is_applied_over_the_file(catalog: Catalog) -> None:
    changed = catalog.recipe("tiny", ["slurm.nodes=2", "env.FOO=bar"])
    assert (changed.slurm.nodes, changed.env["FOO"]) == (2, "bar")


def test_a_site_is_found_by_the_host_name(tmp_path: Path) -> None:
    write(tmp_path, "sites", "here", f"host_pattern: ^{socket.getfqdn()}$\n")
    write(tmp_path, "sites", "elsewhere", "host_pattern: no-such-host-name\n")
    name, why = detect(both(tmp_path))
    assert name == "here" and socket.getfqdn() in why
    assert choose_site(both(tmp_path), None).name == "here"
    assert choose_site(both(tmp_path), "generic").name == "generic"
    assert choose_site(both(tmp_path), None, local=True).name == "laptop"


def test_without_a_match_the_site_is_generic(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    name, why = detect(catalog)
    assert name == "generic" and "no sbatch on PATH" in why


def test_a_folder_that_does_not_ship_is_a_broken_installation() -> None:
    with pytest.raises(BadInput, match="'nonsense' is missing from this installation"):
        shipped("nonsense")
