"""`nvidia-smi --query-gpu=... --format=csv`: which GPUs there are, and each queried field. Pure."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmmiles.findings import about, info, unknown, warn
from slurmmiles.preflight.products import Product, product_of
from slurmmiles.preflight.text import integer, plain, table
from slurmmiles.report import Finding


@dataclass(frozen=True, slots=True)
class QueriedGpu:
    """One row; `fields` by the query's own names in lower case, without units."""

    index: int
    fields: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.fields.get("name", "")

    @property
    def product(self) -> Product | None:
        return product_of(self.name)


class BadQuery(ValueError):
    """The text is not a whole answer of nvidia-smi; the message says why."""


def parse_query(text: str) -> tuple[QueriedGpu, ...]:
    """Rows by index; without a header the columns are index and name. BadQuery otherwise."""
    lines = [line for line in plain(text).splitlines() if line.strip()]
    if not lines:
        raise BadQuery("it is empty")
    if integer(lines[0].split(",")[0]) is None:
        rows = table(text)
        if rows is None or "index" not in rows[0]:
            raise BadQuery(f"it has no column index, or a row is cut ({lines[0][:60]!r})")
    else:
        try:
            cells = list(csv.reader(lines, skipinitialspace=True))
        except csv.Error as error:
            raise BadQuery(str(error)) from error
        width = len(cells[0])
        if any(len(row) != width for row in cells) or width < 2:
            raise BadQuery("a row is cut")
        rows = [{"index": row[0].strip(), "name": row[1].strip()} for row in cells]
    found = [QueriedGpu(_index(row["index"]), row) for row in rows]
    if len({g.index for g in found}) != len(found):
        raise BadQuery("an index stands twice")
    if any("name" in g.fields and not g.name for g in found):
        raise BadQuery("a GPU has no name")
    return tuple(sorted(found, key=lambda g: g.index))


def _index(text: str) -> int:
    found = integer(text)
    if found is None or found < 0:
        raise BadQuery(f"{text[:20]!r} is no index of a GPU")
    return found


def judge_products(gpus: Sequence[QueriedGpu], node: str = "") -> list[Finding]:
    """gpu_products_differ, gpu_product_unknown, fp8_unsupported_info."""
    names = sorted({g.name for g in gpus if g.name})
    findings: list[Finding] = []
    if len(names) > 1:
        findings.append(
            warn(
                "gpu_products_differ",
                about(node=node),
                f"its GPUs are of {len(names)} kinds: {', '.join(names)}",
                "use nodes with one kind of GPU: the slowest sets the pace",
                products=", ".join(names),
            )
        )
    for name in names:
        product = product_of(name)
        if product is None:
            findings.append(
                unknown(
                    "gpu_product_unknown",
                    about(node=node),
                    f"{name!r} is not in the table of products, so what it should show is unknown",
                    "compare with its data sheet",
                    product=name,
                )
            )
        elif not product.fp8:
            findings.append(
                info(
                    "fp8_unsupported_info",
                    about(node=node),
                    f"{name} has no FP8: only bf16 recipes run on it"
                    if product.bf16
                    else f"{name} has neither FP8 nor bf16",
                    product=name,
                )
            )
    return findings
