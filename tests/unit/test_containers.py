from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput
from slurmmiles.plan import Request, make_plan
from slurmmiles.planfile import Plan
from slurmmiles.sbatch import ENDING
from slurmmiles.site import Site
from slurmmiles.submit import rendered

TEMPLATES = shipped("sbatch_templates")
CATALOG = Catalog((shipped("configs"),))
HOSTILE = "/a b'c\"d;e$(touch pwned)`x`&|<>*?\\ #!"


def planned(site: dict[str, Any], *settings: str, gpus: int = 8) -> Plan:
    return make_plan(
        CATALOG.recipe("gate-check", settings),
        Site.model_validate({"name": "s", **site}),
        Request(gpus_per_node=gpus, nodes=2),
        gpu=CATALOG.gpu("h200"),
    )


def words(site: dict[str, Any], *settings: str, gpus: int = 8) -> list[str]:
    """The words of the step, from srun on."""
    text = rendered(planned(site, *settings, gpus=gpus), TEMPLATES, Path("/shared/runs"))
    (line,) = re.findall(r"^exec (.*)$", text, re.M)
    return shlex.split(line)


def test_pyxis_gets_image_mounts_directory_and_name_as_srun_options() -> None:
    box = {"runtime": "pyxis", "image": "img.sqsh", "mounts": ["/data", "/a:/b:ro"]}
    found = words({"container": {**box, "workdir": "/w", "name": "rl", "options": ["--x=1"]}})
    assert found[0] == "srun"
    assert "--container-image=img.sqsh" in found
    assert "--container-mounts=/data:/data,/a:/b:ro,/shared/runs:/shared/runs" in found
    assert "--container-workdir=/w" in found and "--container-name=rl" in found
    assert found[found.index("--x=1") + 1] == "python3"


def test_apptainer_is_the_command_of_the_step() -> None:
    box = {"runtime": "apptainer", "image": "/i/img.sif", "mounts": ["/data"], "workdir": "/w"}
    found = words({"container": box})
    start = found.index("apptainer")
    assert found[start : start + 3] == ["apptainer", "exec", "--nv"]
    assert found[start + 3 : start + 7] == [
        "--bind=/data:/data",
        "--bind=/shared/runs:/shared/runs",
        "--pwd=/w",
        "/i/img.sif",
    ]
    assert "--nv" not in words({"container": box}, gpus=0)


def test_podman_shares_the_hosts_network_memory_and_cgroup() -> None:
    box = {"runtime": "podman", "image": "img"}
    found = words({"container": box, "fabric": "infiniband"})
    start = found.index("podman")
    assert found[start : start + 2] == ["podman", "run"]
    for option in ("--rm", "--network=host", "--ipc=host", "--env-host", "--cgroups=disabled"):
        assert option in found
    assert "--device=nvidia.com/gpu=all" in found and "--device=/dev/infiniband" in found
    assert found[found.index("img") + 1] == "python3"
    on_cpus = words({"container": box, "fabric": "infiniband"}, gpus=0)
    assert not [word for word in on_cpus if word.startswith("--device")]


def test_an_edf_is_named_and_says_its_mounts_itself() -> None:
    found = words({"container": {"runtime": "environment-edf", "image": "rl"}})
    assert "--environment=rl" in found
    for key, value in (("mounts", ["/data"]), ("workdir", "/w")):
        with pytest.raises(BadInput, match=f"container.{key} cannot be given"):
            planned({"container": {"runtime": "environment-edf", "image": "rl", key: value}})


def test_a_container_without_an_image_is_not_used() -> None:
    plan = planned({"container": {"runtime": "pyxis"}})
    assert plan.slurm.container is None and plan.slurm.template == "base"


def test_the_recipes_image_wins_and_needs_a_runtime() -> None:
    box = {"container": {"runtime": "pyxis", "image": "site.sqsh"}}
    assert "--container-image=mine.sqsh" in words(box, "slurm.image=mine.sqsh")
    with pytest.raises(BadInput, match="names no container runtime"):
        planned({}, "slurm.image=mine.sqsh")


def test_only_pyxis_keeps_a_container_by_name() -> None:
    for runtime in ("apptainer", "podman", "environment-edf"):
        with pytest.raises(BadInput, match="no container that stays"):
            planned({"container": {"runtime": runtime, "image": "i", "name": "rl"}})


def test_the_python_of_the_step_is_the_containers_the_sites_or_the_venvs() -> None:
    box = {"runtime": "pyxis", "image": "i", "python": "/opt/py"}
    assert planned({"container": box, "python": "/site/py"}).python == "/opt/py"
    assert planned({"python": "/site/py", "venv": "/v"}).python == "/site/py"
    assert planned({"venv": "/v"}).python == "/v/bin/python"
    assert planned({}).python == ""


def test_a_venv_is_activated_before_the_step() -> None:
    text = rendered(planned({"venv": "/a b/venv"}), TEMPLATES, Path("/r"))
    lines = text.splitlines()
    assert lines.index("source '/a b/venv'/bin/activate") < next(
        i for i, line in enumerate(lines) if line.startswith("exec srun")
    )


@pytest.mark.parametrize("runtime", ["pyxis", "apptainer", "podman", "environment-edf"])
def test_a_hostile_value_stays_one_word(runtime: str) -> None:
    box: dict[str, Any] = {"runtime": runtime, "image": HOSTILE, "options": [f"--o={HOSTILE}"]}
    found = words({"container": box})
    assert f"--o={HOSTILE}" in found
    assert [word for word in found if word.endswith(HOSTILE)]


def test_a_template_of_the_users_own_wins_and_may_extend_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / f"pyxis{ENDING}").write_text(
        '{% extends "base.sbatch.j2" %}\n'
        "{% block launch %}srun --my-own {{ srun_args }} {{ command }}{% endblock %}\n"
    )
    plan = planned({"container": {"runtime": "pyxis", "image": "i"}})
    text = rendered(plan, [tmp_path, TEMPLATES], Path("/r"))
    assert "exec srun --my-own --ntasks-per-node=1" in text and "#SBATCH --nodes=2" in text


def test_a_template_that_is_not_there_or_wrong_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no template 'pyxs.sbatch.j2'") as raised:
        rendered(planned({"template": "pyxs"}), [tmp_path, TEMPLATES], Path("/r"))
    assert "did you mean 'pyxis'?" in raised.value.fix
    for text, words_ in (
        ("{% if %}", "the template is wrong"),
        ("{{ nonsense }}", "'nonsense' is undefined"),
    ):
        (tmp_path / f"mine{ENDING}").write_text(text)
        with pytest.raises(BadInput, match=words_):
            rendered(planned({"template": "mine"}), [tmp_path, TEMPLATES], Path("/r"))


def test_a_shipped_template_is_short_and_holds_no_logic() -> None:
    files = sorted(TEMPLATES.glob(f"*{ENDING}"))
    assert {f.name.removesuffix(ENDING) for f in files} >= {
        *("base", "pyxis", "apptainer", "podman", "environment-edf", "venv"),
    }
    for file in files:
        text = file.read_text()
        assert len(text.splitlines()) <= 60
        assert "{% if" not in text
        if file.name != f"base{ENDING}":
            assert text.startswith('{% extends "base.sbatch.j2" %}\n')
            assert text.count("{% block") == 1 and "{% for" not in text
