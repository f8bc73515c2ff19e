"""Where an OpenRecipes file contradicts itself: a warning with both values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurmmiles.asked import asked_for

FILE = Path(__file__).parents[1] / "recorded" / "openrecipes-inkling-small.yaml"
Edit = Callable[..., Path]


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """A copy of the file with parts of its text replaced."""

    def write(*changes: tuple[str, str]) -> Path:
        text = FILE.read_text()
        for old, new in changes:
            assert text.count(old) >= 1, old
            text = text.replace(old, new)
        path = tmp_path / "edited.yaml"
        path.write_text(text)
        return path

    return write


def checks(path: Path) -> str:
    run = asked_for({"HOME": "/nonexistent"}, str(path), None, "generic", ()).run
    assert run is not None
    return "\n".join(run.checks)


@pytest.mark.parametrize(
    ("change", "both"),
    [
        (("  tp: 4\n", "  tp: 8\n"), ("layout.tp is 8", "--tensor-model-parallel-size 4")),
        (("  pp: 4\n", "  pp: 2\n"), ("layout.pp is 2", "--pipeline-model-parallel-size 4")),
        (("  cp: 1\n", "  cp: 2\n"), ("layout.cp is 2", "no --context-parallel-size")),
        (("  ep: 8\n", "  ep: 4\n"), ("layout.ep is 4", "--expert-model-parallel-size 8")),
        (("  etp: 1\n", "  etp: 4\n"), ("layout.etp is 4", "--expert-tensor-parallel-size 1")),
        (("  dp: 2\n", "  dp: 4\n"), ("layout.dp is 4", "is 2")),
        (("  vpp: 1\n", "  vpp: 2\n"), ("layout.vpp is 2", "--virtual-pipeline")),
        (("sequence_parallel: true", "sequence_parallel: false"), ("parallel is off", "on")),
        (("    first: 12\n", "    first: 9\n"), ("layer_split.first is 9", "has 12")),
        (("    last: 10\n", "    last: 12\n"), ("layer_split.last is 12", "has 10")),
        (("rows_per_microbatch: 1", "rows_per_microbatch: 2"), ("is 2", "--micro-batch-size 1")),
        (("optimizer_fraction: 0.7", "optimizer_fraction: 0.6"), ("is 0.6", "fraction 0.7")),
        (("overlap_d2h_h2d: true", "overlap_d2h_h2d: false"), ("is off", "is on")),
        (("  global_batch: 128", "  global_batch: 64"), ("is 64", "--global-batch-size 128")),
        (("steps_per_run: 20", "steps_per_run: 30"), ("is 30", "--num-rollout 20")),
        (("precision: bf16", "precision: fp16"), ("is fp16", "--bf16")),
        (("network: 8 GPUs", "network: 4 GPUs"), ("4 GPUs per node", "gpu.per_node is 8")),
        (("per node, EFA", "per node, InfiniBand"), ("FI_PROVIDER is efa", "InfiniBand")),
        (("framework: miles 0.1.0", "framework: NeMo"), ("NeMo", "run starts miles")),
        (("  FI_PROVIDER: efa", "  FI_PROVIDER: verbs"), ("'verbs'", "'efa'")),
        (("  NCCL_RAS_ENABLE: '0'\n", ""), ("run exports NCCL_RAS_ENABLE='0'", "env does not")),
        (("utils.py inkling-small", "utils.py inkling"), ("Inkling-Small", "of inkling")),
        (("--actor-num-nodes 4", "--actor-num-nodes 2"), ("is 4", "--actor-num-nodes 2")),
        (("--num-gpus-per-node 8", "--num-gpus-per-node 4"), ("per_node is 8", "per-node 4")),
        (("window_tokens: 15728640", "window_tokens: 1"), ("is 1,", "15728640")),
        (("mfu: 0.0418", "mfu: 0.4"), ("result.mfu is 0.4", "0.0418")),
        (("model: Inkling-Small", "model: Other"), ("no facts", "checked")),
    ],
)
def test_a_contradiction_is_a_warning_with_both_values(
    edit: Edit, change: tuple[str, str], both: tuple[str, str]
) -> None:
    if change[0].startswith("model:"):
        path = edit(change, ("utils.py inkling-small", "utils.py other"))
    else:
        path = edit(change)
    told = checks(path)
    assert all(part in told for part in both), told


def test_a_layout_that_states_recomputation_that_the_block_has_not_is_shown(edit: Edit) -> None:
    path = edit(
        ("  recompute: null", "  recompute: full"),
        ("    --recompute-granularity full \\\n", ""),
        ("    --recompute-method uniform \\\n", ""),
        ("    --recompute-num-layers 1 \\\n", ""),
    )
    assert checks(path) == "layout.recompute is full, but run has no --recompute-granularity"
