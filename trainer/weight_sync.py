"""Weights between the halves: gathered over tensor-parallel ranks, renamed to HF, packed flat."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from megatron.core import parallel_state as mpu
from torch import Tensor

from trainer.config import Model
from trainer.megatron import TrainerModel
from trainer.types import FlatWeights
from trainer.weight_names import from_hf, is_gated, to_hf, with_layer_offset


def export_weights(model: TrainerModel, shape: Model) -> FlatWeights | None:
    """This pipeline stage's weights under their HF names, on its first rank; None on the others.

    A collective call of the tensor-parallel groups of data-parallel rank 0; others return at once.
    """
    if mpu.get_data_parallel_rank() != 0:
        return None
    names, params = zip(*_parameters(model), strict=True)
    shards = _gather_shards([param.detach() for param in params])
    if mpu.get_tensor_model_parallel_rank() != 0:
        return None
    offset = _layer_offset(model)
    named: list[tuple[str, Tensor]] = []
    for name, param, pieces in zip(names, params, zip(*shards, strict=True), strict=True):
        if shape.tie_word_embeddings and name == "output_layer.weight":
            continue  # the last stage's copy of the embedding; HF keeps one
        full = _join(name, param, list(pieces))
        named += to_hf(with_layer_offset(name, offset), full, shape)
    return FlatWeights.pack(named)


def import_weights(model: TrainerModel, shape: Model, weights: dict[str, Tensor]) -> None:
    """Overwrite this rank's parameters with its shard of full HF `weights`."""
    offset, rank = _layer_offset(model), mpu.get_tensor_model_parallel_rank()
    if shape.tie_word_embeddings:
        weights = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    for name, param in _parameters(model):
        full = from_hf(with_layer_offset(name, offset), weights, shape)
        param.data.copy_(_shard(name, param, full, rank))
    model.optimizer.reload_model_params()


def _parameters(model: TrainerModel) -> Iterator[tuple[str, Tensor]]:
    yield from model.ddp.module.named_parameters()


def _layer_offset(model: TrainerModel) -> int:
    """How many layers the earlier pipeline stages hold; trainer.config has stages of equal size."""
    per_stage = model.config.num_layers // mpu.get_pipeline_model_parallel_world_size()
    return int(per_stage * mpu.get_pipeline_model_parallel_rank())


def _gather_shards(params: list[Tensor]) -> list[list[Tensor]]:
    """[tensor-parallel rank][parameter], by one all-gather of everything flattened."""
    world = mpu.get_tensor_model_parallel_world_size()
    if world == 1:
        return [params]
    flat = torch.cat([param.reshape(-1) for param in params])
    gathered = [torch.empty_like(flat) for _ in range(world)]
    torch.distributed.all_gather(gathered, flat, group=mpu.get_tensor_model_parallel_group())
    sizes = [param.numel() for param in params]
    return [
        [part.view_as(param) for part, param in zip(torch.split(rank, sizes), params, strict=True)]
        for rank in gathered
    ]


def _split_dim(param: Tensor) -> int | None:
    """The dimension that tensor parallelism splits, None for a replicated parameter."""
    dim: int = getattr(param, "partition_dim", -1)  # Megatron's attribute, -1 where it is not split
    return None if dim < 0 else dim


def _join(name: str, param: Tensor, pieces: list[Tensor]) -> Tensor:
    dim = _split_dim(param)
    if dim is None:
        return pieces[0]
    if is_gated(name):
        gates, ups = zip(*(piece.chunk(2) for piece in pieces), strict=True)
        return torch.cat([*gates, *ups])
    return torch.cat(pieces, dim=dim)


def _shard(name: str, param: Tensor, full: Tensor, rank: int) -> Tensor:
    dim = _split_dim(param)
    if dim is None:
        return full
    world = mpu.get_tensor_model_parallel_world_size()
    if is_gated(name):
        gate, up = (half.chunk(world)[rank] for half in full.chunk(2))
        return torch.cat([gate, up])
    return full.chunk(world, dim=dim)[rank]
