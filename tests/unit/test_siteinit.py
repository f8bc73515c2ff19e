from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.partitions import Association, Partition, parse_sacctmgr, parse_sinfo
from slurmmiles.report import Verdict
from slurmmiles.site import Site
from slurmmiles.sitecheck import judge_site
from slurmmiles.siteinit import Seen, propose, write_site
from tests.conftest import Cli

SINFO = """\
main*|up|gpu:h100:8(S:0-1)|192|2063000+|32
cpu|up|(null)|128|515000|100
debug|down|gpu:8|8|1|1
old|up|gpu:tesla:4,nvme:1|64|256000|2
a line of another form
"""
GPUS = Catalog((shipped("configs"),)).files("gpus")
GENERIC = Site(name="generic")


def test_sinfo_is_read_as_partitions_of_nodes() -> None:
    main, cpu, old = parse_sinfo(SINFO)
    assert main == Partition("main", True, 8, "h100", 192, 2063000, 32)
    assert (cpu.name, cpu.gpus, cpu.is_default) == ("cpu", 0, False)
    assert (old.name, old.gpus, old.gpu_type) == ("old", 4, "tesla")
    assert parse_sinfo("") == []


def test_sacctmgr_is_read_as_accounts_each_once() -> None:
    text = "lab|normal,high\nlab|normal\nother|\n\n"
    assert parse_sacctmgr(text) == [
        Association("lab", ("normal", "high")),
        Association("other", ()),
    ]


def seen(**changes: Any) -> Seen:
    facts: dict[str, Any] = {
        "cluster": "alpha",
        "partitions": tuple(parse_sinfo(SINFO)),
        "accounts": (Association("lab", ()),),
        "runtime": "pyxis",
    }
    return Seen(**{**facts, **changes})


def test_a_file_holds_what_the_machine_shows() -> None:
    assert propose(seen(), base=Site(name="generic-ib"), gpus=GPUS) == {
        "extends": "generic-ib",
        "cluster_name": "alpha",
        "account": "lab",
        "gpus_per_node": 8,
        "gpu": "h100",
        "cpus_per_node": 192,
        "host_memory_gb": 2163.2,
        "container": {"runtime": "pyxis"},
    }


def test_what_is_not_clear_is_asked_for() -> None:
    several = seen(accounts=(Association("a", ()), Association("b", ())))
    assert propose(several, base=GENERIC, gpus=GPUS)["ask"] == ["account"]

    def answer(key: str, choices: Sequence[str]) -> str:
        return choices[-1]

    found = propose(several, base=GENERIC, gpus=GPUS, ask=answer)
    assert found["account"] == "b" and "ask" not in found


def test_a_machine_that_shows_nothing_leaves_what_the_base_asks_for() -> None:
    base = Site(name="perlmutter", ask=["account"])
    assert propose(Seen(), base=base, gpus=GPUS) == {"extends": "perlmutter", "ask": ["account"]}
    assert propose(Seen(), base=GENERIC, gpus=GPUS) == {}


def test_the_written_file_is_a_site_and_is_not_replaced_unasked(cli: Cli, home: Path) -> None:
    path = home / ".config" / "slurmmiles" / "sites" / "mine.yaml"
    answer = cli("sites", "init", "mine", "--extends", "clariden")
    assert answer.returncode == 0 and str(path) in answer.stdout
    assert "extends: clariden" in path.read_text() and "account" in path.read_text()
    again = cli("sites", "init", "mine")
    assert again.returncode == 2 and "is there already" in again.stderr
    assert cli("sites", "init", "mine", "--force").returncode == 0
    assert "mine" in cli("sites").stdout


@pytest.mark.parametrize("name", ["../x", "a b", ""])
def test_a_name_that_is_no_file_name_is_refused(cli: Cli, home: Path, name: str) -> None:
    answer = cli("sites", "init", name or "-", "--extends", "generic")
    assert answer.returncode == 2 and not (home / ".config").exists()


def test_printing_writes_nothing(cli: Cli, home: Path) -> None:
    assert cli("sites", "init", "x", "--stdout").stdout.startswith("# Written by")
    assert not (home / ".config").exists()


def test_a_written_site_can_be_loaded(tmp_path: Path) -> None:
    catalog = Catalog((tmp_path, shipped("configs")))
    text = "extends: generic-ib\naccount: lab\n"
    path = write_site(catalog, "mine", text, force=False)
    assert catalog.site("mine").account == "lab" and path.parent == tmp_path / "sites"


def verdicts(site: dict[str, Any], machine: Seen) -> dict[str, Verdict]:
    return {f.code: f.verdict for f in judge_site(Site(name="s", **site), machine)}


def test_doctor_finds_what_does_not_fit_the_machine() -> None:
    wrong = verdicts(
        {"partition": "gpu", "account": "x", "container": {"runtime": "podman"}}, seen()
    )
    assert wrong["site_partition"] is Verdict.FAIL and wrong["site_account"] is Verdict.FAIL
    assert wrong["site_container"] is Verdict.WARN
    right = verdicts({"partition": "main", "account": "lab", "gpus_per_node": 8}, seen())
    assert set(right.values()) == {Verdict.PASS}
    assert verdicts({"partition": "old", "gpus_per_node": 8}, seen())["site_gpus"] is Verdict.FAIL
    assert verdicts({"cluster_name": "beta"}, seen())["site_cluster"] is Verdict.FAIL


def test_doctor_names_what_each_submission_must_say() -> None:
    assert verdicts({"ask": ["account", "gpu"]}, Seen())["site_asks"] is Verdict.WARN
    assert "site_asks" not in verdicts({"ask": ["account"], "account": "lab"}, Seen())


def test_what_the_machine_does_not_show_is_not_judged() -> None:
    found = verdicts({"partition": "gpu", "account": "x", "gpus_per_node": 8}, Seen())
    assert set(found) == {"site"}
