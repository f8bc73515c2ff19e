from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from slurmmiles import sitefind
from slurmmiles.catalog import Catalog, shipped
from slurmmiles.errors import BadInput
from slurmmiles.sitefind import choose_site, cluster_name, detect, fabric_reason
from slurmmiles.systree import TextTree
from tests.conftest import Cli
from tests.unit.fabric_trees import nics_of, slingshot, verbs


def own(home: Path, **files: str) -> Catalog:
    """A user's folder with these sites, over what ships."""
    (home / "sites").mkdir(parents=True)
    for name, text in files.items():
        (home / "sites" / f"{name}.yaml").write_text(text)
    return Catalog((home, shipped("configs")))


def tree(files: dict[str, str]) -> TextTree:
    return TextTree.parse("".join(f"{p} = {c}\n" for p, c in files.items()))


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with an sbatch on it."""
    tool = tmp_path / "bin" / "sbatch"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    return tool


def test_a_name_wins_over_the_variable_and_the_variable_over_what_is_found(tmp_path: Path) -> None:
    catalog = own(tmp_path / "h", mine="description: m\n")
    env = {"SLURMMILES_SITE": "generic-ib"}
    assert choose_site(catalog, "vista", env=env).name == "vista"
    assert choose_site(catalog, None, env=env).name == "generic-ib"
    assert choose_site(catalog, None, env={}).name == "mine"
    assert choose_site(catalog, None, env=env, local=True).name == "laptop"
    with pytest.raises(BadInput, match="unknown site 'nowhere'"):
        choose_site(catalog, None, env={"SLURMMILES_SITE": "nowhere"})


def test_the_only_file_of_the_users_own_is_taken_and_of_two_neither(tmp_path: Path) -> None:
    name, why = detect(own(tmp_path / "one", mine="description: m\n"))
    assert name == "mine" and str(tmp_path / "one" / "sites" / "mine.yaml") in why
    assert detect(own(tmp_path / "two", a="description: a\n", b="description: b\n"))[0] == "generic"


def test_a_file_of_the_users_own_that_extends_a_site_is_found_by_that_sites_pattern(
    tmp_path: Path,
) -> None:
    pattern = f"host_pattern: ^{socket.getfqdn()}$\n"
    catalog = own(tmp_path / "h", base=pattern, zz="extends: base\naccount: lab\n", other="{}\n")
    assert detect(catalog)[0] in ("base", "zz")
    assert detect(own(tmp_path / "i", a="description: a\n", zz=pattern))[0] == "zz"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (verbs(["mlx5_0"]), "generic-ib"),
        (verbs(["mlx5_0"], "Ethernet"), "generic-roce"),
        (slingshot(), "generic-slingshot"),
        (verbs(["rdmap79s0"], "Unspecified", vendor="0x1d0f"), "aws-efa"),
        ({"/sys/class/net/eth0/device/": "x"}, "generic"),
    ],
)
def test_without_a_name_the_network_tells(
    catalog: Catalog, sbatch: Path, files: dict[str, str], expected: str
) -> None:
    name, why = detect(catalog, tree(files))
    assert name == expected and why


def test_the_reason_names_the_ports() -> None:
    assert "mlx5_0 (InfiniBand)" in fabric_reason(nics_of(verbs(["mlx5_0"])))
    assert "no InfiniBand" in fabric_reason(nics_of({}))


def test_the_clusters_name_is_read_from_slurms_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sbatch: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("# ClusterName=old\n clustername = alpha \nSlurmctldHost=x\n")
    monkeypatch.setattr(sitefind, "SLURM_CONF", str(conf))
    assert cluster_name() == "alpha"
    assert detect(own(tmp_path / "h", here="cluster_name: alpha\n", b="{}\n"))[0] == "here"
    conf.unlink()
    assert cluster_name() == ""


def test_sites_detect_says_site_and_fabric_with_reasons(cli: Cli) -> None:
    data = json.loads(cli("sites", "detect", "--json").stdout)
    assert set(data) == {"site", "why", "fabric", "fabric_why"} and all(data.values())
    shown = cli("sites", "detect").stdout.splitlines()
    assert shown[0].startswith(f"{data['site']}: ") and shown[1].startswith("fabric ")


def test_the_variable_reaches_every_command(cli: Cli) -> None:
    env = {"SLURMMILES_SITE": "generic-ib"}
    assert json.loads(cli("plan", "tiny", "--json", env=env).stdout)["site"] == "generic-ib"
    assert os.environ.get("SLURMMILES_SITE") is None


def test_extends_and_sources_are_shown_resolved(cli: Cli) -> None:
    shown: dict[str, Any] = json.loads(cli("sites", "show", "dgx-superpod", "--json").stdout)
    assert shown["fabric"] == "infiniband" and shown["container"]["runtime"] == "pyxis"
