"""Single terms of the memory estimate against worked numbers, in GB of 1e9 bytes."""

from __future__ import annotations

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.memory import OptimizerMemory
from slurmmiles.memory.serving import (
    EngineShape,
    engine_weight_bytes,
    kv_bytes_per_token,
    mamba_bytes_per_request,
)
from slurmmiles.memory.training import stage_parameters, training_bytes
from slurmmiles.models import ModelFacts
from slurmmiles.topology import Topology, flat_topology, make_topology

CATALOG = Catalog((shipped("configs"),))
ULTRA = CATALOG.model("nemotron-3-ultra-550b-a55b")
INKLING = CATALOG.model("inkling-small")
GB = 1e9

# Inkling-Small counted as 42 equal MoE layers (276.1 B parameters), as the worked table counts it.
INKLING_42 = ModelFacts.model_validate(
    INKLING.model_dump(exclude={"extras", "layer_groups"})
    | {"layer_groups": [{"blocks": "*E", "count": 42}]}
)


def ultra_layout() -> Topology:
    return make_topology(
        model=ULTRA,
        nodes=16,
        ranks_per_node=8,
        tp=8,
        pp=4,
        cp=1,
        ep=32,
        etp=1,
        sequence_parallel=True,
    )


def test_nemotron_ultra_has_the_worked_weights_gradients_and_states() -> None:
    stage = stage_parameters(ULTRA, ultra_layout(), 0)
    assert stage.expert / GB == pytest.approx(4.03, abs=0.005)
    assert stage.dense / GB == pytest.approx(1.52, abs=0.005)
    held = training_bytes(
        ULTRA, ultra_layout(), 0, optimizer=OptimizerMemory(), recompute="full", tokens=1024,
        log_probs_chunk=128,
    )  # fmt: skip
    assert held.weights / GB == pytest.approx(11.1, abs=0.05)
    assert held.grads / GB == pytest.approx(22.2, abs=0.05)
    assert held.states / GB == pytest.approx(52.9, abs=0.05)


def test_states_are_megatrons_18_bytes_a_parameter_without_the_distributed_optimizer() -> None:
    t = flat_topology(4).model_copy(update={"layers_per_stage": (28,), "dp": 4})
    qwen = CATALOG.model("qwen3-0.6b")
    per_parameter = {}
    for distributed in (False, True):
        held = training_bytes(
            qwen, t, 0, optimizer=OptimizerMemory(distributed=distributed), recompute="none",
            tokens=1, log_probs_chunk=None,
        )  # fmt: skip
        per_parameter[distributed] = (held.weights + held.grads + held.states) / 596_049_920
    assert per_parameter == {False: 18.0, True: 6 + 12 / 4}


@pytest.mark.parametrize(
    ("pp", "ep", "stages", "p", "w", "g", "o", "static"),
    [
        (4, 8, (11, 11, 10, 10), 9.33, 18.7, 37.3, 109.1, {0.6: 99.6, 0.7: 88.7, 1.0: 56.0}),
        (8, 4, (5,) * 7 + (7,), 11.65, 23.3, 46.6, 139.8, {0.6: 125.8, 0.7: 111.8, 1.0: 69.9}),
        (2, 16, (21, 21), 9.17, 18.3, 36.7, 103.6, {0.6: 96.5, 0.7: 86.1, 1.0: 55.0}),
    ],
    ids=["TP4 PP4 EP8", "TP4 PP8 EP4", "TP4 PP2 EP16"],
)
def test_inkling_counted_as_42_moe_layers_gives_the_worked_table(
    pp: int, ep: int, stages: tuple[int, ...], p: float, w: float, g: float, o: float,
    static: dict[float, float],
) -> None:  # fmt: skip
    t = make_topology(
        model=INKLING_42, nodes=4, ranks_per_node=8, tp=4, pp=pp, cp=1, ep=ep, etp=1,
        layers_per_stage=stages, sequence_parallel=True,
    )  # fmt: skip
    fullest = max(range(pp), key=lambda s: stage_parameters(INKLING_42, t, s).total)
    held = training_bytes(
        INKLING_42, t, fullest, optimizer=OptimizerMemory(), recompute="none", tokens=1,
        log_probs_chunk=None,
    )  # fmt: skip
    assert stage_parameters(INKLING_42, t, fullest).total / GB == pytest.approx(p, abs=0.01)
    assert held.weights / GB == pytest.approx(w, abs=0.06)
    assert held.grads / GB == pytest.approx(g, abs=0.06)
    assert held.states / GB == pytest.approx(o, abs=0.1)
    for offload, total in static.items():
        on_gpu = (held.weights + held.grads + (1 - offload) * held.states) / GB
        assert on_gpu == pytest.approx(total, abs=0.1)


