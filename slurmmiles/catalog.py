"""Which recipes, sites, models and GPUs there are: those that ship, and the user's own.

The user's lie in $XDG_CONFIG_HOME/slurmmiles/{recipes,sites,models,gpus}; they win over shipped
ones of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from ruamel.yaml.comments import CommentedMap

from slurmmiles import yamlfile
from slurmmiles.errors import BadInput, did_you_mean
from slurmmiles.gpus import GpuFacts
from slurmmiles.inherit import load_chain
from slurmmiles.models import ModelFacts
from slurmmiles.openrecipes import VERSION_KEY, OpenRecipe, recipe_of, refuse_changes
from slurmmiles.recipe import Recipe
from slurmmiles.runblock import model_type_of
from slurmmiles.site import Site

Model = TypeVar("Model", bound=BaseModel)


# Where a person gave the name.
WHERE = {"recipes": "RECIPE", "sites": "--site", "models": "model.facts", "gpus": "--gpu"}


TEMPLATES = "sbatch_templates"


def _is_path(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) or "/" in name


def shipped(folder: str) -> Path:
    """A data folder of ours: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for place in (here / folder, here.parent / folder):
        if place.is_dir():
            return place
    raise BadInput(
        f"the folder {folder!r} is missing from this installation", fix="install slurmmiles again"
    )


def user_folder(env: Mapping[str, str]) -> Path:
    """The user's own configuration folder (XDG Base Directory Specification)."""
    base = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME", "/")) / ".config")
    return Path(base) / "slurmmiles"


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An OpenRecipes file and the recipe that it stands for."""

    path: Path
    file: OpenRecipe
    recipe: Recipe


def template_folders(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Where scripts' templates lie: the user's own, which win, and those that ship."""
    return user_folder(env) / TEMPLATES, shipped(TEMPLATES)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Where to look, user's folder first."""

    roots: tuple[Path, ...]

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Catalog:
        return cls((user_folder(env), shipped("configs")))

    def files(self, kind: str) -> dict[str, Path]:
        """Name to file for `kind` ("recipes", "sites", "models", "gpus"), sorted by name."""
        found: dict[str, Path] = {}
        for root in reversed(self.roots):
            found |= {p.stem: p for p in sorted((root / kind).glob("*.yaml"))}
        return dict(sorted(found.items()))

    def find(self, kind: str, name: str) -> Path:
        """The file of `name`, or `name` itself when it is a path; BadInput with did-you-mean."""
        if _is_path(name):
            return Path(name)
        files = self.files(kind)
        if name not in files:
            shown = repr(name if len(name) <= 80 else name[:77] + "...")
            raise BadInput(
                f"unknown {kind[:-1]} {shown}",
                where=WHERE[kind],
                fix=did_you_mean(name[:80], list(files)),
            )
        return files[name]

    def _load(
        self,
        kind: str,
        name: str,
        model: type[Model],
        settings: Sequence[str] = (),
        named: bool = True,
    ) -> Model:
        path = self.find(kind, name)

        def check(base: CommentedMap, file: Path) -> None:
            _default_name(base, file, named)
            yamlfile.validate(base, model, path=file)

        data = load_chain(path, lambda other: self.find(kind, other), check)
        _default_name(data, path, named)
        yamlfile.apply_settings(data, _once(yamlfile.parse_settings(settings)))
        return yamlfile.validate(data, model, path=path, settings=settings)

    def recipe(self, name: str, settings: Sequence[str] = ()) -> Recipe:
        return self._load("recipes", name, Recipe, settings)

    def open_recipe(self, name: str, settings: Sequence[str] = ()) -> OpenFile | None:
        """The OpenRecipes file at `name`, and its recipe; None for a recipe of our own."""
        path = Path(name)
        data = yamlfile.load_mapping(path) if _is_path(name) else {}
        if VERSION_KEY not in data:
            return None
        for key in [key for key, value in data.items() if value is None]:
            data.pop(key)
        file = yamlfile.validate(data, OpenRecipe, path=path)
        named = (file.model.lower(), model_type_of(file.run))
        facts = next((n for n in named if n in self.files("models")), None)
        parsed = _once(yamlfile.parse_settings(settings))
        refuse_changes(dict(parsed))
        recipe = CommentedMap(recipe_of(file, path.stem, facts))
        yamlfile.apply_settings(recipe, parsed)
        return OpenFile(path, file, yamlfile.validate(recipe, Recipe, path=path, settings=settings))

    def site(self, name: str) -> Site:
        return self._load("sites", name, Site).read_from(str(self.find("sites", name)))

    def model(self, name: str) -> ModelFacts:
        return self._load("models", name, ModelFacts)

    def gpu(self, name: str) -> GpuFacts:
        return self._load("gpus", name if _is_path(name) else name.lower(), GpuFacts)


def _once(settings: list[tuple[tuple[str, ...], Any]]) -> list[tuple[tuple[str, ...], Any]]:
    """BadInput for a key that is set to two values: the order of options must not decide."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in settings:
        if key in found and found[key] != value:
            raise BadInput(
                f"{'.'.join(key)} is set twice, to {found[key]!r} and to {value!r}",
                where="--set",
                fix="give it once",
            )
        found[key] = value
    return list(found.items())


def _default_name(data: CommentedMap, path: Path, named: bool) -> None:
    if named and "name" not in data:
        data["name"] = path.stem
