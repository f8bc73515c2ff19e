"""One node's own name, its addresses and its ports."""

from __future__ import annotations

import pytest

from slurmmiles.preflight.addresses import (
    is_loopback,
    judge_own_name,
    judge_ports,
    parse_hosts,
    parse_ports,
)
from slurmmiles.report import Finding

HOSTS = "127.0.0.1 localhost\n127.0.1.1 n00.cluster n00 # Debian's line\n10.20.0.11 n01\n"


def said(findings: list[Finding]) -> set[tuple[str, str, str]]:
    return {(f.code, f.verdict.value, f.subject) for f in findings}


def test_a_node_that_takes_itself_for_loopback_is_named_on_itself() -> None:
    hosts = parse_hosts(HOSTS)
    assert said(judge_own_name("n00", "n00", hosts["n00"])) == {
        ("hostname_resolves_to_loopback", "FAIL", "node=n00")
    }
    assert judge_own_name("n01", "n01", hosts["n01"]) == []
    given = judge_own_name("n00", "n00", ["127.0.1.1"], given="10.20.0.10")
    assert [f.verdict.value for f in given] == ["WARN"]
    assert [f.verdict.value for f in judge_own_name("n02", "n02", [])] == ["UNKNOWN"]
    assert judge_own_name("n00", "n00", ["127.0.1.1", "10.20.0.10"]) == []


@pytest.mark.parametrize(
    ("address", "loops"),
    [
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("n00", False),
        ("", False),
    ],
)
def test_the_whole_of_127_and_ipv6_are_loopback(address: str, loops: bool) -> None:
    assert is_loopback(address) is loops


def test_a_port_of_somebody_else_is_named() -> None:
    text = "# before ray start\n6379 redis-server (other user)\n8265 free\n10002 python\n"
    ports = parse_ports(text)
    assert {f.subject for f in judge_ports(ports)} == {"port=6379", "port=10002"}
    assert {f.subject for f in judge_ports(ports, [6379, 8265])} == {"port=6379"}
