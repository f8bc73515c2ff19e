from __future__ import annotations

import os
import resource
import socket
import sys
from pathlib import Path

import pytest

from slurmmiles import nodefacts, shell
from slurmmiles.ports import DEFAULT_FLOOR, candidates


def test_the_ephemeral_floor_is_the_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert nodefacts.ephemeral_floor() == first
    for text in ("", "x y"):
        (tmp_path / "range").write_text(text)
        monkeypatch.setattr(nodefacts, "EPHEMERAL_RANGE", tmp_path / "range")
        assert nodefacts.ephemeral_floor() == DEFAULT_FLOOR
    monkeypatch.setattr(nodefacts, "EPHEMERAL_RANGE", tmp_path / "missing")
    assert nodefacts.ephemeral_floor() == DEFAULT_FLOOR


def test_loopback_is_an_interface_with_an_address() -> None:
    assert nodefacts.ipv4_addresses()["lo"] == "127.0.0.1"
    assert nodefacts.interface_of("127.0.0.1") == "lo"
    assert nodefacts.interface_of("192.0.2.1") == "lo"  # TEST-NET-1 (RFC 5737): nobody's


def test_the_address_is_that_of_the_route() -> None:
    assert nodefacts.address_towards("127.0.0.1") == "127.0.0.1"
    assert nodefacts.address_towards("not an address") == "127.0.0.1"


def test_a_name_resolves_or_does_not() -> None:
    assert nodefacts.resolve("localhost") == ("127.0.0.1",)
    assert nodefacts.resolve("no-such-host.invalid") == ()  # RFC 2606
    assert nodefacts.resolve("x" * 300) == ()


def test_two_runs_on_a_node_have_different_blocks() -> None:
    floor = nodefacts.ephemeral_floor()
    first = nodefacts.claim_ports("4711", floor)
    second = nodefacts.claim_ports("4711", floor)
    assert first and second
    assert abs(first[0].base - second[0].base) >= 400
    with first[1], second[1]:
        assert first[1].getsockname()[1] == first[0].control
    again = nodefacts.claim_ports("4711", floor)
    assert again and again[0] == first[0]
    again[1].close()


def test_a_block_in_which_a_port_is_taken_is_passed_over() -> None:
    floor = nodefacts.ephemeral_floor()
    claimed = nodefacts.claim_ports("4712", floor)
    assert claimed
    block, guard = claimed
    guard.close()
    with socket.create_server(("127.0.0.1", block.node_manager)):
        other = nodefacts.claim_ports("4712", floor)
        assert other and other[0] != block
        other[1].close()


def test_without_a_block_below_the_floor_nothing_is_claimed() -> None:
    assert candidates("1", 1024) == ()
    assert nodefacts.claim_ports("1", 1024) is None


def test_the_facts_of_this_machine_are_gathered_and_survive_their_file() -> None:
    facts = nodefacts.gather("n1", address="127.0.0.1", interface="lo", floor=9, port_base=1)
    assert facts.hostname == socket.gethostname()
    assert facts.cpus == len(os.sched_getaffinity(0))
    assert facts.memory_bytes > 2**28
    assert facts.limits["nofile"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert nodefacts.NodeFacts.model_validate_json(facts.model_dump_json()) == facts


def test_the_cpus_are_those_that_we_may_use() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from slurmmiles.nodefacts import gather;"
        "print(gather('n', address='', interface='', floor=1, port_base=1).cpus)"
    )
    assert python(code) == "1\n"


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    code = (
        "import resource as r; hard = r.getrlimit(r.RLIMIT_NOFILE)[1];"
        "r.setrlimit(r.RLIMIT_NOFILE, (200, hard));"
        "from slurmmiles.nodefacts import raise_nofile; raise_nofile();"
        "print(r.getrlimit(r.RLIMIT_NOFILE) == (hard, hard))"
    )
    assert python(code) == "True\n"


def python(code: str) -> str:
    root = str(Path(nodefacts.__file__).resolve().parents[1])
    done = shell.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root})
    assert done.ok, done.stderr
    return done.stdout
