"""The Hugging Face directory that SGLang starts from: config and tokenizer, made here, no weights.

SGLang starts with dummy weights and receives the real ones from Megatron before the first rollout.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from trainer.config import VOCAB_MULTIPLE, Model

PAD, EOS = "<pad>", "<eos>"
PAD_ID, EOS_ID = 0, 1


def vocab_size(alphabet: str) -> int:
    """Two special tokens and one per character, rounded up to VOCAB_MULTIPLE."""
    used = 2 + len(alphabet)
    return -(-used // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


def build_tokenizer(alphabet: str) -> Tokenizer:
    """One token per character of `alphabet`, after <pad> (0) and <eos> (1)."""
    vocab = {PAD: PAD_ID, EOS: EOS_ID} | {char: i for i, char in enumerate(alphabet, start=2)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([PAD, EOS])
    return tokenizer


def hf_config(model: Model, alphabet: str, context_length: int) -> dict[str, object]:
    """The `config.json` of transformers' Qwen3ForCausalLM for `model`, in float32."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "float32",
        "vocab_size": vocab_size(alphabet),
        "hidden_size": model.hidden_size,
        "intermediate_size": model.ffn_hidden_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_query_groups,
        "head_dim": model.kv_channels,
        "rope_theta": model.rope_theta,
        "rms_norm_eps": model.norm_epsilon,
        "tie_word_embeddings": model.tie_word_embeddings,
        "max_position_embeddings": context_length,
        "hidden_act": "silu",
        "attention_bias": False,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
    }


def write_model_dir(path: Path, model: Model, alphabet: str, context_length: int) -> Path:
    """Write config.json, tokenizer.json and tokenizer_config.json into `path`; returns it."""
    path.mkdir(parents=True, exist_ok=True)
    config = hf_config(model, alphabet, context_length)
    (path / "config.json").write_text(json.dumps(config, indent=2))
    build_tokenizer(alphabet).save(str(path / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": context_length,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=2))
    return path
