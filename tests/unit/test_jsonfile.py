from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from slurmmiles.errors import BadInput
from slurmmiles.jsonfile import (
    read_json,
    read_lines,
    read_model,
    to_json,
    write_json,
    write_text,
)


class Small(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int
    share: float = 0.0


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write_json(path, {"a": 1})
    old = path.open(encoding="utf-8")
    write_json(path, {"a": 2})
    with old:
        assert json.load(old) == {"a": 1}  # an open reader still has the old file
    assert read_json(path) == {"a": 2}
    assert os.listdir(tmp_path) == ["f.json"]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_has_its_mode_from_the_start(tmp_path: Path, mode: int) -> None:
    write_text(tmp_path / "t", "secret", mode=mode)
    assert (tmp_path / "t").stat().st_mode & 0o777 == mode


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\udcff")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_text(tmp_path / "folder", "new")
    with pytest.raises(OSError):
        write_text(tmp_path / "missing" / "f", "new")
    assert path.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["f", "folder"]


def test_numbers_that_json_does_not_have_become_null() -> None:
    value = {"a": math.nan, "b": [math.inf, (1.5, -math.inf)], "c": Path("/x")}
    assert json.loads(to_json(value)) == {"a": None, "b": [None, [1.5, None]], "c": "/x"}
    assert json.loads(to_json(Small(count=1, share=math.nan))) == {"count": 1, "share": None}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(anything)
def test_whatever_is_written_is_json(value: object) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(to_json(value), parse_constant=refuse)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"nul"])
def test_a_file_that_is_not_json_yet_reads_as_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    assert read_json(path) is None
    assert read_json(tmp_path / "missing") is None
    assert read_json(tmp_path) is None


def test_lines_are_read_up_to_the_one_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    assert read_lines(path) == []
    lines = [b'{"step": 1}', b"", b"[1]", b"\xff", b"[" * 100_000, b'{"step": 2}', b'{"st']
    path.write_bytes(b"\n".join(lines))
    assert read_lines(path) == [{"step": 1}, {"step": 2}]


def test_a_model_is_read_or_its_first_fault_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_json(path, Small(count=3))
    assert read_model(path, Small) == Small(count=3)
    path.write_text('{"count": 1, "more": 2}')
    with pytest.raises(BadInput, match=r"not what this version of slurmmiles writes \(more: Extra"):
        read_model(path, Small)
    for content in (b"\xff\xfe", b"", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="not what this version of slurmmiles writes"):
            read_model(path, Small)
    with pytest.raises(BadInput, match="cannot read this file: No such file"):
        read_model(tmp_path / "missing", Small)
