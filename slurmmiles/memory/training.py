"""Bytes of training on one GPU: weights, gradients, optimizer states, activations and logits.

Weights, gradients and states follow Megatron's own estimate (`theoretical_memory_usage`: 18 bytes a
parameter, or 6 + 12 / DP with the distributed optimizer), with experts over EP x ETP and their own
data parallelism. Activations follow Korthikanti et al. 2022, "Reducing Activation Recomputation in
Large Transformer Models", counted from the blocks' shapes with fused attention and sequence
parallelism; a hybrid Mamba model is outside both, so that term is an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurmmiles.models import ModelFacts
from slurmmiles.parameters import embedding_parameters, layers_parameters
from slurmmiles.topology import Topology

Recompute = Literal["full", "selective", "none"]

ADAM_BYTES = 12
"""fp32 master weight and two fp32 moments of one parameter."""
EXPERT_IMBALANCE = 1.5
"""Tokens of the busiest rank over the mean; experts without auxiliary loss drift. An estimate."""
MAMBA_CHUNK = 256
"""Tokens for which Mamba-2's backward pass keeps one fp32 state (mamba-ssm's default chunk)."""


@dataclass(frozen=True, slots=True)
class OptimizerMemory:
    """Where Adam's states live: the share on the host, and whether they are split over replicas.

    `precision_aware` is Megatron's `--use-precision-aware-optimizer`; its moments stay fp32 unless
    other types are named, so it changes no byte here.
    """

    cpu_offload_fraction: float = 0.0
    precision_aware: bool = False
    distributed: bool = True


@dataclass(frozen=True, slots=True)
class StageParameters:
    """Parameters on one GPU of a pipeline stage: routed experts', and all others."""

    expert: float
    dense: float

    @property
    def total(self) -> float:
        return self.expert + self.dense


@dataclass(frozen=True, slots=True)
class TrainingBytes:
    """One GPU of one pipeline stage, in bytes; `states` are all of Adam's, wherever they live."""

    stage: int
    weights: float
    grads: float
    states: float
    activations: float
    logits: float

    def on_device(self, share: float) -> float:
        """All that lives on the GPU when `share` of the states does."""
        return self.weights + self.grads + share * self.states + self.activations + self.logits


def stage_parameters(model: ModelFacts, topology: Topology, stage: int) -> StageParameters:
    """Parameters on one GPU of a stage; the first has the embedding, the last the output layer."""
    held = layers_parameters(model, topology.stages[stage])
    table = embedding_parameters(model)
    first, last = stage == 0, stage == topology.pp - 1
    # A tied output layer on another stage than the embedding is a second copy (Megatron).
    tables = first + (last and not (model.tied_embeddings and first))
    norms = model.hidden_size * (last + (first and model.embedding_norm))
    dense = (held.sharded + tables * table) / topology.tp + held.duplicated + norms
    return StageParameters(expert=held.routed / (topology.ep * topology.etp), dense=dense)


def training_bytes(
    model: ModelFacts,
    topology: Topology,
    stage: int,
    *,
    optimizer: OptimizerMemory,
    recompute: Recompute,
    tokens: int,
    log_probs_chunk: int | None,
    param_bytes: int = 2,
    grad_bytes: int = 4,
) -> TrainingBytes:
    """All of one GPU of `stage` for micro-batches of `tokens` tokens."""
    held = stage_parameters(model, topology, stage)
    split = (topology.edp, topology.dp) if optimizer.distributed else (1, 1)
    return TrainingBytes(
        stage=stage,
        weights=param_bytes * held.total,
        grads=grad_bytes * held.total,
        states=ADAM_BYTES * (held.expert / split[0] + held.dense / split[1]),
        activations=_activation_bytes(model, topology, stage, recompute, tokens),
        logits=_logit_bytes(model, topology, stage, tokens, log_probs_chunk),
    )


def _activation_bytes(
    model: ModelFacts, topology: Topology, stage: int, recompute: Recompute, tokens: int
) -> float:
    """Saved activations of a stage's layers, for the micro-batches that 1F1B keeps in flight."""
    local = tokens / topology.tp
    layers = [model.layers[i] for i in topology.stages[stage]]
    whole = [sum(_block_bytes(model, block) for block in blocks) * local for blocks in layers]
    in_flight = topology.pp - stage
    if recompute == "full":
        return in_flight * len(layers) * 2 * model.hidden_size * local + max(whole)
    return in_flight * sum(whole)


def _block_bytes(model: ModelFacts, block: str) -> float:
    """Bytes that one token of a block keeps for the backward pass, bf16, before division by tp."""
    hidden = model.hidden_size
    norm_and_input = 4 * hidden
    if block == "*" and model.attention:
        a = model.attention
        return norm_and_input + 2 * a.kv_channels * 2 * (a.num_attention_heads + a.num_query_groups)
    if block == "M" and model.mamba:
        m = model.mamba
        inner = m.num_heads * m.head_dim
        channels = inner + 2 * m.num_groups * m.state_dim
        states = 4 * inner * m.state_dim / MAMBA_CHUNK
        return (
            norm_and_input
            + 2 * (inner + channels + m.num_heads)
            + 2 * channels
            + 4 * inner
            + states
        )
    if block == "E" and model.moe:
        moe = model.moe
        width = moe.latent_size or hidden
        routed = 2 * (2 * width + _inner_values(model) * moe.ffn_hidden_size)
        shared = 2 * moe.shared_experts * _inner_values(model) * moe.shared_ffn_hidden_size
        router = 3 * 4 * moe.num_experts
        latent = 4 * moe.latent_size if moe.latent_size else 0
        spread = EXPERT_IMBALANCE * moe.router_topk * routed
        return norm_and_input + spread + shared + router + latent
    return norm_and_input + 2 * _inner_values(model) * (model.ffn_hidden_size or 0)


def _inner_values(model: ModelFacts) -> int:
    """Values kept per unit of an MLP's width: gate, up and product, or up and activation."""
    return 3 if model.gated else 2


def _logit_bytes(
    model: ModelFacts, topology: Topology, stage: int, tokens: int, chunk: int | None
) -> float:
    """bf16 logits and their gradient, and fp32 copies of the tokens worked on at once."""
    if stage != topology.pp - 1:
        return 0.0
    shard = model.vocab_size / topology.tp
    at_once = min(chunk, tokens) if chunk else tokens
    return shard * (4 * tokens + 8 * at_once)
