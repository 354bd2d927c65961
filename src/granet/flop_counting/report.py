"""The result of a FLOPs count: products layer by layer, the work that no mask shrinks, and what was not counted.

It is shown as a text table, as JSON and as CSV.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KINDS = (
    "activation",
    "average pooling",
    "bias",
    "elementwise",
    "interpolation",
    "max pooling",
    "normalisation",
    "reduction",
    "softmax",
)
"""The kinds of work that no mask shrinks."""
_COLUMNS = ("layer", "shape", "density", "FLOPs dense", "FLOPs sparse")


@dataclass(frozen=True)
class LayerFlops:
    """The products of one weight, or of one module without weights; a layer called twice counts twice in one row.

    `name` is the layer's name in the model. Where a module multiplies by something other than its `weight`, it is the
    name of that parameter; where two activations are multiplied, it is the module that does so.
    """

    name: str
    weights: int
    """Elements of the weight; 0 where two activations are multiplied."""
    active: int
    dense: int
    """FLOPs when every weight is used."""
    sparse: int
    """FLOPs when only active weights are used."""
    kind: str = "matrix product"
    """`convolution`, `matrix product`, `attention` or `recurrent`."""
    parameter: str | None = None
    """The parameter's full name, the one that masks go by."""
    shape: tuple[int, ...] = ()
    """Shape of the parameter."""

    @property
    def density(self) -> float:
        """The share of active weights; 1 where there is no weight."""
        return self.active / self.weights if self.weights else 1.0


@dataclass(frozen=True)
class FixedFlops:
    """Work of one kind in one module that is the same whatever the masks say."""

    name: str
    kind: str
    flops: int


@dataclass(frozen=True)
class FlopsReport:
    """FLOPs of one forward pass: the whole model by `dense`, `sparse` and `ratio`, each layer by `rows`.

    The totals are those of the products. Work that no mask shrinks is in `fixed`, and `report.including(...)` adds it
    to the totals. Operators whose arithmetic the counter does not know are named in `unknown`; they count as zero.
    """

    rows: tuple[LayerFlops, ...]
    fixed: tuple[FixedFlops, ...] = ()
    unknown: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    """The kinds of fixed work that are part of the totals."""

    @property
    def dense(self) -> int:
        """FLOPs when every weight is used."""
        return sum(row.dense for row in self.rows) + self._fixed_included

    @property
    def sparse(self) -> int:
        """FLOPs when only active weights are used."""
        return sum(row.sparse for row in self.rows) + self._fixed_included

    @property
    def ratio(self) -> float:
        """`sparse / dense`: the share of the arithmetic that is left."""
        return self.sparse / self.dense

    @property
    def fixed_by_kind(self) -> dict[str, int]:
        """The work that no mask shrinks, kind by kind."""
        return {kind: total for kind in KINDS if (total := sum(f.flops for f in self.fixed if f.kind == kind))}

    def including(self, *kinds: str) -> FlopsReport:
        """The same count with these kinds of fixed work in its totals; without arguments, all of them."""
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(f"kinds={kind!r}: must be among {', '.join(KINDS)}")
        return dataclasses.replace(self, included=kinds or KINDS)

    def with_active(self, active: Mapping[str, int]) -> FlopsReport:
        """The same pass with these numbers of active weights in parameters: sparse = dense * active / weights.

        Exact if each use of a parameter reads all of it; for a part, the parameter's mean density is assumed.
        Parameters that no product uses cost nothing.
        """
        rows = []
        for row in self.rows:
            if row.parameter is not None and (count := active.get(row.parameter)) is not None:
                if not 0 <= count <= row.weights:
                    raise ValueError(
                        f"active[{row.parameter!r}]={count!r}: must be from 0 to its {row.weights} weights"
                    )
                row = dataclasses.replace(row, active=count, sparse=row.dense * count // max(row.weights, 1))
            rows.append(row)
        return dataclasses.replace(self, rows=tuple(rows))

    def __str__(self) -> str:
        """One line for each layer, the totals, then what is not part of them."""
        table = [_COLUMNS, *(_cells(row) for row in self.rows)]
        included = {kind: flops for kind, flops in self.fixed_by_kind.items() if kind in self.included}
        table += [(f"({kind})", "", "", f"{flops:,}", f"{flops:,}") for kind, flops in included.items()]
        tensors = {row.parameter or number: row for number, row in enumerate(self.rows)}.values()  # a tied one once
        weights, active = sum(row.weights for row in tensors), sum(row.active for row in tensors)
        density = f"{active / weights:.4f}" if weights else ""
        table.append(("total", f"{weights:,} weights", density, f"{self.dense:,}", f"{self.sparse:,}"))
        widths = [max(len(line[column]) for line in table) for column in range(len(_COLUMNS))]
        lines = [_aligned(line, widths) for line in table]
        rule = "-" * len(lines[0])
        lines = [lines[0], rule, *lines[1:-1], rule, lines[-1], f"{self.ratio:.4f} of the dense FLOPs"]
        left_out = [f"{kind} {flops:,}" for kind, flops in self.fixed_by_kind.items() if kind not in self.included]
        if left_out:
            lines.append(f"not in the total, the same at any sparsity: {', '.join(left_out)}")
        if self.unknown:
            lines.append(f"not counted, no formula: {', '.join(self.unknown)}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Totals, rows, fixed work and unknown operators, as JSON."""
        content = {
            "dense": self.dense,
            "sparse": self.sparse,
            "ratio": self.ratio,
            "included": self.included,
            "rows": [dataclasses.asdict(row) | {"density": row.density} for row in self.rows],
            "fixed": [dataclasses.asdict(fixed) for fixed in self.fixed],
            "unknown": self.unknown,
        }
        return json.dumps(content, indent=2) + "\n"

    def to_csv(self) -> str:
        """The rows, as CSV with a header."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["name", "kind", "parameter", "shape", "weights", "active", "density", "dense", "sparse"])
        for row in self.rows:
            sizes = [row.weights, row.active, row.density, row.dense, row.sparse]
            writer.writerow([row.name, row.kind, row.parameter, _shape(row), *sizes])
        return text.getvalue()

    @property
    def _fixed_included(self) -> int:
        return sum(fixed.flops for fixed in self.fixed if fixed.kind in self.included)


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
