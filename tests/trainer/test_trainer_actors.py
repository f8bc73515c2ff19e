"""Actors on a real local Ray: calls fail at the first failure, with a sentence on where."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import needs

needs("torch", "ray")

import ray  # noqa: E402

from trainer.actors import Actor, call_all, start, wait_all  # noqa: E402
from trainer.cluster import ray_connection  # noqa: E402
from trainer.errors import TrainerError  # noqa: E402
from trainer.placement import Node, choose_nodes  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
HERE = str(Path(__file__).parent)
ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The one node of a Ray of its own, whose token is not in the home."""
    before = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    for name in before:
        del os.environ[name]
    work_dir = tmp_path_factory.mktemp("work")
    with ray_connection("local", os.environ, work_dir):
        token = work_dir / "ray_token"
        assert token.stat().st_mode & 0o777 == 0o600
        yield choose_nodes(1)[0]
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    os.environ.update(before)


def bodies(node: Node, *numbers: int) -> list[Actor]:
    env = {"PYTHONPATH": f"{HERE}:{ROOT}", "ONLY_THERE": "yes"}
    return [start("actor_bodies:Body", n, node=node, gpus=0, env=env) for n in numbers]


def test_results_come_in_the_order_of_the_actors_with_their_environment(node: Node) -> None:
    actors = bodies(node, 3, 1, 2)
    assert call_all(actors, "answer", 10) == [13, 11, 12]
    assert call_all(actors, "environment", "ONLY_THERE") == ["yes"] * 3
    assert "ONLY_THERE" not in os.environ


def test_a_trainer_error_of_an_actor_comes_out_as_it_is(node: Node) -> None:
    with pytest.raises(TrainerError) as caught:
        call_all(bodies(node, 7), "raise_ours")
    assert str(caught.value.cause).startswith("number 7 on ")


def test_any_other_error_is_one_sentence_with_the_call_and_keeps_the_traceback(node: Node) -> None:
    with pytest.raises(TrainerError, match=r"^raise_other: KeyError: 'missing'$") as caught:
        call_all(bodies(node, 0), "raise_other")
    assert "actor_bodies.py" in str(caught.value.__cause__)


def test_the_first_death_ends_a_collective_call_that_others_still_wait_in(node: Node) -> None:
    refs = [actor.call.remote("die_or_sleep", 1) for actor in bodies(node, 0, 1)]
    with pytest.raises(TrainerError, match=r"^train: a process of the run died: pid: \d+, ip: "):
        wait_all(refs, "train")
    ready, _ = ray.wait(refs[:1], timeout=0)
    assert ready == []  # the first actor still sleeps


def test_an_object_that_cannot_be_made_says_why(node: Node) -> None:
    (actor,) = bodies(node, -1)
    with pytest.raises(TrainerError, match=r"^starting: .*ValueError: -1 is negative$"):
        wait_all([actor.call.remote("answer", 1)], "starting")


def test_no_answer_in_time_is_an_error(node: Node) -> None:
    (actor,) = bodies(node, 0)
    with pytest.raises(TrainerError, match=r"^sleep: no answer in 0\.5 s$"):
        call_all([actor], "sleep", timeout=0.5)
    ray.kill(actor)


def test_too_few_nodes_is_an_error_with_both_numbers(node: Node) -> None:
    sentence = r"^placement: 3 nodes are needed, the Ray cluster has 1 with CPUs$"
    with pytest.raises(TrainerError, match=sentence):
        choose_nodes(3, wait_s=0.1)