@pytest.mark.parametrize(
    ("gpus", "dp", "best", "worst"), [(32, 4, 41.9, 59.8), (64, 8, 25.5, 43.7)]
)
def test_engine_weights_of_nemotron_ultra(gpus: int, dp: int, best: float, worst: float) -> None:
    found = engine_weight_bytes(ULTRA, EngineShape(gpus, dp))
    assert [b / GB for b in found] == pytest.approx([worst, best], abs=0.1)


@pytest.mark.parametrize(("gpus", "weights"), [(8, 69.1), (16, 35.3), (32, 18.4)])
def test_engine_weights_of_inkling_counted_as_42_moe_layers(gpus: int, weights: float) -> None:
    dp = max(1, gpus // 8)
    best = engine_weight_bytes(INKLING_42, EngineShape(gpus, dp))[1]
    assert best / GB == pytest.approx(weights, rel=0.045)


def test_caches_of_nemotron_ultra_at_attn_tp_8() -> None:
    assert kv_bytes_per_token(ULTRA, 8) == 6144
    assert mamba_bytes_per_request(ULTRA, 8) / 1e6 == pytest.approx(51, abs=0.5)


def test_only_full_attention_layers_of_inkling_grow_with_the_context() -> None:
    assert kv_bytes_per_token(INKLING, 8) == 7 * 2 * 1 * 128 * 2


def test_no_recompute_costs_more_than_full_and_more_tokens_cost_more() -> None:
    def activations(recompute: str, tokens: int) -> float:
        return training_bytes(
            ULTRA, ultra_layout(), 0, optimizer=OptimizerMemory(), recompute=recompute,  # type: ignore[arg-type]
            tokens=tokens, log_probs_chunk=None,
        ).activations  # fmt: skip

    assert activations("full", 1024) < activations("none", 1024) < activations("none", 4096)
    assert activations("none", 2048) == pytest.approx(2 * activations("none", 1024))


def test_a_log_prob_chunk_saves_fp32_logits_on_the_last_stage_only() -> None:
    def logits(stage: int, chunk: int | None) -> float:
        return training_bytes(
            ULTRA, ultra_layout(), stage, optimizer=OptimizerMemory(), recompute="full",
            tokens=1024, log_probs_chunk=chunk,
        ).logits  # fmt: skip

    assert logits(0, None) == 0.0
    assert logits(3, None) == 131072 / 8 * 1024 * 12
    assert logits(3, 128) == 131072 / 8 * (1024 * 4 + 128 * 8)


def test_the_first_stage_holds_the_embedding_and_the_last_the_output_layer() -> None:
    total = [stage_parameters(ULTRA, ultra_layout(), s).dense for s in range(4)]
    table = 131072 * 8192 / 8
    assert total[0] - total[1] == pytest.approx(table, rel=0.3)
    assert total[3] - total[1] == pytest.approx(table, rel=0.9)


def test_stages_hold_the_whole_model() -> None:
    t = ultra_layout()
    held = [stage_parameters(ULTRA, t, s) for s in range(4)]
    assert sum(h.expert for h in held) * 32 == 515_396_075_520
