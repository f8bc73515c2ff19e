"""Run real Megatron ranks in processes of this machine, without Ray and without SGLang."""

from __future__ import annotations

import multiprocessing
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from trainer.config import Config
from trainer.device import CPU
from trainer.model_dir import hf_config
from trainer.tasks import ALPHABET
from trainer.types import Rendezvous, TrainBatch

# Ranks fork from a server that has imported Megatron once: a world is up in a second, not in ten.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["trainer.train_rank", "worlds"])
WORLD_TIMEOUT_S = 120.0

MODEL = {
    "num_layers": 2,
    "hidden_size": 32,
    "ffn_hidden_size": 48,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 16,
}


def make_config(*, ranks: int = 1, **sections: object) -> Config:
    """A valid config of `ranks` ranks on one node, with whole `sections` replaced."""
    values: dict[str, object] = {
        "run_id": "test",
        "metrics": "metrics.jsonl",
        "ranks_per_node": ranks,
        "model": MODEL,
        "checkpoint": {"dir": "checkpoints"},
        "work_dir": "work",
    }
    return Config.model_validate(values | sections)


def run_world(config: Config, body: Callable[..., Any], *args: object) -> list[Any]:
    """`body(rank, *args)` on every built TrainerRank of a real world; results in rank order."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world = config.world_size
    pipes, processes = [], []
    for rank in range(world):
        ours, theirs = CONTEXT.Pipe()
        at = Rendezvous("127.0.0.1", port, rank, world)
        process = CONTEXT.Process(target=_rank, args=(theirs, config, at, body, args))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        return [_result(pipe) for pipe in pipes]
    finally:
        for process in processes:
            process.join(10)
            process.kill()
            process.join()


def _result(pipe: Connection) -> Any:
    if not pipe.poll(WORLD_TIMEOUT_S):
        raise TimeoutError(f"a rank gave no result in {WORLD_TIMEOUT_S:g} s")
    ok, value = pipe.recv()
    assert ok, value
    return value


def _rank(
    pipe: Connection, config: Config, at: Rendezvous, body: Callable[..., Any], args: tuple
) -> None:
    from trainer.train_rank import TrainerRank

    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        rank = TrainerRank(config, CPU, threads=1)
        rank.build(at)
        pipe.send((True, body(rank, *args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
        raise


def reference_model(config: Config, seed: int = 0) -> torch.nn.Module:
    """transformers' Qwen3 of the same shape, every weight random (norms too), in float32."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = hf_config(config.model, ALPHABET, config.rollout.context_length)
    kind = shape.pop("model_type")
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **shape)).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            around = 1.0 if "norm" in name else 0.0
            weight.copy_(around + 0.2 * torch.randn_like(weight))
    return model


def reference_weights(config: Config, seed: int = 0) -> dict[str, torch.Tensor]:
    """Its weights by HF name."""
    return {k: v.detach() for k, v in reference_model(config, seed).named_parameters()}


def reference_logprobs(
    model: torch.nn.Module, batch: TrainBatch, temperature: float = 1.0
) -> torch.Tensor:
    """Log-prob of each token given those before it, [B, T], column 0 zero, by transformers."""
    logits = model(batch.tokens_BT).logits[:, :-1] / temperature
    picked = logits.log_softmax(-1).gather(-1, batch.tokens_BT[:, 1:, None]).squeeze(-1)
    return torch.nn.functional.pad(picked, (1, 0))


def make_batch(samples: int = 8, length: int = 9, seed: int = 0) -> TrainBatch:
    """Random tokens, the last five of each row trained on, the last one padding in odd rows."""
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, 14, (samples, length), generator=draw)
    mask = torch.zeros(samples, length)
    mask[:, 4:] = 1.0
    tokens[1::2, -1], mask[1::2, -1] = 0, 0.0
    unset = torch.zeros(samples, length)
    return TrainBatch(
        tokens_BT=tokens,
        loss_mask_BT=mask,
        advantages_B=torch.randn(samples, generator=draw),
        rollout_logprobs_BT=unset,
        old_logprobs_BT=unset,
        ref_logprobs_BT=unset,
    )
