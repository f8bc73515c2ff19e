"""nccl-tests (`all_reduce_perf` and its sisters): speed of the largest size, and the data check.

A row has size, count, type, redop, root, and then time, algbw, busbw, #wrong twice: out of place
and in place. `#wrong` is N/A without a check (-c 0), which is not 0. The footer's average mixes all
sizes, so it says nothing about a sweep. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurmmiles.findings import about, fail, unreadable, warn
from slurmmiles.preflight.text import integer, number, plain
from slurmmiles.report import Finding

_FOOTER = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\s+(\w+)", re.ASCII)
_ROW_FIELDS = 13


@dataclass(frozen=True, slots=True)
class Size:
    """One row; bus bandwidths in GB/s, wrong elements or None where no check was made."""

    bytes: int
    out_of_place: float
    in_place: float
    wrong: tuple[int | None, int | None]

    @property
    def busbw(self) -> float:
        """The slower of the two, which is what a program can count on."""
        return min(self.out_of_place, self.in_place)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A whole run; `out_of_bounds` is the footer's count, None where it has no footer."""

    sizes: tuple[Size, ...]
    out_of_bounds: int | None
    failed: bool

    @property
    def largest(self) -> Size:
        return max(self.sizes, key=lambda s: s.bytes)

    @property
    def wrong(self) -> int:
        return sum(w or 0 for s in self.sizes for w in s.wrong)

    @property
    def is_checked(self) -> bool:
        return any(w is not None for s in self.sizes for w in s.wrong)


class BadSweep(ValueError):
    """The text is not a whole run of nccl-tests; the message says why."""


def parse_sweep(text: str) -> Sweep:
    """The rows and the footer; BadSweep without a row, or for a row that is cut."""
    sizes: list[Size] = []
    footer: tuple[int, str] | None = None
    for line in plain(text).splitlines():
        if found := _FOOTER.search(line):
            footer = (int(found[1]), found[2])
        elif re.match(r"\s*\d", line):
            sizes.append(_size(line.split()))
    if not sizes:
        raise BadSweep("it has no row of results")
    return Sweep(
        tuple(sizes),
        out_of_bounds=footer[0] if footer else None,
        failed=bool(footer and footer[1].upper() != "OK"),
    )


def _size(fields: list[str]) -> Size:
    """The first 13 fields; -I and -S of newer versions add more behind them."""
    size = integer(fields[0])
    if len(fields) < _ROW_FIELDS or size is None:
        raise BadSweep(f"the row {' '.join(fields)[:60]!r} is cut")
    speeds = [number(fields[7]), number(fields[11])]
    wrong = [None if f.upper() == "N/A" else integer(f) for f in (fields[8], fields[12])]
    checked = [f.upper() != "N/A" for f in (fields[8], fields[12])]
    if None in speeds or any(c and w is None for c, w in zip(checked, wrong, strict=True)):
        raise BadSweep(f"the row of {size} bytes has words where numbers belong")
    return Size(size, speeds[0] or 0.0, speeds[1] or 0.0, (wrong[0], wrong[1]))


def judge_sweep(
    text: str, file: str, *, floor_gb_s: float | None = None, subject: str = ""
) -> list[Finding]:
    """data_corruption, data_not_checked_info is left to the caller; collective_slow below a floor.

    More than the NICs' rate is no error: with two nodes tree and NVLS-tree send less over the wire
    (nccl#1576). Judge NICs by sendrecv or all-to-all.
    """
    try:
        sweep = parse_sweep(text)
    except BadSweep as error:
        return [unreadable(file, str(error))]
    subject = subject or about(file=file)
    largest = sweep.largest
    if sweep.wrong or sweep.failed or sweep.out_of_bounds:
        count = max(sweep.wrong, sweep.out_of_bounds or 0)
        return [
            fail(
                "data_corruption",
                subject,
                f"{count} elements came out wrong",
                "do not start: find the GPU or link by running the check in smaller groups",
                wrong=count,
                busbw_gb_s=largest.busbw,
            )
        ]
    if floor_gb_s is not None and largest.busbw < floor_gb_s:
        return [
            warn(
                "collective_slow",
                subject,
                f"{largest.busbw:.1f} GB/s at {largest.bytes} bytes, where {floor_gb_s:g} are"
                " expected",
                "measure pairs of nodes to find the slow one",
                busbw_gb_s=largest.busbw,
                expected=floor_gb_s,
            )
        ]
    return []
