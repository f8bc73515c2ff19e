"""linux-rdma/perftest (`ib_write_bw`, `ib_send_bw`): its tables and its JSON, in Gbit/s. Pure.

The header tells the unit: Gb/sec with --report_gbits, else MiB/sec, which older versions call
MB/sec and mean the same 2^20 bytes. The JSON tells none, so it is read only from a run that was
made with --report_gbits. `-b` sums both directions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from slurmmiles.findings import about, fail, unreadable
from slurmmiles.preflight.text import number, plain
from slurmmiles.report import Finding

_HEADER = re.compile(r"#bytes\s+#iterations\s+BW peak\[([^\]]+)\]\s+BW average\[([^\]]+)\]", re.I)
# Gbit/s of one unit of bandwidth: 2^20 bytes a second are 8.388608 Mbit/s.
UNITS = {"gb/sec": 1.0, "mib/sec": 8 * 2**20 / 1e9, "mb/sec": 8 * 2**20 / 1e9}
# A link is well at this part of its rate: 380 of 400 Gbit/s (AzNHC, OCI).
FLOOR = 0.95
# Both directions at once: imbue's cluster-health asks 720 of 800 Gbit/s.
FLOOR_BOTH = 0.9


@dataclass(frozen=True, slots=True)
class Transfer:
    """One row: message size in bytes, iterations, peak and average in Gbit/s."""

    bytes: int
    iterations: int
    peak: float
    average: float


class BadPerftest(ValueError):
    """The text is not a whole result of perftest; the message says why."""


def parse_table(text: str) -> tuple[Transfer, ...]:
    """The rows below the header; BadPerftest without a header, a known unit or a row."""
    unit: float | None = None
    rows: list[Transfer] = []
    for line in plain(text).splitlines():
        if header := _HEADER.search(line):
            units = [UNITS.get(u.strip().lower()) for u in header.groups()]
            if None in units or units[0] != units[1]:
                raise BadPerftest(f"its unit is {header[1][:20]!r}")
            unit = units[0]
        elif unit is not None and re.match(r"\s*\d", line):
            values = [number(field) for field in line.split()]
            if len(values) < 4 or None in values[:4]:
                raise BadPerftest(f"{line.strip()[:60]!r} is no row of results")
            size, iterations, peak, average = (v or 0.0 for v in values[:4])
            rows.append(Transfer(int(size), int(iterations), peak * unit, average * unit))
    if unit is None:
        raise BadPerftest("it has no header with a unit")
    if not rows:
        raise BadPerftest("it has no row of results")
    return tuple(rows)


def parse_json(text: str, *, report_gbits: bool) -> Transfer:
    """The result of --out_json; BadPerftest when the run was made without --report_gbits."""
    if not report_gbits:
        raise BadPerftest("its JSON tells no unit, and the run was made without --report_gbits")
    try:
        said = json.loads(text)["results"]
        return Transfer(
            bytes=int(said["MsgSize"]),
            iterations=int(said["n_iterations"]),
            peak=float(said["BW_peak"]),
            average=float(said["BW_average"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BadPerftest(f"it is not perftest's JSON ({type(error).__name__})") from error


def judge_transfer(
    transfer: Transfer,
    rate_gbit: float,
    subject: str,
    *,
    bidirectional: bool = False,
    floor: float | None = None,
) -> list[Finding]:
    """ib_bandwidth_low below `floor` of the link's rate, of twice the rate with -b."""
    part = floor or (FLOOR_BOTH if bidirectional else FLOOR)
    wanted = part * rate_gbit * (2 if bidirectional else 1)
    if transfer.average >= wanted:
        return []
    return [
        fail(
            "ib_bandwidth_low",
            subject,
            f"{transfer.average:.1f} Gbit/s where at least {wanted:.0f} are expected of a link of"
            f" {rate_gbit:g}" + (", both directions together" if bidirectional else ""),
            "measure again with another partner; then check PCIe width, cable and switch port",
            gbit_s=transfer.average,
            expected=wanted,
        )
    ]


def judge_text(
    text: str, rate_gbit: float, nic: str, *, bidirectional: bool = False, file: str = "perftest"
) -> list[Finding]:
    """judge_transfer for the largest message of a table."""
    try:
        rows = parse_table(text)
    except BadPerftest as error:
        return [unreadable(file, str(error))]
    largest = max(rows, key=lambda r: r.bytes)
    return judge_transfer(largest, rate_gbit, about(nic=nic), bidirectional=bidirectional)
