"""Build the Megatron half: process groups, the GPT model in Megatron's DDP, its optimizer."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from megatron.core import parallel_state as mpu
from megatron.core import tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer import TransformerConfig

from trainer.config import Config, Model, Parallel
from trainer.device import Device
from trainer.model_dir import vocab_size
from trainer.tasks import ALPHABET
from trainer.types import Rendezvous

COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class TrainerModel:
    """The DDP-wrapped model of this rank and the optimizer of its shard."""

    ddp: DistributedDataParallel
    optimizer: MegatronOptimizer
    config: TransformerConfig


def join_world(at: Rendezvous, parallel: Parallel, device: Device, seed: int) -> None:
    """Join torch.distributed, make Megatron's groups (rank order tp-cp-ep-dp-pp), seed the rank."""
    torch.distributed.init_process_group(
        backend=device.collectives,
        init_method=f"tcp://{at.host}:{at.port}",
        rank=at.rank,
        world_size=at.world_size,
        timeout=COLLECTIVE_TIMEOUT,
    )
    mpu.initialize_model_parallel(
        tensor_model_parallel_size=parallel.tp, pipeline_model_parallel_size=parallel.pp
    )
    # Stages hold different layers, so each draws from its own stream; tensor-parallel ranks draw
    # the same full matrix and keep their slice (use_cpu_initialization).
    torch.manual_seed(seed + 100 * mpu.get_pipeline_model_parallel_rank())
    tensor_parallel.model_parallel_cuda_manual_seed(seed, inference_rng_tracker=True)


def transformer_config(model: Model, parallel: Parallel, device: Device) -> TransformerConfig:
    """Megatron's config of a Qwen3-style dense decoder; fusions that need CUDA kernels are off."""
    return TransformerConfig(
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        ffn_hidden_size=model.ffn_hidden_size,
        num_attention_heads=model.num_attention_heads,
        num_query_groups=model.num_query_groups,
        kv_channels=model.kv_channels,
        normalization="RMSNorm",
        layernorm_epsilon=model.norm_epsilon,
        qk_layernorm=True,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        init_method_std=model.init_method_std,
        tensor_model_parallel_size=parallel.tp,
        pipeline_model_parallel_size=parallel.pp,
        params_dtype=device.dtype,
        pipeline_dtype=device.dtype,
        calculate_per_token_loss=True,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
    )


def build(config: Config, device: Device) -> TrainerModel:
    """The model of this rank, randomly initialised, with its optimizer; call after `join_world`."""
    model = config.model
    transformer = transformer_config(model, config.parallel, device)
    gpt = GPTModel(
        config=transformer,
        transformer_layer_spec=get_gpt_layer_local_spec(qk_layernorm=True, normalization="RMSNorm"),
        vocab_size=vocab_size(ALPHABET),
        max_sequence_length=config.rollout.context_length,
        pre_process=mpu.is_pipeline_first_stage(),
        post_process=mpu.is_pipeline_last_stage(),
        position_embedding_type="rope",
        rotary_base=model.rope_theta,
        share_embeddings_and_output_weights=model.tie_word_embeddings,
    )
    ddp = DistributedDataParallel(
        config=transformer,
        ddp_config=DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, use_distributed_optimizer=True
        ),
        module=gpt,
    )
    ddp.broadcast_params()
    optimizer = get_megatron_optimizer(_optimizer_config(config), [ddp])
    transformer.finalize_model_grads_func = finalize_model_grads
    transformer.grad_scale_func = optimizer.scale_loss
    return TrainerModel(ddp, optimizer, transformer)


def _optimizer_config(config: Config) -> OptimizerConfig:
    opt = config.optimizer
    return OptimizerConfig(
        optimizer="adam",
        lr=opt.lr,
        weight_decay=opt.weight_decay,
        adam_beta1=opt.adam_beta1,
        adam_beta2=opt.adam_beta2,
        clip_grad=opt.clip_grad,
        params_dtype=torch.float32,
        use_distributed_optimizer=True,
    )
