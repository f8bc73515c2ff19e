from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmmiles.errors import BadInput
from slurmmiles.hostlist import MAX_HOSTS, counts, expand, fold

# The forms of scontrol(1) "hostnames" and slurm.conf(5) "NodeName", and what Slurm makes of them.
EXPRESSIONS = {
    "n001": "n001",
    "n[001-003,007]": "n001 n002 n003 n007",
    "n[8-11]": "n8 n9 n10 n11",
    "gpu-[08-11]": "gpu-08 gpu-09 gpu-10 gpu-11",
    "n[098-101]": "n098 n099 n100 n101",
    "a1,b[2-3],c": "a1 b2 b3 c",
    "rack[1-2]-n[01-02]": "rack1-n01 rack1-n02 rack2-n01 rack2-n02",
    "n3,n1,n2": "n3 n1 n2",
    "p4-dy-x-[1-2],p4-st-y-1": "p4-dy-x-1 p4-dy-x-2 p4-st-y-1",
}
COUNTS = {
    "8(x16)": [8] * 16,
    "8(x2),4": [8, 8, 4],
    "1": [1],
    "4,8(x2),2": [4, 8, 8, 2],
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_expanded_as_slurm_does(expression: str) -> None:
    assert expand(expression) == tuple(EXPRESSIONS[expression].split())


@pytest.mark.parametrize("expression", COUNTS)
def test_counts_per_node_are_one_number_a_node(expression: str) -> None:
    assert counts(expression) == tuple(COUNTS[expression])


def test_nothing_is_no_node() -> None:
    assert expand("") == expand(" \n") == ()
    assert fold([]) == ""


@pytest.mark.parametrize(
    ("hosts", "folded"),
    [
        ("n1", "n1"),
        ("n1 n2 n3", "n[1-3]"),
        ("n3 n1 n2", "n[3,1-2]"),
        ("n1 n1", "n[1,1]"),
        ("n09 n10", "n[09-10]"),
        ("n9 n10", "n[9-10]"),
        ("n99 n100", "n[99-100]"),
        ("n1 n02", "n[1,02]"),
        ("login n1 n2 login", "login,n[1-2],login"),
        ("r1-n1 r1-n2 r2-n1", "r1-n[1-2],r2-n1"),
    ],
)
def test_names_are_folded_in_their_order(hosts: str, folded: str) -> None:
    assert fold(hosts.split()) == folded
    assert expand(folded) == tuple(hosts.split())


host_names = st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,12}[0-9]{0,4}", fullmatch=True)


@given(st.lists(host_names, max_size=40))
def test_expand_undoes_fold(hosts: list[str]) -> None:
    assert expand(fold(hosts)) == tuple(hosts)


@given(st.integers(0, 5000), st.integers(0, 300), st.integers(1, 6))
def test_a_range_of_any_width_comes_back(first: int, more: int, width: int) -> None:
    hosts = tuple(f"n{i:0{width}d}" for i in range(first, first + more + 1))
    assert expand(fold(hosts)) == hosts
    assert len(fold(hosts)) < 20


@given(st.text(max_size=60) | st.text("an01-9[],()x \n", max_size=60))
def test_any_other_text_is_bad_input(text: str) -> None:
    for read in (expand, counts):
        try:
            read(text)
        except BadInput as error:
            assert "slurm" in str(error).lower()


HUGE = [
    "n[1-99999999]",
    "n[0-65536]",
    "a[1-9][1-9][1-9][1-9][1-9][1-9]",
    "n[" + "9" * 5000 + "]",
    "n[1-" + "9" * 5000 + "]",
    "n[" + "0" * 100_000 + "1-65000]",
    "n[" + "1-65000," * 10_000 + "1]",
    "n" * 300_000 + "[1-65000]",
    "n[1-60000]," * 10_000 + "n1",
    "[" * 100_000,
    "n[" + "1," * 200_000,
    "n[١-٣]",
    "n[²]",
    "n[1-3",
    "n1-3]",
    "n[[1-3]]",
    "n[]",
    "n[3-1]",
    "n[-1]",
    "n[1-2-3]",
    "a,,b",
    "a b",
    "a;b",
    "$(id)",
    "ñ1",
]


@pytest.mark.parametrize("expression", HUGE, ids=lambda text: text[:20])
def test_an_expression_that_slurm_refuses_costs_nothing(expression: str) -> None:
    tracemalloc.start()
    with pytest.raises(BadInput) as raised:
        expand(expression)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000_000
    assert len(str(raised.value)) < 300


def test_slurms_largest_expression_is_expanded() -> None:
    assert len(expand(f"n[1-{MAX_HOSTS}]")) == MAX_HOSTS


@pytest.mark.parametrize(
    "text", ["", "8x2", "8(x)", "8(2)", "-1", "8 (x2)", "²", "9" * 5000, "8(x65536)," * 100 + "1"]
)
def test_counts_that_slurm_never_writes_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="counts per node"):
        counts(text)
