"""Names, ports and addresses on a node: what would keep the others from reaching it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence

from slurmmiles.findings import about, fail, unknown, warn
from slurmmiles.preflight.text import plain
from slurmmiles.report import Finding


def is_loopback(address: str) -> bool:
    """127.0.0.0/8, ::1 and the former written as an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0].strip())
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def judge_own_name(
    node: str, hostname: str, resolved: Sequence[str], *, given: str = ""
) -> list[Finding]:
    """hostname_resolves_to_loopback, by what the node itself says of its own name.

    Debian writes `127.0.1.1 NAME` into /etc/hosts; others see the right address, so the check must
    be made on the node. `given`: the address that the run's programs were told to use instead,
    which makes it a warning.
    """
    if not resolved:
        return [
            unknown(
                "hostname_unresolved",
                about(node=node),
                f"its own name {hostname} does not resolve there",
                "add it to /etc/hosts or to DNS",
            )
        ]
    if not all(is_loopback(a) for a in resolved):
        return []
    judge = warn if given else fail
    remedy = (
        f"mend /etc/hosts on the node; Ray, Gloo and SGLang were given {given}"
        if given
        else "give ray start --node-ip-address, and GLOO_SOCKET_IFNAME and MASTER_ADDR real values"
    )
    return [
        judge(
            "hostname_resolves_to_loopback",
            about(node=node),
            f"its name {hostname} resolves to {resolved[0]} there, and the other nodes would"
            " connect to themselves",
            remedy,
            hostname=hostname,
            resolved=" ".join(resolved),
        )
    ]


def parse_hosts(text: str) -> dict[str, tuple[str, ...]]:
    """/etc/hosts: name to its addresses, in order."""
    found: dict[str, tuple[str, ...]] = {}
    for line in plain(text).splitlines():
        fields = line.partition("#")[0].split()
        for name in fields[1:]:
            found[name] = (*found.get(name, ()), fields[0])
    return found


def parse_ports(text: str) -> dict[int, str]:
    """`PORT WHO` lines: who listens, `free` for nobody."""
    found: dict[int, str] = {}
    for line in plain(text).splitlines():
        row = re.match(r"\s*(\d{1,5})\s+(.+)", line, re.ASCII)
        if row:
            found[int(row[1])] = row[2].strip()
    return found


def judge_ports(
    listening: Mapping[int, str], wanted: Iterable[int] | None = None, node: str = ""
) -> list[Finding]:
    """port_in_use for each port that the run wants and somebody else holds."""
    return [
        fail(
            "port_in_use",
            about(node=node, port=port),
            f"it belongs to {who}",
            "choose a free port from the job's id, and test it before Ray starts",
            owner=who,
        )
        for port, who in listening.items()
        if who.lower() != "free" and (wanted is None or port in set(wanted))
    ]
