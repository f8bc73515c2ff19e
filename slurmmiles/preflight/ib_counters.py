"""Error counters of verbs ports: judged by what they rose by around a test, never by their total.

Widths are of PortCounters in the InfiniBand specification (16.1.3.5): a counter stops at its
maximum, and there a difference of 0 proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurmmiles.findings import about, fail, info, warn
from slurmmiles.preflight.text import integer
from slurmmiles.report import Finding
from slurmmiles.systree import TextTree, Tree

MAXIMA = {
    "symbol_error": 0xFFFF,
    "port_rcv_errors": 0xFFFF,
    "port_rcv_remote_physical_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "link_downed": 0xFF,
    "link_error_recovery": 0xFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
}
_COUNTER = re.compile(r"/sys/class/infiniband/([^/]+)/ports/(\d{1,3})/counters/(\w+)", re.ASCII)
Counters = dict[tuple[str, int, str], int]


def read_counters(tree: Tree) -> Counters:
    """(device, port, counter) to value, of the error counters of every verbs port."""
    found: Counters = {}
    base = "/sys/class/infiniband"
    for device in tree.entries(base):
        for port in tree.entries(f"{base}/{device}/ports"):
            for name in tree.entries(f"{base}/{device}/ports/{port}/counters"):
                path = f"{base}/{device}/ports/{port}/counters/{name}"
                value = integer(tree.text(path) or "")
                if name in MAXIMA and value is not None and _COUNTER.fullmatch(path):
                    found[device, int(port), name] = value
    return found


def parse_counters(text: str) -> tuple[Counters, tuple[str, ...]]:
    """The counters of a saved tree, and lines that could not be read."""
    tree = TextTree.parse(text)
    return read_counters(tree), tree.unread


def judge_counters(before: Counters, after: Counters, node: str = "") -> list[Finding]:
    """ib_link_flap, ib_errors_rising, ib_counter_saturated, ib_counters_cleared_info."""
    findings: list[Finding] = []
    for key in sorted(before.keys() & after.keys()):
        findings += _judge(key, before[key], after[key], node)
    return findings


def _judge(key: tuple[str, int, str], was: int, now: int, node: str) -> Iterator[Finding]:
    device, port, name = key
    subject = about(node=node, nic=device, port=port if port != 1 else "")
    if now < was:
        yield info(
            "ib_counters_cleared_info",
            subject,
            f"{name} fell from {was} to {now}: somebody cleared it, and a new baseline begins",
            counter=name,
        )
    elif now == was == MAXIMA[name]:
        yield warn(
            "ib_counter_saturated",
            subject,
            f"{name} stands at its maximum of {now}, so that nothing more can be seen there",
            "clear the counters (perfquery -R) and look again",
            counter=name,
        )
    elif now > was and name == "link_downed":
        yield fail(
            "ib_link_flap",
            subject,
            f"its link went down {now - was} time(s) during the test",
            "have the cable and the optics changed",
            before=was,
            after=now,
        )
    elif now > was:
        yield warn(
            "ib_errors_rising",
            subject,
            f"{name} rose by {now - was} during the test",
            "check the cable and the optics",
            counter=name,
            before=was,
            after=now,
        )
