"""The script of one recipe through each template, compared with the one that was read.

Change one knowingly with `pytest tests/golden --update-golden`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from slurmmiles import shell
from slurmmiles.catalog import Catalog, shipped
from slurmmiles.plan import Request, make_plan
from slurmmiles.site import Site
from slurmmiles.submit import rendered

SCRIPTS = Path(__file__).parent / "templates"
CATALOG = Catalog((shipped("configs"),))
INLINE_PLAN = re.compile(r"SLURMMILES_PLAN=[A-Za-z0-9+/=]+")
# Template: the site that it is tried on, and what that site's user adds.
SITES: dict[str, tuple[str, dict[str, Any]]] = {
    "base": ("vista", {"python": "/work/me/venv/bin/python"}),
    "venv": ("perlmutter", {"account": "m1_g", "venv": "/global/common/me/venv"}),
    "pyxis": (
        "aws-parallelcluster",
        {
            "partition": "compute-gpu",
            "container": {
                "runtime": "pyxis",
                "image": "/fsx/images/miles.sqsh",
                "mounts": ["/fsx", "/scratch"],
                "workdir": "/fsx/me",
                "name": "miles",
            },
        },
    ),
    "apptainer": (
        "deltaai",
        {
            "account": "abcd-dtai-gh",
            "container": {
                "runtime": "apptainer",
                "image": "/projects/abcd/miles.sif",
                "mounts": ["/projects/abcd", "/work/nvme/abcd:/scratch"],
            },
        },
    ),
    "podman": (
        "generic-ib",
        {
            "container": {
                "runtime": "podman",
                "image": "localhost/miles:latest",
                "mounts": ["/data"],
            }
        },
    ),
    "environment-edf": (
        "clariden",
        {"account": "g1", "container": {"runtime": "environment-edf", "image": "miles"}},
    ),
}


def script(template: str) -> str:
    name, own = SITES[template]
    known = CATALOG.site(name).model_dump()
    site = Site.model_validate({**known, **own})
    plan = make_plan(
        CATALOG.recipe("gate-check"),
        site,
        Request(nodes=4),
        gpu=CATALOG.gpu(site.gpu or "h200"),
    )
    plan = plan.model_copy(update={"python": plan.python or "/opt/venv/bin/python"})
    assert plan.slurm.template == template and plan.missing == ()
    return rendered(plan, shipped("sbatch_templates"), Path("/shared/runs"))


@pytest.mark.parametrize("template", sorted(SITES))
def test_the_script_is_the_golden_one(template: str, pytestconfig: pytest.Config) -> None:
    text = INLINE_PLAN.sub("SLURMMILES_PLAN=(the plan)", script(template))
    path = SCRIPTS / f"{template}.sbatch"
    if pytestconfig.getoption("update_golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} is new: read it and write it with --update-golden"
    assert text == path.read_text()


@pytest.mark.parametrize("template", sorted(SITES))
def test_bash_and_shellcheck_have_nothing_to_say(template: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text(script(template))
    assert shell.run(["bash", "-n", str(path)]).stderr == ""
    if shutil.which("shellcheck"):
        said = shell.run(["shellcheck", str(path)])
        assert said.stdout + said.stderr == ""
