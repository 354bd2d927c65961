"""The operators of a plan and their weights: what each reads, what each makes, and what makes one impossible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
Pair = tuple[int, int]

ACTIVATIONS = ("", "relu", "relu6")
"""What an operator may do to each element of its result at last: nothing, max(0, x), or min(max(0, x), 6)."""
LARGEST = 2**31 - 1
"""The most elements of a weight or a value: kernels count them in 32 bits."""
LARGEST_STEP = 1024
"""The largest stride, padding, dilation, or side of a kernel; no network is near it, and no sum of such overflows."""


@dataclass(frozen=True, eq=False)
class Array:
    """A weight: the values that are stored of it, and where they are among its elements; all others are zero."""

    shape: Shape
    positions: NDArray[np.uint32] | None
    """Ascending positions in the flattened weight; None if all elements are stored."""
    values: NDArray[np.float32]

    @classmethod
    def of(cls, dense: NDArray[np.float32]) -> Array:
        """Without its zeros, if most elements are zero."""
        flat = np.ascontiguousarray(dense, dtype=np.float32).reshape(-1)
        positions = np.flatnonzero(flat)
        if 2 * len(positions) > len(flat):
            return cls(dense.shape, None, flat)
        return cls(dense.shape, positions.astype(np.uint32), flat[positions])

    @property
    def size(self) -> int:
        """Its elements, zeros included."""
        return math.prod(self.shape)

    def dense(self) -> NDArray[np.float32]:
        """All elements, in their shape."""
        if self.positions is None:
            return self.values.reshape(self.shape)
        flat = np.zeros(self.size, dtype=np.float32)
        flat[self.positions] = self.values
        return flat.reshape(self.shape)

    def check(self) -> None:
        """ValueError unless it is what it says."""
        if not (all(side > 0 for side in self.shape) and self.size <= LARGEST):
            raise ValueError(f"shape {list(self.shape)}: must have from 1 to {LARGEST} elements")
        stored = self.size if self.positions is None else len(self.positions)
        if len(self.values) != stored:
            raise ValueError(f"has {len(self.values)} values for {stored} positions")
        if not np.isfinite(self.values).all():
            raise ValueError("has values that are not finite")
        if self.positions is not None and stored:
            if int(self.positions[-1]) >= self.size:
                raise ValueError(f"position {self.positions[-1]}: must be below {self.size}")
            if not (self.positions[1:] > self.positions[:-1]).all():
                raise ValueError("positions must ascend")


@dataclass(frozen=True)
class Conv:
    """act(weight * source + bias + residual): [N, C, H, W] to [N, O, H', W'], the weight [O, C / groups, KH, KW]."""

    source: int
    weight: int
    bias: int | None = None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    residual: int | None = None
    """A value of the result's shape."""
    activation: str = ""


@dataclass(frozen=True)
class Linear:
    """act(source weight^T + bias): [..., I] to [..., O], the weight [O, I]."""

    source: int
    weight: int
    bias: int | None = None
    activation: str = ""


@dataclass(frozen=True)
class Pool:
    """The largest or the mean element of each window: [N, C, H, W] to [N, C, H', W']; padding is never the largest."""

    source: int
    kind: str
    """``max`` or ``mean``"""
    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil: bool = False
    """Whether windows that begin inside may end outside (PyTorch's ``ceil_mode``)."""
    count_padding: bool = True
    """Whether a mean counts the padding as zeros; what `ceil` adds beyond it is never counted."""


@dataclass(frozen=True)
class AdaptivePool:
    """The mean over [floor(i H / H'), ceil((i + 1) H / H')) and likewise for W; size (1, 1) is the global mean."""

    source: int
    size: Pair


@dataclass(frozen=True)
class Add:
    """act(source + other), two values of the same shape."""

    source: int
    other: int
    activation: str = ""


@dataclass(frozen=True)
class Activation:
    """act(source)."""

    source: int
    activation: str = "relu"


@dataclass(frozen=True)
class Flatten:
    """[N, ...] to [N, everything]: the elements stay in their order."""

    source: int


Op = Conv | Linear | Pool | AdaptivePool | Add | Activation | Flatten


def sources(op: Op) -> tuple[int, ...]:
    """The values that it reads."""
    match op:
        case Add():
            return (op.source, op.other)
        case Conv(residual=int(residual)):
            return (op.source, residual)
        case _:
            return (op.source,)


def arrays_of(op: Op) -> tuple[int, ...]:
    """The weights that it reads."""
    match op:
        case Conv() | Linear():
            return (op.weight,) if op.bias is None else (op.weight, op.bias)
        case _:
            return ()


