from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmmiles.errors import BadInput
from slurmmiles.recipe import Recipe
from slurmmiles.yamlfile import (
    MAX_BYTES,
    apply_settings,
    env_names,
    load_mapping,
    parse_settings,
    validate,
)


def read(folder: Path, content: str | bytes, *settings: str) -> Recipe:
    """`content` as the file r.yaml of a recipe called r."""
    path = folder / "r.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    data = load_mapping(path)
    data.setdefault("name", "r")
    apply_settings(data, parse_settings(settings))
    return validate(data, Recipe, path=path, settings=settings)


def refusal(folder: Path, content: str | bytes, *settings: str) -> str:
    with pytest.raises(BadInput) as raised:
        read(folder, content, *settings)
    return str(raised.value).replace(f"{folder}/", "")


def test_yaml_means_what_a_person_means(tmp_path: Path) -> None:
    text = "slurm: {time: 12:30:00, partition: no}\noptimizer: {lr: 1e-6}\nenv: {A: yes, B: 0o17}\n"
    r = read(tmp_path, text)
    assert (r.slurm.time, r.slurm.partition, r.optimizer.lr) == ("12:30:00", "no", 1e-6)
    assert r.env == {"A": "yes", "B": 15}


def test_an_empty_file_has_every_default(tmp_path: Path) -> None:
    assert read(tmp_path, "") == read(tmp_path, "# nothing\n") == Recipe(name="r")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("slrum:\n  nodes: 1\n", "r.yaml:1: unknown key 'slrum'; did you mean 'slurm'?"),
        ("slurm:\n\n  node: 1\n", "r.yaml:3: unknown key 'slurm.node'; did you mean 'nodes'?"),
        (
            "slurm:\n  nodes: '2'\n",
            "r.yaml:2: slurm.nodes = '2': input should be a valid integer; write it without quotes",
        ),
        (
            "slurm:\n  time: 30\n",
            "r.yaml:2: slurm.time = 30: a time limit is written [DAYS-]HOURS:MINUTES:SECONDS,"
            " like 04:00:00; change this value",
        ),
        ("slurm:\n  time: 30:00\n", "r.yaml:2: slurm.time = '30:00': a time limit is written"),
        ("slurm:\n  time: 00:00:00\n", "to Slurm a time limit of zero is no limit"),
        ("slurm:\n  nodes: 0\n", "r.yaml:2: slurm.nodes = 0: input should be greater than or"),
        ("slurm:\n  nodes: 2.0\n", "slurm.nodes = 2.0: input should be a valid integer"),
        ("slurm:\n  nodes: true\n", "slurm.nodes = True: input should be a valid integer"),
        ("slurm:\n", "r.yaml:1: slurm = None: input should be `key: value` lines"),
        ("slurm: 3\n", "r.yaml:1: slurm = 3: input should be `key: value` lines"),
        ("optimizer:\n  lr: .inf\n", "r.yaml:2: optimizer.lr = inf: input should be a finite"),
        ("optimizer:\n  lr: .nan\n", "r.yaml:2: optimizer.lr = nan: input should be"),
        ("resume: never\n", "r.yaml:1: resume = 'never': input should be 'auto' or 'off'"),
        ("env:\n  A: [1]\n", "r.yaml:2: env.A = [1]: input should be a valid string, or a valid"),
        ("env:\n  A-B: 1\n", "r.yaml:2: the name 'env.A-B': a variable's name has letters"),
        ('env:\n  A: "a\\nb"\n', "r.yaml:2: env.A = 'a\\nb': control characters are not allowed"),
        ("flags:\n  --a: {b: 1}\n", "r.yaml:2: flags.--a = {'b': 1}: input should be a valid"),
        ("name: a b\n", "r.yaml:1: name = 'a b': a name (the key `name`"),
        ("slurm:\n  nodes: 1\n  nodes: 2\n", 'r.yaml:3: this is not YAML: found duplicate key "no'),
        ("slurm:\n\tnodes: 1\n", "r.yaml:2: this is not YAML: found character '\\t'"),
        ("a: 1\n---\nb: 2\n", "r.yaml:2: this is not YAML: but found another document"),
        ("{a: {b}: c}\n", "r.yaml:1: this is not YAML"),
        ("a: \0\n", "this is not YAML: unacceptable character #x0000"),
        ("description: 2001-99-01\n", "this is not YAML: month must be in 1..12"),
        ("a: " + "9" * 5000, "this is not YAML: Exceeds the limit"),
        ("- a\n", "r.yaml:1: the file's top level must be `key: value` lines"),
        ("tiny", "r.yaml:1: the file's top level must be `key: value` lines"),
        (b"\xff\xfe", "r.yaml: cannot read this file: it is not UTF-8 text; check the path"),
        ("#" * (MAX_BYTES + 1), f"r.yaml: this file has more than {MAX_BYTES} bytes"),
        ("env: &a\n  X: *a\n", "r.yaml:2: env.X = None"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_its_line(
    tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    said = refusal(tmp_path, content)
    assert sentence in said
    assert "\n" not in said
    assert len(said) < 400


def test_every_wrong_setting_is_named_at_once(tmp_path: Path) -> None:
    said = refusal(tmp_path, "slurm:\n  nodes: '2'\n  time: 30\nmodle: {}\n")
    assert said.startswith("r.yaml: 3 settings are wrong:\n")
    assert {line.split(":")[1] for line in said.splitlines()[1:]} == {"2", "3", "4"}


def test_aliases_cannot_fill_the_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "its aliases (*name) stand for too many values" in refusal(tmp_path, "\n".join(lines))


def test_anchors_and_merges_work_and_say_nothing(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    text = "slurm: &x {nodes: 2}\nparallel: &x {tp: 2}\nrollout:\n  <<: *x\n"
    assert "rollout.tp" in refusal(tmp_path, text)
    assert read(tmp_path, "slurm:\n  <<: {nodes: 3}\n").slurm.nodes == 3
    assert not recwarn.list


@pytest.mark.parametrize("name", ["missing", "folder", "x" * 300])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match="cannot read this file: [A-Z]") as raised:
        load_mapping(tmp_path / name)
    assert raised.value.where == str(tmp_path / name)


@given(st.binary(max_size=200) | st.text("ab:-[]{}&*!|>%@`\"'#,?\n \t<", max_size=80))
def test_random_text_is_a_mapping_or_bad_input(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | str
) -> None:
    try:
        read(tmp_path_factory.getbasetemp(), content)
    except BadInput as error:
        assert error.where


def test_settings_are_read_as_yaml_reads_them() -> None:
    given_settings = ["a.b=1e-3", "c=no", "d=", "e=[1, x]", "f.g.h=a=b", "t=04:00:00"]
    assert parse_settings(given_settings) == [
        (("a", "b"), 0.001),
        (("c",), "no"),
        (("d",), ""),
        (("e",), [1, "x"]),
        (("f", "g", "h"), "a=b"),
        (("t",), "04:00:00"),
    ]


@pytest.mark.parametrize("setting", ["", "a", "=1", ".a=1", "a..b=1", "a.=1"])
def test_a_malformed_setting_is_refused(setting: str) -> None:
    with pytest.raises(BadInput, match=r"is not of the form a\.b=value"):
        parse_settings([setting])


def test_a_value_that_is_not_yaml_is_refused_without_repeating_it() -> None:
    with pytest.raises(BadInput) as raised:
        parse_settings(["env.A=[hunter2"])
    assert str(raised.value) == "--set: the value of 'env.A' is not YAML; quote the value"


def test_a_setting_makes_its_section_and_wins(tmp_path: Path) -> None:
    text = "slurm: {nodes: 1}\n"
    r = read(tmp_path, text, "slurm.nodes=3", "parallel.tp=2", "env.A=x")
    assert (r.slurm.nodes, r.parallel.tp, r.env) == (3, 2, {"A": "x"})


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("slrum.nodes=1", "--set slrum: unknown key 'slrum'; did you mean 'slurm'?"),
        ("slurm.nodse=1", "--set slurm.nodse: unknown key 'slurm.nodse'; did you mean 'nodes'?"),
        ("slurm.nodes=two", "--set slurm.nodes: slurm.nodes = 'two': input should be a valid int"),
        ("slurm.nodes=", "--set slurm.nodes: slurm.nodes = '': input should be a valid integer;"),
        ("slurm=3", "--set slurm: slurm = 3: input should be `key: value` lines"),
        ("name.x=1", "--set name.x: 'name' is a value, not a section"),
        ("slurm.time=90", "--set slurm.time: slurm.time = 90: a time limit is written"),
        ("parallel.tp=9999999", "--set parallel.tp: parallel.tp = 9999999: input should be less"),
    ],
)
def test_a_wrong_setting_is_named_as_the_flag_that_it_is(
    tmp_path: Path, setting: str, sentence: str
) -> None:
    assert sentence in refusal(tmp_path, "slurm: {nodes: 1}\n", setting)


def test_the_variables_that_a_user_sets_are_known() -> None:
    assert env_names(["env.A=1", "slurm.nodes=1", "env={B: 1, C: 2}", " env.D=1", "env=x"]) == [
        "A",
        "B",
        "C",
        "D",
    ]
