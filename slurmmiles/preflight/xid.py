"""Xid messages of NVIDIA's driver in the kernel log, within a window and after the last boot. Pure.

NVIDIA's Xid catalogue says what each asks for; the map here is the part of it that decides whether
a run may start. A number that is not in the map is a warning, never nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurmmiles.findings import about, fail, info, unknown, warn
from slurmmiles.preflight.text import plain
from slurmmiles.report import Finding

REBOOT = frozenset({79})
RESET = frozenset({48, 64, 74, 95, 119, 120})
NOTE = frozenset({43, 63, 92})
CONTAINED = frozenset({94})
APPLICATION = frozenset({13, 31})
RECOVERY_ACTION = 154
WINDOW_S = 7200.0

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)]*\): (\d{1,5})\b,?\s*(.*)", re.ASCII)
_BOOT = re.compile(r"boot marker|Linux version \d", re.ASCII)
_ISO = re.compile(r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)", re.ASCII)
_CTIME = re.compile(
    r"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (\w{3}) +(\d+) ([0-9:]{8}) (\d{4})", re.ASCII
)
# What every line of a kernel's log has: seconds since the boot, a time, or the word kernel.
_KERNEL = re.compile(r"\[ *\d+\.\d+\]|\bkernel: |NVRM: ", re.ASCII)
_REFUSED = re.compile(r"not permitted|permission denied|read kernel buffer failed", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Xid:
    """One message; `at` None: its line has no time that can be read."""

    gpu: str
    code: int
    text: str
    at: datetime | None


def parse_xids(text: str) -> tuple[list[Xid], datetime | None]:
    """The messages in order and the time of the last boot that the log shows."""
    found: list[Xid] = []
    boot: datetime | None = None
    for line in plain(text).splitlines():
        if message := _XID.search(line):
            found.append(Xid(message[1].lower(), int(message[2]), message[3], stamp(line)))
        elif _BOOT.search(line):
            boot = stamp(line) or boot
    return found, boot


def stamp(line: str) -> datetime | None:
    """The time that a line begins with: ISO, or as `dmesg -T` writes it; the zone is not read."""
    row = line.strip()
    try:
        if iso := _ISO.match(row):
            return datetime.strptime(f"{iso[1]} {iso[2]}", "%Y-%m-%d %H:%M:%S")
        if ctime := _CTIME.match(row):
            return datetime.strptime(" ".join(ctime.groups()), "%b %d %H:%M:%S %Y")
    except ValueError:
        return None
    return None


def parse_now(text: str) -> tuple[datetime | None, float]:
    """The moment of the check and the window in seconds, from `TIME` and `window_seconds=N`."""
    window = re.search(r"window_seconds\s*=\s*(\d{1,9})", text, re.ASCII)
    times = (stamp(line) for line in plain(text).splitlines())
    return next((t for t in times if t), None), float(window[1]) if window else WINDOW_S


def judge_xids(
    text: str, now: datetime | None, window_s: float = WINDOW_S, node: str = ""
) -> list[Finding]:
    """xid_fatal, xid_warning, xid_unknown_code, xid_info; xid_log_unreadable without a log.

    A message counts when it came after the last boot and within the window; a message whose time
    cannot be read counts.
    """
    is_log = any(_KERNEL.search(line) or stamp(line) for line in plain(text).splitlines())
    if not is_log or _REFUSED.search(text[:2000]):
        return [
            unknown(
                "xid_log_unreadable",
                about(node=node),
                "the kernel log cannot be read (kernel.dmesg_restrict), so Xids are not known",
                "let the job read the kernel log, or ask the administrator for its Xids",
            )
        ]
    messages, boot = parse_xids(text)
    start = now - timedelta(seconds=window_s) if now else None
    findings: list[Finding] = []
    for xid in messages:
        old = xid.at is not None and (
            (start is not None and xid.at < start) or (boot is not None and xid.at < boot)
        )
        findings += _judge(xid, about(node=node, gpu=xid.gpu), old=old)
    return findings


def _judge(xid: Xid, subject: str, *, old: bool) -> Iterator[Finding]:
    said = f"Xid {xid.code}: {xid.text[:120]}"
    if old:
        yield info("xid_info", subject, f"{said} (before the last boot or the window)")
    elif xid.code in REBOOT | RESET or (xid.code == RECOVERY_ACTION and _asks(xid.text)):
        action = "reboot" if xid.code in REBOOT else "reset the GPU of"
        yield fail("xid_fatal", subject, said, f"{action} this node before the run", xid=xid.code)
    elif xid.code in NOTE or xid.code == RECOVERY_ACTION:
        yield info("xid_info", subject, said, xid=xid.code)
    elif xid.code in CONTAINED | APPLICATION:
        remedy = (
            "the job that had it is dead; look at remapped rows"
            if xid.code in CONTAINED
            else "usually the fault of the program that ran; watch whether it comes again"
        )
        yield warn("xid_warning", subject, said, remedy, xid=xid.code)
    else:
        yield warn(
            "xid_unknown_code", subject, said, "look it up in NVIDIA's Xid catalogue", xid=xid.code
        )


def _asks(text: str) -> bool:
    """Whether `GPU recovery action changed from X to Y` ends in an action."""
    target = text.rpartition(" to ")[2].lower()
    return any(word in target for word in ("reset", "reboot", "drain"))