def made_by(op: Op, shapes: Sequence[Shape], arrays: Sequence[Shape]) -> Shape:
    """The shape of what it makes of values and weights of these shapes; ValueError if it cannot run."""
    for source in sources(op):
        if not 0 <= source < len(shapes):
            raise ValueError(f"value {source}: must be one from 0 to {len(shapes) - 1}, made before")
    for array in arrays_of(op):
        if not 0 <= array < len(arrays):
            raise ValueError(f"array {array}: must be one of the {len(arrays)} there are")
    if isinstance(op, Conv | Linear | Add | Activation) and op.activation not in ACTIVATIONS:
        raise ValueError(f"activation {op.activation!r}: must be one of {', '.join(map(repr, ACTIVATIONS))}")
    made = _made_by(op, shapes, arrays)
    check_shape(made)
    return made


def _made_by(op: Op, shapes: Sequence[Shape], arrays: Sequence[Shape]) -> Shape:
    shape = shapes[op.source]
    match op:
        case Conv():
            return _convolved(op, shapes, arrays)
        case Linear():
            weight = arrays[op.weight]
            if len(weight) != 2 or shape[-1] != weight[1]:
                raise ValueError(f"weight {list(weight)} does not fit {list(shape)}")
            _check_bias(op.bias, weight[0], arrays)
            return (*shape[:-1], weight[0])
        case Pool():
            return _pooled(op, shape)
        case AdaptivePool():
            _check_image(shape)
            if not all(0 < new <= old for new, old in zip(op.size, shape[2:], strict=True)):
                raise ValueError(f"size {list(op.size)}: must be from 1 to that of {list(shape)}")
            return (*shape[:2], *op.size)
        case Add():
            if shapes[op.other] != shape:
                raise ValueError(f"cannot add {list(shapes[op.other])} to {list(shape)}")
            return shape
        case Activation():
            if not op.activation:
                raise ValueError("activation '': must be one that does something")
            return shape
        case Flatten():
            return (shape[0], math.prod(shape[1:]))


def _convolved(op: Conv, shapes: Sequence[Shape], arrays: Sequence[Shape]) -> Shape:
    shape, weight = shapes[op.source], arrays[op.weight]
    _check_image(shape)
    _check_steps("stride", op.stride, 1)
    _check_steps("padding", op.padding, 0)
    _check_steps("dilation", op.dilation, 1)
    if len(weight) != 4 or max(weight[2:]) > LARGEST_STEP:
        raise ValueError(f"weight {list(weight)}: must be [out, in / groups, height, width]")
    if op.groups < 1 or weight[1] * op.groups != shape[1] or weight[0] % op.groups:
        raise ValueError(f"weight {list(weight)} in {op.groups} groups does not fit {list(shape)}")
    _check_bias(op.bias, weight[0], arrays)
    reach = tuple(dilation * (kernel - 1) + 1 for dilation, kernel in zip(op.dilation, weight[2:], strict=True))
    sides = zip(shape[2:], op.padding, reach, op.stride, strict=True)
    made = (shape[0], weight[0], *((side + 2 * pad - far) // step + 1 for side, pad, far, step in sides))
    if op.residual is not None and shapes[op.residual] != made:
        raise ValueError(f"cannot add {list(shapes[op.residual])} to {list(made)}")
    return made


def _pooled(op: Pool, shape: Shape) -> Shape:
    _check_image(shape)
    _check_steps("kernel", op.kernel, 1)
    _check_steps("stride", op.stride, 1)
    _check_steps("padding", op.padding, 0)
    if op.kind not in ("max", "mean"):
        raise ValueError(f"kind {op.kind!r}: must be 'max' or 'mean'")
    if any(2 * pad > side for pad, side in zip(op.padding, op.kernel, strict=True)):
        raise ValueError(f"padding {list(op.padding)}: must be at most half the kernel {list(op.kernel)}")
    made = []
    for side, pad, kernel, step in zip(shape[2:], op.padding, op.kernel, op.stride, strict=True):
        windows = (side + 2 * pad - kernel + (step - 1 if op.ceil else 0)) // step + 1
        if op.ceil and (windows - 1) * step >= side + pad:
            windows -= 1  # it would begin outside
        made.append(windows)
    return (*shape[:2], *made)


def check_shape(shape: Shape) -> None:
    if not shape or not all(side > 0 for side in shape) or math.prod(shape) > LARGEST:
        raise ValueError(f"shape {list(shape)}: must have from 1 to {LARGEST} elements")


def _check_image(shape: Shape) -> None:
    if len(shape) != 4:
        raise ValueError(f"shape {list(shape)}: must be [batch, channels, height, width]")


def _check_steps(name: str, pair: Pair, least: int) -> None:
    if not all(least <= step <= LARGEST_STEP for step in pair):
        raise ValueError(f"{name} {list(pair)}: must be from {least} to {LARGEST_STEP}")


def _check_bias(bias: int | None, width: int, arrays: Sequence[Shape]) -> None:
    if bias is not None and arrays[bias] != (width,):
        raise ValueError(f"bias {list(arrays[bias])}: must be [{width}]")
