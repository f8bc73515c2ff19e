"""trainer.json: what is refused is refused by the key's name, before anything heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.config import load_config
from trainer.errors import ConfigError

GOOD: dict[str, Any] = {
    "run_id": "r1",
    "metrics": "/tmp/metrics.jsonl",
    "model": {
        "num_layers": 4,
        "hidden_size": 64,
        "ffn_hidden_size": 128,
        "num_attention_heads": 4,
        "num_query_groups": 2,
        "kv_channels": 16,
    },
    "checkpoint": {"dir": "/tmp/checkpoints"},
    "work_dir": "/tmp/w",
}


def write(path: Path, **changes: object) -> Path:
    """GOOD with `changes`: `a__b` is key b of section a, a value of None removes the key."""
    values = json.loads(json.dumps(GOOD))
    for dotted, value in changes.items():
        *sections, key = dotted.split("__")
        section = values
        for name in sections:
            section = section.setdefault(name, {})
        if value is None:
            del section[key]
        else:
            section[key] = value
    file = path / "trainer.json"
    file.write_text(json.dumps(values))
    return file


def test_a_file_with_only_the_required_keys_is_one_node_with_dp2(tmp_path: Path) -> None:
    config = load_config(write(tmp_path))
    assert (config.world_size, config.dp, config.rollout.engines) == (2, 2, 1)
    assert config.checkpoint.dir == Path("/tmp/checkpoints")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"modle": 1}, "trainer.json: modle: unknown key"),
        ({"model__num_layer": 2}, "trainer.json: model.num_layer: unknown key"),
        ({"model__hidden_size": None}, "trainer.json: model.hidden_size: Field required"),
        ({"nodes": "2"}, "trainer.json: nodes: Input should be a valid integer"),
        ({"nodes": 0}, "trainer.json: nodes: Input should be greater than or equal to 1"),
        ({"nodes": True}, "trainer.json: nodes: Input should be a valid integer"),
        ({"device": "tpu"}, "trainer.json: device: Input should be 'cpu' or 'cuda'"),
        ({"data__task": "chess"}, "trainer.json: data.task: Input should be 'copy'"),
        ({"parallel__cp": 2}, "trainer.json: parallel.cp: Input should be 1"),
        ({"checkpoint__resume": "yes"}, "trainer.json: checkpoint.resume: Input should be 'auto'"),
        ({"rollout__n_samples_per_prompt": 1}, "trainer.json: rollout.n_samples_per_prompt: "),
        ({"parallel__tp": 4}, "trainer.json: parallel.tp: nodes x ranks_per_node = 2 is not"),
        (
            {"parallel__tp": 4, "ranks_per_node": 4},
            "parallel.tp: model.num_query_groups = 2 is not",
        ),
        (
            {"parallel__pp": 3, "ranks_per_node": 3},
            "parallel.pp: model.num_layers = 4 is not a multiple of pp = 3",
        ),
        ({"rollout__engines": 2}, "trainer.json: rollout.engines: is 2, but nodes x"),
        ({"rollout__max_response_len": 600}, "trainer.json: rollout.max_response_len: "),
        (
            {"rollout__rollout_batch_size": 3, "rollout__n_samples_per_prompt": 3},
            "rollout.rollout_batch_size: samples of a step = 9 is not a multiple of dp x",
        ),
        ({"algorithm__sft_steps": 1, "algorithm__sft_batch_size": 3}, "algorithm.sft_batch_size: "),
        ({"optimizer__lr": -1e-3}, "trainer.json: optimizer.lr: Input should be greater than 0"),
        ({"optimizer__clip_grad": 0.0}, "trainer.json: optimizer.clip_grad: "),
        ({"algorithm__micro_batch_size": 7}, "trainer.json: algorithm.micro_batch_size: "),
        ({"model__num_query_groups": 3}, "trainer.json: model: Value error, num_attention_heads"),
    ],
)
def test_a_wrong_key_is_refused_by_its_name(
    changes: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(write(tmp_path, **changes))
    assert sentence in str(refused.value)
    assert refused.value.exit_code == 2


def test_every_wrong_key_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(write(tmp_path, nodes="two", seed=-1))
    assert [line.split(": ")[1] for line in str(refused.value).splitlines()] == ["seed", "nodes"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"run_id": NaN}'])
def test_a_file_that_is_not_a_json_object_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "trainer.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"trainer\.json: "):
        load_config(file)


def test_a_missing_file_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json: cannot be read: No such file"):
        load_config(tmp_path / "nowhere.json")


def test_a_value_cannot_be_changed_afterwards(tmp_path: Path) -> None:
    config = load_config(write(tmp_path))
    with pytest.raises(ValueError, match="frozen"):
        config.rollout.temperature = 2.0


def driver(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainer", *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_driver_ends_with_2_and_one_sentence_for_a_bad_file(tmp_path: Path) -> None:
    ended = driver("--config", str(write(tmp_path, model__num_layers="four")))
    assert ended.returncode == 2
    assert ended.stderr == (
        "error: trainer.json: model.num_layers: Input should be a valid integer\n"
    )


def test_reading_a_config_imports_neither_torch_nor_ray() -> None:
    code = "import sys, trainer.config; print({'torch', 'ray', 'sglang'} & {*sys.modules})"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout == "set()\n", ended.stderr
