"""The script of every shipped recipe on every shipped site, compared with the one that was read.

A change here is a change of what Slurm is asked for. Read it, and write it with
`pytest tests/golden --update-golden`.
"""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from slurmmiles import shell
from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput
from slurmmiles.plan import Request, make_plan
from slurmmiles.planfile import Plan
from slurmmiles.sbatch import decode_plan
from slurmmiles.submit import rendered

SCRIPTS = Path(__file__).parent / "scripts"
CATALOG = Catalog((shipped("configs"),))
PAIRS = [(r, s) for r in CATALOG.files("recipes") for s in CATALOG.files("sites")]
INLINE_PLAN = re.compile(r"SLURMMILES_PLAN=([A-Za-z0-9+/=]+)")


@cache
def planned(recipe: str, site: str) -> Plan:
    r = CATALOG.recipe(recipe)
    plan = make_plan(
        r,
        CATALOG.site(site),
        Request(),
        model=CATALOG.model(r.model.facts) if r.model.facts else None,
        gpu=CATALOG.gpu("h200"),
    )
    return plan.model_copy(update={"python": "/opt/venv/bin/python"})  # not this machine's


@cache
def script(recipe: str, site: str) -> str:
    """The script, or the sentence with which the pair is refused."""
    try:
        plan = planned(recipe, site)
    except BadInput as error:
        return f"Error: {error}\n"
    return rendered(plan, shipped("sbatch_templates"), Path("/shared/runs"))


@pytest.mark.parametrize(("recipe", "site"), PAIRS)
def test_the_script_is_the_golden_one(recipe: str, site: str, pytestconfig: pytest.Config) -> None:
    # How the plan is packed depends on the machine's zlib; that it is the plan is tested below.
    text = INLINE_PLAN.sub("SLURMMILES_PLAN=(the plan)", script(recipe, site))
    path = SCRIPTS / site / f"{recipe}.sbatch"
    if pytestconfig.getoption("update_golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), "this pair is new: read its script and write it with --update-golden"
    assert text == path.read_text()


def test_there_is_no_golden_script_of_a_pair_that_does_not_ship() -> None:
    expected = {f"{site}/{recipe}.sbatch" for recipe, site in PAIRS}
    assert {str(path.relative_to(SCRIPTS)) for path in SCRIPTS.glob("*/*")} <= expected


@pytest.mark.parametrize(("recipe", "site"), PAIRS)
def test_the_script_carries_its_plan(recipe: str, site: str) -> None:
    found = INLINE_PLAN.search(script(recipe, site))
    if found is None:
        assert script(recipe, site).startswith("Error: ")
    else:
        assert decode_plan(found[1]) == planned(recipe, site)


def written(folder: Path) -> list[str]:
    """Every script as a file, and their paths."""
    paths = []
    for recipe, site in PAIRS:
        if (text := script(recipe, site)).startswith("#!"):
            path = folder / f"{recipe}--{site}"
            path.write_text(text)
            paths.append(str(path))
    assert paths
    return paths


def test_bash_reads_every_script(tmp_path: Path) -> None:
    check = 'for path; do bash -n "$path"; done'
    assert shell.run(["bash", "-c", check, "-", *written(tmp_path)]).stderr == ""


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    said = shell.run(["shellcheck", *written(tmp_path)])
    assert said.stdout + said.stderr == ""
