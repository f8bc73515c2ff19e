"""Ports of InfiniBand and RoCE: `ibstat`, and judges that serve its text and sysfs alike. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from slurmmiles.findings import about, fail, warn
from slurmmiles.name_lists import NameList
from slurmmiles.nics import NicFacts, NicKind, Role
from slurmmiles.preflight.text import integer, plain
from slurmmiles.report import Finding

_CA = re.compile(r"CA '([^']+)'")
# ibstat's words (infiniband-diags, ibstat.c) and sysfs' (drivers/infiniband/core/sysfs.c).
STATES = {
    "active": "ACTIVE",
    "initializing": "INIT",
    "init": "INIT",
    "armed": "ARMED",
    "down": "DOWN",
    "active_defer": "ACTIVE_DEFER",
    "no state change": "NOP",
}
_LAYERS = ("infiniband", "ethernet", "unspecified", "unknown")
# So many nodes at once whose ports wait for a subnet manager share one cause.
SUBNET_MANAGER_NODES = 3
_WAITING = ("INIT", "ARMED")


class BadPorts(ValueError):
    """The text is not whole output of ibstat; the message says why."""


def parse_ibstat(text: str) -> tuple[NicFacts, ...]:
    """One entry a port, roles not known; keys that are not used are ignored. BadPorts otherwise."""
    ports: list[dict[str, str]] = []
    device: dict[str, str] = {}
    for line in plain(text).splitlines():
        row = line.strip()
        if not row:
            continue
        if found := _CA.fullmatch(row):
            device = {"name": found[1]}
        elif found := re.fullmatch(r"Port (\d{1,3}):", row, re.ASCII):
            if "name" not in device:
                raise BadPorts("a port stands before its device")
            ports.append({**device, "port": found[1]})
        elif ":" in row:
            key, _, value = row.partition(":")
            (ports[-1] if ports and ports[-1]["name"] == device.get("name") else device).update(
                {key.strip().lower(): value.strip()}
            )
        else:
            raise BadPorts(f"{row[:60]!r} is no line of ibstat")
    named = {port["name"] for port in ports}
    if not ports or device.get("name") not in named:
        raise BadPorts("a device has no port" if device else "it names no device")
    return tuple(_port(port) for port in ports)


def _port(said: Mapping[str, str]) -> NicFacts:
    name = f"{said['name']} port {said['port']}"
    state = STATES.get(said.get("state", "").lower())
    layer = said.get("link layer", "")
    if state is None:
        raise BadPorts(f"the state of {name} is {said.get('state', 'missing')!r}")
    if layer.lower() not in _LAYERS:
        raise BadPorts(f"the link layer of {name} is {layer or 'missing'!r}")
    rate = integer(said.get("rate", ""))
    if rate is None:
        raise BadPorts(f"the rate of {name} is {said.get('rate', 'missing')!r}")
    return NicFacts(
        name=said["name"],
        port=int(said["port"]),
        kind=NicKind.IB if layer.lower() == "infiniband" else NicKind.ROCE,
        state=state,
        phys_state=said.get("physical state", ""),
        rate=float(rate),
        link_layer=layer,
        model=said.get("ca type", ""),
    )


def compute_ports(nics: Sequence[NicFacts], listed: NameList | None) -> tuple[NicFacts, ...]:
    """The ports that the run needs: those of the HCA list, else compute ports by role, else every
    InfiniBand port, else every Ethernet port that is in no bond.

    A port without a cable beside a working one of its device is unused, and so is, where no list
    names it, one of a card of another kind.
    """
    if listed is not None:
        wanted = [n for n in nics if listed.selects(n.name, n.port)]
    else:
        wanted = [n for n in nics if n.role is Role.COMPUTE]
        wanted = wanted or [n for n in nics if n.kind is NicKind.IB]
        wanted = wanted or [n for n in nics if n.kind is NicKind.ROCE and "bond" not in n.name]
    working = [n for n in wanted if n.is_up]
    devices, models = {n.name for n in working}, {n.model for n in working}
    return tuple(
        n
        for n in wanted
        if n.is_up
        or n.phys_state.lower() in ("linkup", "")
        or not (n.name in devices or (listed is None and n.model and n.model not in models))
    )


def judge_ports(
    nics: Sequence[NicFacts], listed: NameList | None = None, node: str = ""
) -> list[Finding]:
    """ib_port_not_active, ib_link_unstable and ib_rate_low for each port that the run needs.

    EFA and Slingshot ports have judges of their own; `listed` None: no HCA list is known.
    """
    needed = [n for n in compute_ports(nics, listed) if n.kind in (NicKind.IB, NicKind.ROCE)]
    findings = []
    for nic in needed:
        subject = about(node=node, nic=nic.name, port=nic.port if nic.port != 1 else "")
        if nic.state and nic.state != "ACTIVE":
            findings.append(_not_active(nic, subject))
        elif nic.phys_state and nic.phys_state.lower() != "linkup":
            findings.append(
                warn(
                    "ib_link_unstable",
                    subject,
                    f"it is active while its physical state is {nic.phys_state}",
                    "check the cable and the optics",
                    phys_state=nic.phys_state,
                )
            )
    return findings + _slow(needed, sure=listed is not None, node=node)


def _not_active(nic: NicFacts, subject: str) -> Finding:
    waits = nic.state in _WAITING and nic.phys_state.lower() in ("linkup", "")
    why = (
        "its cable is up and no subnet manager has configured it"
        if waits
        else f"its physical state is {nic.phys_state or 'not known'}"
    )
    return fail(
        "ib_port_not_active",
        subject,
        f"the port is {nic.state}: {why}; NCCL would go on without it and say nothing",
        "ask for the subnet manager" if waits else "have the cable and the port looked at",
        state=nic.state,
        phys_state=nic.phys_state,
    )


def _slow(nics: Sequence[NicFacts], *, sure: bool, node: str) -> list[Finding]:
    """Ports that are up below the usual rate; a failure where the port surely carries traffic."""
    rates = Counter(n.rate for n in nics if n.rate and n.state == "ACTIVE")
    if len(rates) < 2:
        return []
    usual = max(rates, key=lambda rate: (rates[rate], rate))
    findings = []
    for nic in nics:
        if nic.state != "ACTIVE" or not nic.rate or nic.rate >= usual:
            continue
        models = {n.model for n in nics if n.rate == usual}
        if not sure and not nic.near_gpu and nic.model and nic.model not in models:
            continue  # a card of another kind is of another network
        judge = fail if sure or nic.near_gpu or nic.model else warn
        findings.append(
            judge(
                "ib_rate_low",
                about(node=node, nic=nic.name),
                f"it runs at {nic.rate:g} Gbit/s where the others run at {usual:g}",
                "check the cable, the optics and the switch port",
                rate=nic.rate,
                usual=usual,
            )
        )
    return findings


def judge_ports_on_nodes(
    nodes: Mapping[str, Sequence[NicFacts]], listed: Mapping[str, NameList] | None = None
) -> list[Finding]:
    """judge_ports for each node; ports of three or more nodes that wait for a subnet manager are
    its fault and not the nodes'.
    """
    findings = {
        node: judge_ports(nics, (listed or {}).get(node), node) for node, nics in nodes.items()
    }
    waiting = {
        node
        for node, found in findings.items()
        if any(f.code == "ib_port_not_active" and f.evidence["state"] in _WAITING for f in found)
    }
    if len(waiting) < SUBNET_MANAGER_NODES:
        return [f for found in findings.values() for f in found]
    others = [
        f
        for found in findings.values()
        for f in found
        if not (f.code == "ib_port_not_active" and f.evidence["state"] in _WAITING)
    ]
    return [
        fail(
            "ib_port_not_active",
            about(fabric="subnet-manager"),
            f"ports of {len(waiting)} nodes wait for it: {', '.join(sorted(waiting))}",
            "ask the administrator for the subnet manager; no node is at fault",
            nodes=",".join(sorted(waiting)),
        ),
        *others,
    ]
