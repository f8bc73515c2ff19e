"""Judges of NCCL_IB_HCA, NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME: does a value select what its
writer meant, on this node and on every node. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from slurmmiles.findings import about, fail, warn
from slurmmiles.name_lists import NameList, exact, gloo_names, select_hcas, select_interfaces
from slurmmiles.report import Finding

HCA, NCCL_IF, GLOO_IF = "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
# IFNAMSIZ of Linux is 16 with the final zero; = and ^ are allowed by the kernel and used by nobody.
_INTERFACE = re.compile(r"[A-Za-z0-9_.\-@]{1,15}")
_PORT_1 = (1,)


def judge_hca_list(
    value: str | None,
    devices: Sequence[str],
    subject: str = f"var={HCA}",
    ports: Mapping[str, Sequence[int]] | None = None,
) -> list[Finding]:
    """hca_prefix_match when the value takes other devices than its writer named."""
    why = _hca_trap(value, devices, ports or {}) if value is not None else ""
    if not why:
        return []
    taken = select_hcas(value, devices, ports)
    return [
        warn(
            "hca_prefix_match",
            subject,
            f"{HCA}={value} {why}; it selects {', '.join(taken) or 'no device'}",
            f"write full names in the exact form, {HCA}={exact(['NAME', 'NAME'])}",
            value=value,
            selected=",".join(taken),
            devices=",".join(devices),
        )
    ]


def _hca_trap(value: str, devices: Sequence[str], ports: Mapping[str, Sequence[int]]) -> str:
    names = NameList.parse(value)
    if not names.entries:
        return "excludes every device" if names.exclude else "is empty and takes every device"
    for entry in names.entries:
        name = entry[0]
        taken = [
            d for d in devices if any(names.matches(entry, d, p) for p in ports.get(d, _PORT_1))
        ]
        if name != name.strip():
            return f"has a blank, which NCCL takes as part of the name {name!r}"
        if name[0] in "=^":
            return f"has {name!r} inside the list, where {name[0]} is plain text"
        if not names.exact and name[-1].isdecimal():
            more = [d for d in taken if d[len(name) :][:1].isdecimal()]
            if name in taken and len(taken) > 1:
                more = [d for d in taken if d != name]
            if more:
                return f"is a list of prefixes, and {name} also matches {', '.join(more)}"
        if not names.exclude and not taken:
            return f"names {name}, which matches no device here"
    return "" if select_hcas(value, devices, ports) else "selects no device here"


def judge_hca_on_nodes(
    values: Mapping[str, str | None],
    compute: Mapping[str, Sequence[str]],
    devices: Mapping[str, Sequence[str]] | None = None,
) -> list[Finding]:
    """hca_list_invalid_on_node for each node whose value does not select just its compute ports."""
    findings = []
    for node, wanted in compute.items():
        value = values.get(node)
        if value is None:
            continue
        known = tuple(dict.fromkeys([*wanted, *(devices or {}).get(node, ())]))
        taken = select_hcas(value, known)
        if set(taken) == set(wanted):
            continue
        right = sum(name in wanted for name in taken)
        findings.append(
            fail(
                "hca_list_invalid_on_node",
                about(node=node),
                f"{HCA}={value} selects {right} of its {len(wanted)} compute ports"
                + (f" and {len(taken) - right} others" if len(taken) > right else ""),
                f"compute the value on each node; here it is {HCA}={exact(wanted)}",
                value=value,
                compute=",".join(wanted),
                selected=",".join(taken),
            )
        )
    return findings


def judge_ifname(
    value: str | None, interfaces: Sequence[str] | None, subject: str = f"var={NCCL_IF}"
) -> list[Finding]:
    """ifname_exclusion_readmits_lo, ifname_matches_nothing; `interfaces` None: not known."""
    if value is None or len(value) <= 1:
        return []
    taken = select_interfaces(value, ("lo",) if interfaces is None else interfaces)
    if NameList.parse(value).exclude and "lo" in taken:
        return [
            warn(
                "ifname_exclusion_readmits_lo",
                subject,
                f"{NCCL_IF}={value} excludes other names and so lets the loopback in",
                f"name the interface, {NCCL_IF}={exact(['NAME'])}, or exclude lo too",
                value=value,
                selected=",".join(taken),
            )
        ]
    if interfaces is None or taken:
        return []
    return [
        warn(
            "ifname_matches_nothing",
            subject,
            f"{NCCL_IF}={value} matches none of {', '.join(interfaces) or 'no interfaces'},"
            " and NCCL stops at launch",
            "write the interface that reaches the head, per node",
            value=value,
            interfaces=",".join(interfaces),
        )
    ]


def judge_ifnames_on_nodes(
    envs: Mapping[str, Mapping[str, str]], interfaces: Mapping[str, Sequence[str]]
) -> list[Finding]:
    """socket_ifname_missing_on_node for each node on which a value selects nothing."""
    findings = []
    for node, here in interfaces.items():
        env = envs.get(node, {})
        gone = []
        value = env.get(NCCL_IF)
        if value is not None and len(value) > 1 and not select_interfaces(value, here):
            gone.append(NCCL_IF)
        names = gloo_names(env.get(GLOO_IF))
        if not judge_gloo(env.get(GLOO_IF)) and any(n not in here for n in names):
            gone.append(GLOO_IF)
        if gone:
            findings.append(
                fail(
                    "socket_ifname_missing_on_node",
                    about(node=node),
                    " and ".join(f"{name}={env[name]}" for name in gone)
                    + f" names no interface here ({', '.join(here)})",
                    "resolve the interface on each node from the route to the head",
                    interfaces=",".join(here),
                    **{name: env[name] for name in gone},
                )
            )
    return findings


def judge_gloo(value: str | None, subject: str = f"var={GLOO_IF}") -> list[Finding]:
    """gloo_ifname_not_a_name when an entry cannot be the name of an interface."""
    wrong = [name for name in gloo_names(value) if not _INTERFACE.fullmatch(name)]
    if not wrong:
        return []
    return [
        fail(
            "gloo_ifname_not_a_name",
            subject,
            f"{GLOO_IF}={value}: Gloo takes names of interfaces, and {wrong[0]!r} cannot be one",
            "write the resolved interface name on each node; exclusion is NCCL's syntax only",
            value=value,
        )
    ]
