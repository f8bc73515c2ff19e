from __future__ import annotations

import pytest

from slurmmiles.errors import BadInput
from slurmmiles.fabric import SECRET, resolve_env
from slurmmiles.planfile import EnvValue
from slurmmiles.recipe import Recipe
from slurmmiles.site import Site


def table(
    *,
    site: dict[str, str | int | float | bool] | None = None,
    recipe: dict[str, str | int | float | bool] | None = None,
    user: tuple[str, ...] = (),
    device: str = "cpu",
) -> dict[str, EnvValue]:
    return resolve_env(
        Recipe(name="r", env=recipe or {}),
        Site(name="s", env=site or {}),
        device=device,
        user=dict.fromkeys(user, ""),
    )


def test_user_wins_over_recipe_over_site_over_default() -> None:
    name = "RAY_DEDUP_LOGS"
    assert (table()[name].value, table()[name].origin) == ("0", "default")
    by_site = table(site={name: "1"})[name]
    assert (by_site.value, by_site.origin) == ("1", "site s")
    by_recipe = table(site={name: "1"}, recipe={name: "2"})[name]
    assert (by_recipe.value, by_recipe.origin) == ("2", "recipe r")
    by_user = table(site={name: "1"}, recipe={name: "3"}, user=(name,))[name]
    assert (by_user.value, by_user.origin) == ("3", "user")


def test_every_default_says_why() -> None:
    for device in ("cpu", "gpu"):
        for name, entry in table(device=device).items():
            assert entry.why and entry.origin in ("default", "node"), name


def test_what_only_a_node_knows_is_a_placeholder() -> None:
    for entry in table(device="gpu").values():
        assert ("{" in entry.value) == (entry.origin == "node")


def test_nccl_is_set_only_where_there_are_gpus() -> None:
    assert table(device="gpu")["NCCL_SOCKET_IFNAME"].value == "={interface}"
    assert not [name for name in table() if name.startswith(("NCCL", "CUDA"))]


def test_the_table_is_sorted_and_values_are_text() -> None:
    found = table(recipe={"B": True, "A": 1.5, "C": False, "D": 7})
    assert list(found) == sorted(found)
    assert [found[n].value for n in "ABCD"] == ["1.5", "1", "0", "7"]


SECRETS = [
    "WANDB_API_KEY",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "OPENAI_APIKEY",
    "DB_PASSWORD",
    "db_passwd",
    "MY_SECRET",
    "token",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_refused_wherever_it_is_given(name: str) -> None:
    for where, layers in (
        ("site s, env", {"site": {name: "x"}}),
        ("recipe r, env", {"recipe": {name: "x"}}),
        (f"--set env.{name}", {"recipe": {name: "x"}, "user": (name,)}),
    ):
        with pytest.raises(BadInput) as raised:
            table(**layers)  # type: ignore[arg-type]
        assert raised.value.where == where
        assert f"export {name} in the shell that submits" in raised.value.fix
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "NCCL_IB_PKEY",
        "KEYBOARD",
        "MONKEY",
        "HF_TOKEN_PATH",
        "SSL_KEY_FILE",
        "SECRETARY",
    ],
)
def test_a_name_that_only_looks_like_a_secret_is_allowed(name: str) -> None:
    assert not SECRET.search(name)
    assert table(recipe={name: "x"})[name].value == "x"
