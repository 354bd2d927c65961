"""A plan: the operators of a network that an engine runs, in order, with the shape of every value known.

Values are float32 tensors in PyTorch's order of elements, batch size included, and are known by number: the inputs come
first, and then each operator makes one. Weights are :class:`Array` objects, also known by number, so that layers may
share one. A plan is checked as it is made: whoever holds one may rely on every number and every shape in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from granet.deploy.operators import Array, Op, Shape, check_shape, made_by, sources


@dataclass(frozen=True, eq=False)
class Plan:
    """Operators in the order they run in: value i is the i-th input, value len(inputs) + i what operator i makes."""

    inputs: tuple[Shape, ...]
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]
    """Values that operators made, each once."""
    arrays: tuple[Array, ...]

    def __post_init__(self) -> None:
        for number, array in enumerate(self.arrays):
            with _about(f"array {number}"):
                array.check()
        for number, shape in enumerate(self.inputs):
            with _about(f"input {number}"):
                check_shape(shape)
        if not self.inputs or not self.ops or not self.outputs:
            raise ValueError("a plan must have inputs, operators and outputs")
        made = range(len(self.inputs), len(self.inputs) + len(self.ops))
        if any(output not in made for output in self.outputs) or len(set(self.outputs)) < len(self.outputs):
            raise ValueError(f"outputs {list(self.outputs)}: must be different values from {made.start} to {made[-1]}")
        self.shapes  # noqa: B018 - every operator is checked

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Of every value."""
        shapes = list(self.inputs)
        for number, op in enumerate(self.ops):
            with _about(f"operator {number} ({type(op).__name__.lower()})"):
                shapes.append(made_by(op, shapes, [array.shape for array in self.arrays]))
        return tuple(shapes)

    @cached_property
    def last_use(self) -> tuple[int, ...]:
        """For every value, the last operator that reads it; len(ops) for outputs, -1 if nothing does."""
        last = [-1] * len(self.shapes)
        for number, op in enumerate(self.ops):
            for source in sources(op):
                last[source] = number
        for output in self.outputs:
            last[output] = len(self.ops)
        return tuple(last)

    @cached_property
    def memory(self) -> int:
        """Bytes of the weights, zeros included, and of the values that are needed at once, at most."""
        live, most = sum(math.prod(shape) for shape in self.inputs), 0
        leave = [0] * (len(self.ops) + 1)
        for value, last in enumerate(self.last_use):
            leave[last] += math.prod(self.shapes[value])
        for number, shape in enumerate(self.shapes[len(self.inputs) :]):
            live += math.prod(shape)
            most = max(most, live)
            live -= leave[number]
        return 4 * (most + sum(array.size for array in self.arrays))


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Errors begin with what they are about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
