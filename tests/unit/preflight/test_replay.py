"""Folders of recorded evidence: the verdict, the codes, the culprits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmmiles.preflight.replay import judge_evidence
from slurmmiles.report import Verdict
from tests.unit.preflight.made import RECORDED, evidence, judged

FOLDERS = sorted(p.parent for p in RECORDED.glob("*/expected.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_a_recorded_folder_has_its_verdict_and_exactly_its_codes(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    verdict, codes, _ = judged(evidence(folder))
    assert (verdict, codes) == (expected["verdict"], set(expected["codes"]))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_every_finding_says_what_and_what_to_do(folder: Path) -> None:
    for finding in judge_evidence(evidence(folder)):
        assert finding.subject and finding.message and "\n" not in finding.message
        assert finding.remedy or finding.verdict is Verdict.PASS
        assert finding.code.endswith("_info") is (finding.verdict is Verdict.PASS)


def test_the_culprits_are_named() -> None:
    named = {p.name: judged(evidence(p))[2] for p in FOLDERS}
    assert named["h200-gpu5-lost-two-links"] == {"gpu=5"}
    assert named["h100-without-nvlink"] == {"node"}
    assert named["ib-port-waits-for-subnet-manager"] == {"nic=mlx5_1"}
    assert named["slingshot-with-a-plugin-that-is-not-there"] == {
        "var=NCCL_NET_PLUGIN",
        "slurm=--network",
    }
    assert named["h200-two-links-inactive"] == {"gpu=1,link=4", "gpu=1,link=5"}
    assert named["one-node-fell-back-to-tcp"] == {"node=n02"}
