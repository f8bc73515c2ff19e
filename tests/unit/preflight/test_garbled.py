"""Text that is cut, garbled or empty: UNKNOWN, never a PASS and never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmmiles.env_launch import judge_extra_env, judge_proxy
from slurmmiles.env_names import judge_gloo, judge_hca_list, judge_ifname
from slurmmiles.env_rules import EnvContext, judge_env
from slurmmiles.name_lists import parse_addresses, select_hcas, select_interfaces
from slurmmiles.preflight.addresses import is_loopback, parse_hosts, parse_ports
from slurmmiles.preflight.ib_counters import judge_counters, parse_counters
from slurmmiles.preflight.limits import size_of
from slurmmiles.preflight.ncclbench import judge_sweep
from slurmmiles.preflight.perftest import BadPerftest, judge_text, parse_json
from slurmmiles.preflight.replay import KNOWN, judge_evidence
from slurmmiles.preflight.text import assignments, plain, table
from slurmmiles.preflight.xid import judge_xids, parse_now
from slurmmiles.report import Report, Verdict
from slurmmiles.sysfs import read_node
from slurmmiles.systree import TextTree
from tests.unit.preflight.made import RECORDED, evidence

FOLDERS = sorted(p.parent for p in RECORDED.glob("*/expected.json"))
WITH_NICS = [f for f in FOLDERS if "NIC0" in evidence(f).get("topo.txt", "")]
CASES = [(f, name) for f in FOLDERS for name in sorted(evidence(f))]
# Without these the rest is judged by itself, and what they held is not missed.
SELF_CONTAINED = ("topo.txt", "gpus.csv", "nvlink-s.txt", "ibstat.txt", "sysfs.txt", "nccl.log")
NOISE = st.text(alphabet="\x00\x1b[4m\n\r\t ,:=<>()%^019aAGIPLNVXUZ'\"./_-²é", max_size=60)


def verdict(files: dict[str, str]) -> Verdict:
    return Report.of(judge_evidence(files)).verdict


@pytest.mark.parametrize("name", sorted(set(KNOWN) - {"now.txt", "proc_net_route.txt"}))
@pytest.mark.parametrize("text", ["", "\n", "  \n\n"])
def test_an_empty_file_is_unknown(name: str, text: str) -> None:
    findings = judge_evidence({name: text})
    assert [(f.code, f.subject) for f in findings] == [("evidence_unreadable", f"file={name}")]


@pytest.mark.parametrize("name", [n for n in KNOWN if n not in ("now.txt", "proc_net_route.txt")])
@pytest.mark.parametrize(
    "text",
    [
        "bash: the program: command not found\n",
        "\x00\x01\x02\xff garbage \x1b[0m\n",
        "<html><body>502 Bad Gateway</body></html>\n",
    ],
)
def test_another_programs_words_are_never_a_pass(name: str, text: str) -> None:
    files = {name: text}
    if name in ("before.txt", "after.txt"):
        files = {"before.txt": text, "after.txt": text}
    assert verdict(files) is Verdict.UNKNOWN


@pytest.mark.parametrize(("folder", "name"), CASES, ids=lambda v: getattr(v, "name", v))
def test_a_file_that_is_cut_anywhere_is_no_pass(folder: Path, name: str) -> None:
    files = evidence(folder)
    text = files[name]
    if name == "now.txt":
        return  # without it every message counts
    for end in range(0, len(text) - 1, max(1, len(text) // 97)):
        left = text[:end]
        if left.endswith("\n"):
            continue  # whole lines: see the next test
        if name in ("job.txt", "instance.txt"):
            continue  # judged by their words: see test_replay_env
        assert verdict({**files, name: left}) is not Verdict.PASS, end


@pytest.mark.parametrize(
    "folder", [f for f in FOLDERS if "NIC0" in evidence(f).get("topo.txt", "")]
)
@pytest.mark.parametrize("name", ["topo.txt", "gpus.csv"])
def test_a_missing_line_of_the_gpus_is_no_pass(folder: Path, name: str) -> None:
    files = evidence(folder)
    lines = files[name].rstrip().splitlines(keepends=True)
    for missing in range(len(lines)):
        if lines[missing].startswith((" ", "\n", "Legend")) and "NIC" not in lines[missing]:
            continue  # the legend's own words
        left = lines[:missing] + lines[missing + 1 :]
        assert verdict({**files, name: "".join(left)}) is not Verdict.PASS, lines[missing]


@pytest.mark.parametrize("name", SELF_CONTAINED)
@given(data=st.data())
def test_garbled_evidence_is_judged_without_a_traceback(name: str, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([f for f in FOLDERS if name in evidence(f)]))
    files = evidence(whole)
    text = files[name]
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 40))
    judge_evidence({**files, name: text[:at] + data.draw(NOISE) + text[at + length :]})


@given(name=st.sampled_from(KNOWN), text=st.one_of(NOISE, st.text(max_size=200)))
def test_any_text_under_any_name_is_judged(name: str, text: str) -> None:
    judge_evidence({name: text, "env.txt": text, "gpus.csv": text, "now.txt": text})


@given(text=st.one_of(NOISE, st.text(max_size=200)))
def test_parsers_take_any_text(text: str) -> None:
    read_node(TextTree.parse(text))
    judge_sweep(text, "f")
    judge_sweep("1048576 262144 float sum -1 " + text, "f")
    judge_text("#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec]\n" + text, 400.0, "mlx5_0")
    judge_xids(text, *parse_now(text))
    judge_xids(f"NVRM: Xid (PCI:0000:1b:00): {text}", None)
    counters, _ = parse_counters(text)
    judge_counters(counters, counters)
    for parse in (parse_hosts, parse_ports, parse_addresses, assignments, table, size_of, plain):
        parse(text)
    is_loopback(text)


@given(text=st.one_of(NOISE, st.recursive(st.none() | st.floats() | st.text(), st.lists)))
def test_perftests_json_is_whole_or_refused(text: object) -> None:
    with pytest.raises(BadPerftest):
        parse_json(str(text), report_gbits=True)


@given(value=NOISE, names=st.lists(st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_10", "eth0", "lo"])))
def test_any_value_of_a_list_selects_some_of_the_names(value: str, names: list[str]) -> None:
    assert set(select_hcas(value, names)) <= set(names)
    assert set(select_interfaces(value, names)) <= set(names)
    judge_hca_list(value, names)
    judge_ifname(value, names)
    judge_gloo(value)


@given(
    env=st.dictionaries(
        st.sampled_from(
            ["NCCL_NET_PLUGIN", "NCCL_PROTO", "http_proxy", "no_proxy", "PYTORCH_ALLOC_CONF"]
        ),
        NOISE,
    )
)
def test_any_environment_is_judged(env: dict[str, str]) -> None:
    judge_env(env, EnvContext(fabric="slingshot", gpu="NVIDIA GH200", plugins=frozenset({"a"})))
    judge_extra_env(env)
    judge_proxy(env, ["n1", "10.0.0.1"])


@given(text=NOISE)
def test_what_the_launcher_keeps_is_told_for_any_text(text: str) -> None:
    findings = judge_extra_env({"A": "1"}, text)
    assert len(findings) <= 1
