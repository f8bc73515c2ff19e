"""Memory against worked numbers: GB of 1e9 bytes, H200 150.8, H100 85.5, B200 192.3."""

from __future__ import annotations

import pytest

from slurmmiles.catalog import Catalog, shipped
from slurmmiles.memory import MemoryFit, OptimizerMemory, fit
from slurmmiles.topology import Topology, flat_topology, make_rollout, make_topology

CATALOG = Catalog((shipped("configs"),))
ULTRA = CATALOG.model("nemotron-3-ultra-550b-a55b")
INKLING = CATALOG.model("inkling-small")
TINY = CATALOG.model("tiny")


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
