from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmmiles.ports import BLOCK, DEFAULT_FLOOR, PortBlock, candidates


def test_no_port_of_a_block_has_two_roles() -> None:
    block = PortBlock(10_240)
    roles = [
        block.control,
        block.gcs,
        block.dashboard,
        block.ray_client,
        block.node_manager,
        block.object_manager,
        block.dashboard_agent_http,
        block.dashboard_agent_grpc,
        block.runtime_env_agent,
        block.metrics_export,
    ]
    assert sorted(roles) == list(block.fixed)
    first, last = block.workers
    assert max(roles) < first <= last == block.base + BLOCK - 1


@given(st.text(max_size=30), st.integers(1024, 65_536))
def test_every_candidate_is_below_the_floor_and_none_overlaps(job_id: str, floor: int) -> None:
    bases = [block.base for block in candidates(job_id, floor)]
    assert all(base >= 1024 and base + BLOCK <= floor for base in bases)
    ordered = sorted(bases)
    assert all(b - a >= BLOCK for a, b in zip(ordered, ordered[1:], strict=False))
    assert bases == [block.base for block in candidates(job_id, floor)]


def test_neighbouring_jobs_prefer_different_blocks() -> None:
    first = {candidates(str(job), DEFAULT_FLOOR)[0].base for job in range(100, 150)}
    assert len(first) == 50


def test_every_job_has_all_blocks_to_choose_from() -> None:
    assert {frozenset(candidates(str(job), DEFAULT_FLOOR)) for job in range(5)} == {
        frozenset(candidates("0", DEFAULT_FLOOR))
    }
    assert len(candidates("0", DEFAULT_FLOOR)) == (DEFAULT_FLOOR - 10_240) // BLOCK


@pytest.mark.parametrize("job_id", ["", "²", "12_3", "9" * 5000, "١٢"])
def test_any_job_id_has_a_block(job_id: str) -> None:
    assert candidates(job_id, DEFAULT_FLOOR)


def test_a_low_floor_leaves_the_unprivileged_ports_and_a_lower_one_nothing() -> None:
    assert candidates("1", 10_240)[0].base >= 1024
    assert candidates("1", 1_024) == ()
