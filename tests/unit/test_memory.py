"""Memory against worked numbers: GB of 1e9 bytes, H200 150.8, H100 85.5, B200 192.3."""

from __future__ import annotations

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.memory import MemoryFit, OptimizerMemory, fit
from slurmmiles.memory.serving import (
    EngineShape,
    engine_weight_bytes,
    kv_bytes_per_token,
    mamba_bytes_per_request,
)
from slurmmiles.memory.training import stage_parameters, training_bytes
from slurmmiles.models import ModelFacts
from slurmmiles.topology import Topology, flat_topology, make_rollout, make_topology

CATALOG = Catalog((shipped("configs"),))
ULTRA = CATALOG.model("nemotron-3-ultra-550b-a55b")
INKLING = CATALOG.model("inkling-small")
TINY = CATALOG.model("tiny")
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


def ultra(
    gpu: str, offload: float = 1.0, host: float | None = 2000.0, **changes: float
) -> MemoryFit:
    engines = {"gpus_per_engine": 32, "ep": 32, "dp": 4}
    engines |= {k: int(v) for k, v in changes.items() if k in engines}
    return fit(
        model=ULTRA,
        topology=ultra_layout(),
        rollout=make_rollout(model=ULTRA, nodes=16, ranks_per_node=8, **engines),
        gpu=CATALOG.gpu(gpu),
        gpus_per_node=8,
        host_memory_gb=host,
        optimizer=OptimizerMemory(offload, precision_aware=True),
        recompute="full",
        max_tokens_per_gpu=1024,
        log_probs_chunk_size=128,
        mem_fraction=changes.get("mem_fraction", 0.7),
    )


def inkling(offload: float, gpu: str = "h200", host: float | None = 2000.0) -> MemoryFit:
    """The OpenRecipes file's layout: TP 4, PP 4 (12/10/10/10), EP 8, rows of 8,192 tokens, SFT."""
    return fit(
        model=INKLING,
        topology=make_topology(
            model=INKLING, nodes=4, ranks_per_node=8, tp=4, pp=4, cp=1, ep=8, etp=1,
            layers_first=12, sequence_parallel=True,
        ),
        rollout=None,
        gpu=CATALOG.gpu(gpu),
        gpus_per_node=8,
        host_memory_gb=host,
        optimizer=OptimizerMemory(offload, precision_aware=True),
        recompute="full",
        max_tokens_per_gpu=8192,
    )  # fmt: skip


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


def test_nemotron_ultra_fits_on_128_h200_with_the_optimizer_on_the_host() -> None:
    found = ultra("h200")
    assert found.verdict == "fits"
    assert 40 < found.gpu_gb["total"] < 55
    assert found.gpu_gb["optimizer"] == 0.0
    assert found.rollout_gb["kv_pool"] == pytest.approx(45.7, abs=0.1)
    assert found.rollout_gb["kv_pool_best"] == pytest.approx(63.6, abs=0.1)


def test_nemotron_ultra_fits_on_128_h200_without_offload_too() -> None:
    found = ultra("h200", offload=0.0)
    assert found.verdict == "fits"
    statics = sum(found.gpu_gb[k] for k in ("weights", "grads", "optimizer"))
    assert statics == pytest.approx(86.2, abs=0.1)


def test_on_128_h100_the_kv_pool_is_the_named_shortfall_with_what_helps() -> None:
    found = ultra("h100")
    assert found.verdict == "does not fit"
    assert found.gpu_phases_gb["train"] < found.gpu_gb["limit"]
    assert found.rollout_gb["kv_pool"] == pytest.approx(0.0, abs=0.1)
    assert found.rollout_gb["kv_pool_best"] == pytest.approx(17.9, abs=0.1)
    told = "\n".join(found.notes)
    assert "the rollout's KV pool is too small" in told
    assert "engines of 64 GPUs (rollout.ep 64, rollout.dp 8)" in told
    assert "rollout.mem_fraction 0.8 leaves a pool" in told


@pytest.mark.parametrize(
    "changes",
    [{"mem_fraction": 0.85}, {"gpus_per_engine": 64, "ep": 64, "dp": 8}],
    ids=["higher fraction", "larger engines"],
)
def test_what_the_h100_notes_propose_does_help(changes: dict[str, float]) -> None:
    assert ultra("h100", **changes).verdict in ("fits", "tight")
    assert ultra("h100", **changes).rollout_gb["kv_pool"] > 12


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


def test_the_measured_inkling_layout_fits_at_offload_0_7_and_not_at_0_6() -> None:
    assert inkling(0.7).verdict == "fits"
    assert inkling(0.6).verdict == "does not fit"
    assert "optimizer.cpu_offload 0.7 fits" in "\n".join(inkling(0.6).notes)


