"""Reading a run block: flags, exports, the variables that it needs, and commands of a cluster."""

from __future__ import annotations

import pytest

from slurmmiles.runblock import (
    cluster_commands,
    exports_of,
    flags_of,
    logical_lines,
    model_type_of,
    substituted,
    undefined_variables,
    without_lines,
)


def test_continued_lines_are_one_and_keep_their_numbers() -> None:
    assert list(logical_lines("a \\\n b\nc\n")) == [(1, 2, "a  b"), (3, 3, "c")]
    assert list(logical_lines("a \\\nb \\")) == [(1, 2, "a b ")]


def test_flags_are_those_of_the_line_that_has_most() -> None:
    text = "pip install --upgrade x\npython3 train.py --lr 1e-5 --bf16 --x=3 --tuple a b\n"
    assert flags_of(text) == {"--lr": "1e-5", "--bf16": True, "--x": "3", "--tuple": ("a", "b")}


def test_an_array_of_flags_is_no_value_of_the_flag_before_it() -> None:
    assert flags_of('python t.py --n 8 "${ARGS[@]}" --hf "$HF"') == {"--n": "8", "--hf": "$HF"}


def test_a_block_without_flags_has_none() -> None:
    assert flags_of("") == {} and flags_of("echo hello") == {}


def test_exports_are_read_without_their_quotes() -> None:
    text = "export A=1 B='two words'\nexport C=\"$D/x\"\nE=5\nexport F\n"
    assert exports_of(text) == {"A": "1", "B": "two words", "C": "$D/x"}


def test_the_model_type_is_the_argument_of_miles_own_tool() -> None:
    assert model_type_of('X="$(python3 m/model_args_utils.py inkling-small)"') == "inkling-small"
    assert model_type_of("python3 train.py") is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("echo $A ${B} ${C[@]} ${#D} ${E:?msg}", ("A", "B", "C", "D", "E")),
        ("echo ${A:-x} ${B-x} ${C:=x} ${D:+x}", ()),
        ("A=1; echo $A", ()),
        ("echo $A\nA=1", ("A",)),
        ("A=$A/x", ("A",)),
        ("export A=1\necho $A", ()),
        ("read -ra A <<< x\necho ${A[@]}", ()),
        ("for A in 1 2; do echo $A; done", ()),
        ("mapfile -t A < f\necho $A", ()),
        ("echo '$A' \\$B # $C", ()),
        ("echo \"it's $A\"", ("A",)),
        ("echo \"# $A\"", ("A",)),
        ("echo a#$A", ("A",)),
        ("echo $? $1 $@ $$ $(date) $((1+1)) $HOME $PATH", ()),
        ("echo $A $A", ("A",)),
        ("--flag A=1 $A", ()),
        ("", ()),
    ],
)  # fmt: skip
def test_the_variables_that_a_block_needs(text: str, names: tuple[str, ...]) -> None:
    assert undefined_variables(text) == names


@pytest.mark.parametrize(
    ("line", "alone"),
    [
        ("ray stop --force", True),
        ("ray stop --force; sleep 3; ray start --head --port 6379", True),
        ("pkill -9 sglang || true", True),
        ("ray start --head && python3 train.py --lr 1", False),
        ("cd x; pkill -9 python", False),
    ],
)
def test_commands_that_start_or_end_a_cluster_are_found(line: str, alone: bool) -> None:
    assert list(cluster_commands(f"echo\n{line}\n")) == [(2, 2, line, alone)]


@pytest.mark.parametrize(
    "line",
    ["python train.py --note 'ray start'", "# ray stop", "echo array startup", "xray start"],
)
def test_words_that_only_look_like_them_are_left_alone(line: str) -> None:
    assert list(cluster_commands(line)) == []


def test_a_line_left_out_stays_as_a_line_that_does_nothing() -> None:
    found = without_lines("a\nray start \\\n  --head\nb\n", [(2, 3)])
    assert found.splitlines() == [
        "a",
        ": # left out by slurmmiles: ray start",
        ": # left out by slurmmiles: --head",
        "b",
    ]


def test_known_variables_are_filled_in_and_others_stay() -> None:
    assert substituted("$A/x ${A}y $B $AB", {"A": "1"}) == "1/x 1y $B $AB"
