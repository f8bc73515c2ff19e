"""NCCL_IB_HCA, NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME: what a value selects. Pure.

NCCL's rules (src/misc/utils.cc parseStringList and matchIfList, socket.cc): a comma list of
prefixes, `^` first excludes, `=` after that makes the whole list exact, an entry may carry `:port`,
blanks are part of a name, an empty list matches everything. Gloo takes plain names only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Names that no node may use between nodes: every Docker host has the same 172.17.0.1.
VIRTUAL = ("lo", "docker", "virbr", "veth", "br-", "cni", "flannel", "podman")


@dataclass(frozen=True, slots=True)
class NameList:
    """A value as NCCL parses it: (name, port or None) entries."""

    entries: tuple[tuple[str, int | None], ...]
    exclude: bool
    exact: bool

    @classmethod
    def parse(cls, value: str) -> NameList:
        exclude = value.startswith("^")
        value = value.removeprefix("^")
        exact = value.startswith("=")
        parts = [p.partition(":") for p in value.removeprefix("=").split(",")]
        entries = tuple((name, _port(port) if colon else None) for name, colon, port in parts)
        return cls(tuple(e for e in entries if e[0]), exclude, exact)

    def matches(self, entry: tuple[str, int | None], name: str, port: int) -> bool:
        wanted, at = entry
        named = name == wanted if self.exact else name.startswith(wanted)
        return named and at in (None, port)

    def selects(self, name: str, port: int) -> bool:
        listed = not self.entries or any(self.matches(e, name, port) for e in self.entries)
        return listed is not self.exclude


def _port(text: str) -> int:
    """As C's atoi: leading digits, 0 without any; `1:0:0` (port:rail:plane) is port 1."""
    digits = re.match(r"\s*(\d{1,9})", text, re.ASCII)
    return int(digits[1]) if digits else 0


def exact(names: Sequence[str]) -> str:
    """The value that selects these names and nothing else."""
    return "=" + ",".join(names)


def select_hcas(
    value: str | None, devices: Sequence[str], ports: Mapping[str, Sequence[int]] | None = None
) -> tuple[str, ...]:
    """The devices that NCCL takes for this NCCL_IB_HCA; `ports` of a device default to port 1."""
    names = NameList.parse(value or "")
    return tuple(d for d in devices if any(names.selects(d, p) for p in (ports or {}).get(d, (1,))))


def select_interfaces(value: str | None, interfaces: Sequence[str]) -> tuple[str, ...]:
    """The running interfaces that NCCL takes; unset or of one character: its own order of guesses.

    The guess by the subnet of NCCL_COMM_ID is left out, which needs addresses.
    """
    if value is not None and len(value) > 1:
        return tuple(i for i in interfaces if NameList.parse(value).selects(i, 0))
    for guess in ("ib", "^docker,lo,virbr", "docker", "lo", "virbr"):
        names = NameList.parse(guess)
        if found := tuple(i for i in interfaces if names.selects(i, 0)):
            return found
    return ()


def parse_addresses(text: str) -> dict[str, tuple[str, ...]]:
    """Interface to its IPv4 addresses, from `ip -o -4 addr`; lines of another form are left out."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        row = re.match(r"\d+:\s+(\S+)\s+inet\s+([0-9.]+)", line.strip())
        if row:
            name = row[1].partition("@")[0].rstrip(":")
            found[name] = (*found.get(name, ()), row[2])
    return found


def interface_towards(route: str, addresses: Mapping[str, Sequence[str]]) -> str | None:
    """The interface that owns the source address of `ip -4 -o route get HEAD`.

    On the head itself that command names `lo`, so its `dev` is not used. None when the address is
    of no interface, or only of one that other nodes cannot reach.
    """
    source = re.search(r"\bsrc\s+([0-9.]+)", route)
    if not source:
        return None
    owners = [name for name, owned in addresses.items() if source[1] in owned]
    return next((name for name in owners if not name.startswith(VIRTUAL)), None)


def gloo_names(value: str | None) -> tuple[str, ...]:
    """The names of GLOO_SOCKET_IFNAME; PyTorch ignores a value of one character or none."""
    return tuple(value.split(",")) if value is not None and len(value) > 1 else ()
