"""Is a saved tree of kernel files whole: no odd line, no value that a kernel never writes. Pure."""

from __future__ import annotations

import re

from slurmmiles.systree import TextTree

# The end of a path, and what its content looks like (Linux drivers/infiniband/core/sysfs.c and
# net/core/net-sysfs.c).
_FORMS: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (re.compile(path), re.compile(content, re.IGNORECASE | re.ASCII))
    for path, content in (
        (
            r"/infiniband/[^/]+/ports/\d+/state",
            r"\d: (NOP|DOWN|INIT|ARMED|ACTIVE|ACTIVE_DEFER|<unknown>)",
        ),
        (
            r"/infiniband/[^/]+/ports/\d+/phys_state",
            r"\d: (Sleep|Polling|Disabled|PortConfigurationTraining|LinkUp|LinkErrorRecovery"
            r"|Phy Test|<unknown>)",
        ),
        (r"/infiniband/[^/]+/ports/\d+/rate", r"[\d.]+ Gb/sec( \([^()]+\))?"),
        (
            r"/infiniband/[^/]+/ports/\d+/link_layer",
            r"InfiniBand|Ethernet|Unspecified|Unknown",
        ),
        (r"/counters/\w+", r"\d{1,20}"),
        (r"/device/vendor", r"0x[0-9a-f]{4}"),
        (r"/numa_node", r"-?\d{1,4}"),
        (r"/class/net/[^/]+/(speed|mtu)", r"-?\d{1,9}"),
        (
            r"/class/net/[^/]+/operstate",
            r"unknown|notpresent|down|lowerlayerdown|testing|dormant|up",
        ),
        (r"/gids/\d+", r"([0-9a-f]{4}:){7}[0-9a-f]{4}"),
    )
)


def faults(tree: TextTree) -> list[str]:
    """What is wrong with it, in words, the first two faults; empty for a whole tree."""
    found = []
    if tree.unread:
        found.append(f"{tree.unread[0][:80]!r} is no line of a saved tree")
    for path, content in tree.files():
        for place, form in _FORMS:
            if re.search(place.pattern + r"$", path) and not form.fullmatch(content):
                found.append(f"{path} is {content[:40]!r}")
                break
        if len(found) >= 2:
            break
    return found