def test_the_reserve_that_decides_inkling_is_printed_as_a_calibration_with_its_source() -> None:
    found = inkling(0.7)
    beyond = ("activations", "logits", "overhead", "rollout_residue", "calibration")
    assert sum(found.gpu_gb[k] for k in beyond) == pytest.approx(60.0, abs=0.01)
    note = next(n for n in found.notes if n.startswith("calibration"))
    assert "not a derivation" in note and "OpenRecipes" in note and "ran out of memory" in note


def test_the_calibrated_reserve_lies_between_what_ran_and_what_did_not() -> None:
    """What both runs say of the reserve: it is larger than 0.6 leaves and smaller than 0.7 does."""
    calibration = INKLING.calibration
    assert calibration is not None
    left = {}
    for offload in (0.6, 0.7):
        terms = inkling(offload).gpu_gb
        left[offload] = terms["limit"] - sum(terms[k] for k in ("weights", "grads", "optimizer"))
    assert left[0.6] < calibration.train_reserve_gb < left[0.7]


def test_inkling_is_counted_without_recompute_whatever_the_flags_say() -> None:
    assert (
        inkling(0.7).notes[0] == "inkling-small takes no recompute settings, whatever the flags say"
    )
    assert inkling(0.7).gpu_gb["activations"] > 20


def test_inkling_does_not_fit_on_h100_and_fits_on_b200_with_less_offload() -> None:
    assert inkling(1.0, gpu="h100").verdict == "does not fit"
    assert "no optimizer.cpu_offload fits" in "\n".join(inkling(1.0, gpu="h100").notes)
    assert inkling(0.5, gpu="b200").verdict == "fits"


def test_host_memory_of_a_nemotron_ultra_node_is_about_0_9_tb() -> None:
    host = ultra("h200").host_gb
    assert host["optimizer_states"] == pytest.approx(423, abs=1)
    assert host["pinned_grads"] == pytest.approx(141, abs=1)
    assert host["backup"] == pytest.approx(266, abs=1)
    assert host["bf16_copy"] == pytest.approx(89, abs=1)
    assert host["total"] == pytest.approx(930, abs=30)


def test_host_memory_of_an_inkling_node_is_above_1_5_tb() -> None:
    assert inkling(0.7).host_gb["total"] == pytest.approx(1600, abs=100)


@pytest.mark.parametrize(
    ("host", "verdict"),
    [(None, "fits"), (2000.0, "fits"), (1000.0, "tight"), (900.0, "does not fit")],
)
def test_the_host_is_part_of_the_verdict(host: float | None, verdict: str) -> None:
    found = ultra("h200", host=host)
    assert found.verdict == verdict
    told = "\n".join(found.notes)
    assert ("not judged" in told) == (host is None)
    assert ("more than the node's 900 GB" in told) == (host == 900.0)


def test_every_phase_of_the_colocated_cycle_is_counted() -> None:
    phases = ultra("h200").gpu_phases_gb
    assert list(phases) == ["train", "offloaded", "rollout", "update_weights"]
    assert phases["offloaded"] < min(phases["train"], phases["rollout"], phases["update_weights"])
    assert phases["update_weights"] == pytest.approx(11.1 + 59.8 + 1.0 + 9.7, abs=0.2)


def test_a_fraction_that_leaves_no_room_beside_the_pool_does_not_fit() -> None:
    assert ultra("h200", mem_fraction=0.97).verdict == "does not fit"


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


def test_on_cpus_only_the_host_counts() -> None:
    found = fit(
        model=TINY,
        topology=make_topology(
            model=TINY, nodes=2, ranks_per_node=1, tp=1, pp=1, cp=1, ep=1, etp=1
        ),
        rollout=make_rollout(model=TINY, nodes=2, ranks_per_node=1, gpus_per_engine=1),
        gpu=None,
        gpus_per_node=1,
        host_memory_gb=24.0,
        optimizer=OptimizerMemory(),
        max_tokens_per_gpu=512,
        param_bytes=4,
    )
    assert found.verdict == "fits"
    assert set(found.gpu_gb.values()) == {0.0}
    assert 4 < (found.host_gb["total"] or 0) < 8


def test_a_run_without_a_model_has_nothing_to_fit() -> None:
    found = fit(
        model=None, topology=flat_topology(8), rollout=None, gpu=CATALOG.gpu("h200"),
        gpus_per_node=8, optimizer=OptimizerMemory(),
    )  # fmt: skip
    assert (found.verdict, found.gpu_gb["total"]) == ("fits", 0.0)
    assert found.gpu_gb["limit"] == pytest.approx(150.755, abs=0.001)


def test_the_fit_survives_json_and_shares_its_keys_with_the_contract() -> None:
    found = ultra("h200")
    assert MemoryFit.model_validate_json(found.model_dump_json()) == found
    assert {"total", "limit"} <= set(found.gpu_gb) and {"total", "limit"} <= set(found.host_gb)
    assert found.notes[-1].startswith("formulas:")
