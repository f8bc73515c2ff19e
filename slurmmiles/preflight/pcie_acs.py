"""PCIe access control (ACS) and IOMMU: what sends GPU-to-NIC traffic through the root. Pure.

NCCL's documentation (troubleshooting, "PCI Access Control Services"): with request redirection on
in a bridge, peer-to-peer traffic goes up to the root complex, which is slow or hangs. In virtual
machines ACS must be on, and the NIC needs ATS instead.
"""

from __future__ import annotations

import re

from slurmmiles.findings import about, unknown, warn
from slurmmiles.preflight.text import plain
from slurmmiles.report import Finding

_DEVICE = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.+)")
_CONTROL = re.compile(r"ACSCtl:\s*(.+)")


def parse_acs(text: str) -> dict[str, frozenset[str]]:
    """`lspci -vvv`: bridge to the ACS controls that are on (`SrcValid+` to SrcValid)."""
    found: dict[str, frozenset[str]] = {}
    device = ""
    for line in plain(text).splitlines():
        if header := _DEVICE.match(line):
            device = header[1]
        elif device and (control := _CONTROL.search(line)):
            on = (word[:-1] for word in control[1].split() if word.endswith("+"))
            found[device] = frozenset(on)
    return found


def judge_acs(text: str, *, virtual: bool, node: str = "") -> list[Finding]:
    """acs_enabled on a machine of its own; acs_unknown when lspci was not allowed to see it."""
    bridges = parse_acs(text)
    if not bridges:
        return [
            unknown(
                "acs_unknown",
                about(node=node),
                "lspci shows no ACS control (it needs root to)",
                "let the administrator run lspci -vvv",
            )
        ]
    on = sorted(b for b, controls in bridges.items() if controls & {"SrcValid", "ReqRedir"})
    if not on or virtual:
        return []
    return [
        warn(
            "acs_enabled",
            about(node=node),
            f"ACS is on in {len(on)} PCIe bridges, so GPU-to-NIC traffic may go through the root"
            f" ({', '.join(on[:4])})",
            "switch it off in the BIOS or with setpci, as NCCL's documentation says",
            bridges=len(on),
        )
    ]


def judge_iommu(cmdline: str, *, virtual: bool, node: str = "") -> list[Finding]:
    """iommu_translates when the kernel's command line turns an IOMMU on without pass-through."""
    words = cmdline.split()
    on = any(w in ("intel_iommu=on", "amd_iommu=on", "iommu=force") for w in words)
    if virtual or not on or "iommu=pt" in words:
        return []
    return [
        warn(
            "iommu_translates",
            about(node=node),
            "the IOMMU translates every device access, which slows GPU-to-NIC traffic",
            "boot with iommu=pt, or switch it off",
        )
    ]
