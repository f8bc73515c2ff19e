"""The directory that SGLang starts from is one that transformers reads the same way."""

from __future__ import annotations

from pathlib import Path

from needs import needs

needs("transformers")

from worlds import make_config  # noqa: E402

from trainer.model_dir import (  # noqa: E402
    EOS_ID,
    PAD_ID,
    build_tokenizer,
    vocab_size,
    write_model_dir,
)
from trainer.tasks import ALPHABET  # noqa: E402


def test_transformers_reads_the_tokenizer_and_the_shape(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    model = make_config().model
    write_model_dir(tmp_path / "new" / "dir", model, ALPHABET, 512)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new" / "dir")
    text = "12+90="
    assert tokenizer.encode(text) == [3, 4, 12, 11, 2, 13]
    assert build_tokenizer(ALPHABET).encode(text).ids == [3, 4, 12, 11, 2, 13]
    assert tokenizer.decode([3, 4, 12]) == "12+"
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (EOS_ID, PAD_ID)
    shape = AutoConfig.from_pretrained(tmp_path / "new" / "dir")
    assert shape.head_dim == model.kv_channels
    assert shape.num_key_value_heads == model.num_query_groups
    assert shape.vocab_size == vocab_size(ALPHABET) == 16


def test_the_vocabulary_is_rounded_up_so_that_tensor_parallel_ranks_can_split_it() -> None:
    assert [vocab_size("x" * n) for n in (1, 14, 15, 30, 31)] == [16, 16, 32, 32, 48]
