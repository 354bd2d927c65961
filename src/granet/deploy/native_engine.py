"""A plan run by granet's own kernels, which gain from zeros."""

from __future__ import annotations

import math
from collections.abc import MutableMapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from granet.deploy.operators import Activation, AdaptivePool, Add, Array, Conv, Flatten, Linear, Op, Pool, Shape
from granet.deploy.plan import Plan
from granet.deploy.plan_json import op_record
from granet.deploy.unsupported import Unsupported
from granet.native import Choice, NativePlan, NativeUnsupported

_SECONDS = 0.2
"""For all the ways to compute one layer together."""

Choices = MutableMapping[str, list[int]]
"""How layers were found to be computed fastest, by what they are."""


class Native:
    """Several threads may call it at once, each with memory of its own. In 16 bits where asked for."""

    def __init__(self, plan: Plan, threads: int, bits: int = 32, isa: str | None = None) -> None:
        self._shapes = [plan.shapes[output] for output in plan.outputs]
        try:
            self._native = NativePlan(_batch(plan)[0], threads, isa, bits=bits)
            self.batch = self._native.batch
            self._layers = _lowered(plan, self._native)
            self._native.finish()
        except NativeUnsupported as error:
            raise Unsupported(str(error)) from error

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = self._native.run([tensor.detach().numpy() for tensor in inputs])
        return tuple(torch.from_numpy(each).view(shape) for each, shape in zip(outputs, self._shapes, strict=True))

    def tune(self, known: Choices, measure: bool) -> None:
        """Compute each layer in the way that is known to be the fastest; if none is, and if asked to, measure it."""
        for step in self._native.steps():
            if not step.tunable or (layer := self._layers.get(step.value)) is None:
                continue
            choices = self._native.choices(step.number)
            if (choice := Choice(*known.get(layer, (0,) * 4))) not in choices:
                if not measure:
                    continue
                choice = self._fastest(step.number, choices)
                known[layer] = [choice.rows, choice.tile_h, choice.tile_w, choice.slice]
            self._native.choose(step.number, choice)

    def _fastest(self, step: int, choices: list[Choice]) -> Choice:
        seconds: dict[Choice, float] = {}
        for choice in choices:
            self._native.choose(step, choice)
            seconds[choice] = self._native.measure_step(step, _SECONDS / len(choices))
        return min(seconds, key=seconds.__getitem__)


def _lowered(plan: Plan, native: NativePlan) -> dict[int, str]:
    """Adds all of it, and gives for its values what layer computes them."""
    _, images = _batch(plan)
    values = [native.input(*_image(shape, images)) for shape in plan.inputs]
    layers = {}
    for number, op in enumerate(plan.ops):
        made = _add(native, op, values, plan)
        shape = plan.shapes[len(plan.inputs) + number]
        if native.shape(made) != _image(shape, images):
            raise Unsupported(f"no native kernel gives {list(shape)} for {op}")
        values.append(made)
        if isinstance(op, Conv | Linear):
            layers[made] = f"{native.bits} bits, {_layer(op, plan.shapes[op.source], plan.arrays[op.weight])}"
    for output in plan.outputs:
        native.output(values[output])
    return layers


def _batch(plan: Plan) -> tuple[int, bool]:
    """How many images there are, or rows, and whether they are images: every value must have as many."""
    images = any(isinstance(op, Conv | Pool | AdaptivePool | Flatten) for op in plan.ops)
    sizes = {shape[0] if images else math.prod(shape[:-1]) for shape in plan.shapes}
    if len(sizes) > 1 or (images and any(len(shape) not in (2, 4) for shape in plan.shapes)):
        raise Unsupported("no native plan mixes images and rows")
    return sizes.pop(), images


def _image(shape: Shape, images: bool) -> tuple[int, int, int]:
    """Channels, height and width."""
    if images and len(shape) == 4:
        return (shape[1], shape[2], shape[3])
    return (shape[-1], 1, 1)


def _add(native: NativePlan, op: Op, values: list[int], plan: Plan) -> int:
    source, shape = values[op.source], plan.shapes[op.source]
    activation = getattr(op, "activation", "")
    if activation not in ("", "relu"):
        raise Unsupported(f"no native kernel does {activation}")
    relu = activation == "relu"
    match op:
        case Conv():
            weight = plan.arrays[op.weight]
            return native.conv(
                source, weight.shape[0], (weight.shape[2], weight.shape[3]), *_nonzero(weight), _bias(op, plan),
                stride=op.stride, padding=op.padding, dilation=op.dilation, groups=op.groups,
                residual=None if op.residual is None else values[op.residual], relu=relu,
            )  # fmt: skip
        case Linear():
            weight = plan.arrays[op.weight]
            return native.linear(source, weight.shape[0], *_nonzero(weight), _bias(op, plan), relu=relu)
        case Pool(kind="max"):
            return native.max_pool(source, op.kernel, op.stride, op.padding)
        case Pool():
            return native.average_pool(source, op.kernel, op.stride, op.padding, op.count_padding)
        case AdaptivePool(size=(1, 1)):
            return native.global_pool(source)
        case AdaptivePool():
            if shape[2] % op.size[0] or shape[3] % op.size[1]:
                raise Unsupported(f"no native kernel pools {list(shape[2:])} to {list(op.size)}")
            kernel = (shape[2] // op.size[0], shape[3] // op.size[1])
            return native.average_pool(source, kernel, kernel)
        case Add():
            return native.add(source, values[op.other], relu)
        case Activation():
            return native.relu(source)
        case Flatten():
            return native.flatten(source)


def _nonzero(weight: Array) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    if weight.positions is not None:
        return weight.positions, weight.values
    positions = np.flatnonzero(weight.values)
    return positions.astype(np.uint32), weight.values[positions]


def _bias(op: Conv | Linear, plan: Plan) -> NDArray[np.float32] | None:
    return None if op.bias is None else plan.arrays[op.bias].dense()


def _layer(op: Conv | Linear, source: Shape, weight: Array) -> str:
    """What makes layers alike for a kernel: all but the numbers of their values, and half octaves of their density."""
    stored = np.count_nonzero(weight.values)
    density = "none" if stored == 0 else f"2^{round(2 * math.log2(stored / weight.size)) / 2:g}"
    said = op_record(op) | {"residual": isinstance(op, Conv) and op.residual is not None}
    for number in ("source", "weight", "bias"):
        said.pop(number, None)
    return f"{said} of {list(source)}, weights {list(weight.shape)}, density {density}"
