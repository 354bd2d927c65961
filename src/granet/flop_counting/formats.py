"""A FLOPs report as a text table, as JSON and as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence

from granet.flop_counting.report import FlopsReport, LayerFlops

_COLUMNS = ("layer", "shape", "density", "FLOPs dense", "FLOPs sparse")


def as_text(report: FlopsReport) -> str:
    """One line for each layer, the totals, then what is not part of them."""
    table = [_COLUMNS, *(_cells(row) for row in report.rows)]
    included = {kind: flops for kind, flops in report.fixed_by_kind.items() if kind in report.included}
    table += [(f"({kind})", "", "", f"{flops:,}", f"{flops:,}") for kind, flops in included.items()]
    tensors = {row.parameter or number: row for number, row in enumerate(report.rows)}.values()  # a tied one once
    weights, active = sum(row.weights for row in tensors), sum(row.active for row in tensors)
    density = f"{active / weights:.4f}" if weights else ""
    table.append(("total", f"{weights:,} weights", density, f"{report.dense:,}", f"{report.sparse:,}"))
    widths = [max(len(line[column]) for line in table) for column in range(len(_COLUMNS))]
    lines = [_aligned(line, widths) for line in table]
    rule = "-" * len(lines[0])
    lines = [lines[0], rule, *lines[1:-1], rule, lines[-1], f"{report.ratio:.4f} of the dense FLOPs"]
    left_out = [f"{kind} {flops:,}" for kind, flops in report.fixed_by_kind.items() if kind not in report.included]
    if left_out:
        lines.append(f"not in the total, the same at any sparsity: {', '.join(left_out)}")
    if report.unknown:
        lines.append(f"not counted, no formula: {', '.join(report.unknown)}")
    return "\n".join(lines)


def as_json(report: FlopsReport) -> str:
    """Totals, rows, fixed work and unknown operators."""
    content = {
        "dense": report.dense,
        "sparse": report.sparse,
        "ratio": report.ratio,
        "included": report.included,
        "rows": [dataclasses.asdict(row) | {"density": row.density} for row in report.rows],
        "fixed": [dataclasses.asdict(fixed) for fixed in report.fixed],
        "unknown": report.unknown,
    }
    return json.dumps(content, indent=2) + "\n"


def as_csv(report: FlopsReport) -> str:
    """A header and one line for each row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "kind", "parameter", "shape", "weights", "active", "density", "dense", "sparse"])
    for row in report.rows:
        sizes = [row.weights, row.active, row.density, row.dense, row.sparse]
        writer.writerow([row.name, row.kind, row.parameter, _shape(row), *sizes])
    return text.getvalue()


def _cells(row: LayerFlops) -> tuple[str, ...]:
    shape, density = (_shape(row), f"{row.density:.4f}") if row.weights else (f"({row.kind})", "")
    return row.name or "(model)", shape, density, f"{row.dense:,}", f"{row.sparse:,}"


def _shape(row: LayerFlops) -> str:
    return "x".join(map(str, row.shape))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Words to the left, numbers to the right."""
    aligned = [
        text.ljust(width) if column < 2 else text.rjust(width)
        for column, (text, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()
