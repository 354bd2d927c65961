"""Whether a plan may run in 16 bits: no sum is too large for them, and its outputs stay what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from granet.deploy.compiled import Engine
from granet.deploy.interpret import Interpreter
from granet.deploy.operators import Array, Conv, Linear, Op, sources
from granet.deploy.plan import Plan
from granet.deploy.unsupported import Unsupported

LARGEST_SUM = 65504 / 4
"""A quarter of the largest half: other inputs may be larger than those that were tried."""
LARGEST_ERROR = 5e-3
"""Of each output, as root mean square, relative to the output's."""

Inputs = Sequence[Tensor]


def check_halves(engine: Engine, plan: Plan, tried: Sequence[Inputs]) -> None:
    """`Unsupported` unless these inputs may be run by this engine."""
    sums = _Sums(plan)
    for inputs in tried:
        expected = sums(*inputs)
        if not sums.largest <= LARGEST_SUM:
            raise Unsupported(f"sums reach {sums.largest:.3g}, and are safe in 16 bits up to {LARGEST_SUM:g}")
        for number, (one, other) in enumerate(zip(engine(*inputs), expected, strict=True)):
            error = float((one - other).square().mean().sqrt())
            if not error <= LARGEST_ERROR * float(other.square().mean().sqrt()):
                raise Unsupported(f"output {number} is off by {error:.2g} (root mean square) in 16 bits")


class _Sums(Interpreter):
    """Notes how large a sum of any of the terms of an element can be, in whatever order an engine adds them."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        arrays = tuple(Array(array.shape, array.positions, np.abs(array.values)) for array in plan.arrays)
        self._magnitudes = Interpreter(replace(plan, arrays=arrays))
        self.largest = 0.0

    def _run(self, op: Op, values: dict[int, Tensor]) -> Tensor:
        result = super()._run(op, values)
        bound = result
        if isinstance(op, Conv | Linear):
            bound = self._magnitudes._run(op, {number: values[number].abs() for number in sources(op)})
        most = float(bound.abs().max())
        self.largest = most if most > self.largest or most != most else self.largest
        return result


def random_inputs(plan: Plan) -> list[Tensor]:
    """The same each time."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in plan.inputs]
