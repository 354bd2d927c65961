"""What the native library computes, built value by value; see granet_native.h, of which every method is a function."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from granet.native.library import call, library
from granet.native.structures import ChoiceStructure, ConvStructure, PoolStructure, StepStructure

Floats = NDArray[np.float32]
Positions = NDArray[np.uint32]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Choice:
    """How a step is computed: so many output channels at once, in blocks of so many vectors, from a slice of the input
    channels at a time."""

    rows: int
    tile_h: int
    tile_w: int
    slice: int


@dataclass(frozen=True)
class Step:
    """One step of a finished plan. `value` is what it computes, or -1 for a change of layout."""

    number: int
    value: int
    tunable: bool
    weights: int
    multiply_adds: int
    text: str


def _weights(positions: Positions, values: Floats, bias: Floats | None, outs: int) -> tuple[Any, ...]:
    """Arrays that can be pointed at, and how many elements they have."""
    at = np.ascontiguousarray(positions, dtype=np.uint32)
    of = np.ascontiguousarray(values, dtype=np.float32)
    plus = None if bias is None else np.ascontiguousarray(bias, dtype=np.float32)
    if at.ndim != 1 or at.shape != of.shape:
        raise ValueError(f"positions have shape {at.shape}, and values {of.shape}: both must be one list of one length")
    if plus is not None and plus.shape != (outs,):
        raise ValueError(f"bias has shape {plus.shape}, not ({outs},)")
    return at, of, plus


class NativePlan:
    """Values are numbers. Of wrong arguments every method raises `ValueError`, of what is not supported
    `NativeUnsupported`, and of a call at a wrong time `RuntimeError`.

    The native plan lives as long as this object. After `finish`, `run` may be called from several threads at once.
    With 16 `bits` layers compute in halves of floats, where the processor does so; inputs and outputs are floats.
    """

    def __init__(self, batch: int, threads: int = 1, isa: str | None = None, *, bits: int = 32) -> None:
        self._handle: ctypes.c_uint64 | None = None
        self._library = library()  # a plan is known to the library that made it alone
        handle = ctypes.c_uint64()
        name = None if isa is None else isa.encode()
        call(
            self._library,
            "granet_plan_create",
            _int64(batch),
            _int64(threads),
            _int64(bits),
            name,
            ctypes.byref(handle),
        )
        self._handle = handle
        self.batch, self.bits = int(batch), int(bits)
        self._inputs: list[int] = []
        self._shapes: list[tuple[int, int, int, int]] = []
        """Of the outputs, with the batch."""

    def close(self) -> None:
        """Gives its memory back, once all runs have ended. A second time does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            call(self._library, "granet_plan_destroy", handle)

    def __del__(self) -> None:
        self.close()

    def _call(self, name: str, *arguments: Any) -> None:
        if self._handle is None:
            raise RuntimeError("the plan is closed")
        call(self._library, f"granet_plan_{name}", self._handle, *arguments)

    def _value(self, name: str, *arguments: Any) -> int:
        value = ctypes.c_int32()
        self._call(name, *arguments, ctypes.byref(value))
        return value.value

    def input(self, channels: int, height: int = 1, width: int = 1) -> int:
        value = self._value("input", _int64(channels), _int64(height), _int64(width))
        self._inputs.append(value)
        return value

    def conv(
        self,
        input: int,
        out_channels: int,
        kernel: Pair,
        positions: Positions,
        values: Floats,
        bias: Floats | None = None,
        *,
        stride: Pair = (1, 1),
        padding: Pair = (0, 0),
        dilation: Pair = (1, 1),
        groups: int = 1,
        residual: int | None = None,
        relu: bool = False,
    ) -> int:
        """``relu(convolution + bias + residual)``; positions are those of a flattened dense weight, ascending."""
        at, of, plus = _weights(positions, values, bias, out_channels)
        asked = ConvStructure(
            _int32(input),
            -1 if residual is None else _int32(residual),
            *map(_checked, (out_channels, *kernel, *stride, *padding, *dilation, groups)),
            int(relu),
            len(at),
            at.ctypes.data,
            of.ctypes.data,
            None if plus is None else plus.ctypes.data,
        )
        return self._value("conv", ctypes.byref(asked))

    def linear(
        self,
        input: int,
        out_features: int,
        positions: Positions,
        values: Floats,
        bias: Floats | None = None,
        *,
        residual: int | None = None,
        relu: bool = False,
    ) -> int:
        at, of, plus = _weights(positions, values, bias, out_features)
        return self._value(
            "linear",
            ctypes.c_int32(_int32(input)),
            _int64(out_features),
            ctypes.c_int32(-1 if residual is None else _int32(residual)),
            _int64(relu),
            _int64(len(at)),
            ctypes.c_void_p(at.ctypes.data),
            ctypes.c_void_p(of.ctypes.data),
            ctypes.c_void_p(None if plus is None else plus.ctypes.data),
        )

    def max_pool(self, input: int, kernel: Pair, stride: Pair, padding: Pair = (0, 0)) -> int:
        asked = PoolStructure(_int32(input), 0, *map(_checked, (*kernel, *stride, *padding)), 0)
        return self._value("pool", ctypes.byref(asked))

    def average_pool(
        self, input: int, kernel: Pair, stride: Pair, padding: Pair = (0, 0), count_padding: bool = True
    ) -> int:
        asked = PoolStructure(_int32(input), 1, *map(_checked, (*kernel, *stride, *padding)), int(count_padding))
        return self._value("pool", ctypes.byref(asked))

    def global_pool(self, input: int, kind: str = "average") -> int:
        """The mean, or the maximum (`kind="max"`), of each whole map."""
        kinds = {"max": 0, "average": 1}
        if kind not in kinds:
            raise ValueError(f"kind is {kind!r}, not one of {', '.join(kinds)}")
        return self._value("global_pool", ctypes.c_int32(_int32(input)), ctypes.c_int32(kinds[kind]))

    def add(self, left: int, right: int, relu: bool = False) -> int:
        return self._value("add", ctypes.c_int32(_int32(left)), ctypes.c_int32(_int32(right)), _int64(relu))

    def relu(self, input: int) -> int:
        return self._value("relu", ctypes.c_int32(_int32(input)))

    def flatten(self, input: int) -> int:
        return self._value("flatten", ctypes.c_int32(_int32(input)))

    def output(self, value: int) -> None:
        self._call("output", ctypes.c_int32(_int32(value)))
        self._shapes.append((self.batch, *self.shape(value)))

    def shape(self, value: int) -> tuple[int, int, int]:
        """Channels, height, width."""
        shape = (ctypes.c_int64 * 3)()
        self._call("shape", ctypes.c_int32(_int32(value)), shape)
        return shape[0], shape[1], shape[2]

    def finish(self) -> None:
        """Nothing can be added any more, and it can be run."""
        self._call("finish")

    def run(self, inputs: Sequence[Floats]) -> list[Floats]:
        """Arrays of shape [batch, channels, height, width], as many as there are inputs."""
        given = [np.ascontiguousarray(each, dtype=np.float32) for each in inputs]
        made = [np.empty(shape, np.float32) for shape in self._shapes]
        self._call("run", *_arrays(given), *_arrays(made))
        return made

    def steps(self) -> list[Step]:
        count = ctypes.c_int64()
        self._call("steps", ctypes.byref(count))
        found = []
        for number in range(count.value):
            about = StepStructure()
            self._call("step", _int64(number), ctypes.byref(about))
            text = about.text.decode()
            found.append(Step(number, about.value, bool(about.tunable), about.weights, about.multiply_adds, text))
        return found

    def memory(self) -> tuple[int, int]:
        """Bytes of weights and tables, and of activations for one caller."""
        weights, activations = ctypes.c_int64(), ctypes.c_int64()
        self._call("memory", ctypes.byref(weights), ctypes.byref(activations))
        return weights.value, activations.value

    def choices(self, step: int) -> list[Choice]:
        """How this step can be computed."""
        count = ctypes.c_int64()
        self._call("choices", _int64(step), _int64(0), None, ctypes.byref(count))
        found = (ChoiceStructure * count.value)()
        if count.value:
            self._call("choices", _int64(step), count, found, ctypes.byref(count))
        return [Choice(each.rows, each.tile_h, each.tile_w, each.slice) for each in found]

    def chosen(self, step: int) -> Choice:
        one = ChoiceStructure()
        self._call("chosen", _int64(step), ctypes.byref(one))
        return Choice(one.rows, one.tile_h, one.tile_w, one.slice)

    def choose(self, step: int, choice: Choice) -> None:
        """Waits for runs to end."""
        self._call("choose", _int64(step), ctypes.byref(ChoiceStructure(*map(_int32, astuple(choice)))))

    def measure(self, seconds: float) -> list[float]:
        """The least processor time in seconds that each step took."""
        count = ctypes.c_int64()
        self._call("steps", ctypes.byref(count))
        found = (ctypes.c_double * count.value)()
        self._call("measure", ctypes.c_double(seconds), count, found)
        return list(found)

    def measure_step(self, step: int, seconds: float) -> float:
        """The same of one step alone."""
        found = ctypes.c_double()
        self._call("measure_step", _int64(step), ctypes.c_double(seconds), ctypes.byref(found))
        return found.value


def _checked(number: int, bits: int = 64) -> int:
    """ctypes would take the lowest bits of a number that is too large, and say nothing."""
    whole = int(number)
    if not -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
        raise ValueError(f"{number} is not a number of {bits} bits")
    return whole


def _int32(number: int) -> int:
    return _checked(number, 32)


def _int64(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(_checked(number))


def _arrays(arrays: Sequence[Floats]) -> tuple[Any, ...]:
    """How many, pointers to them, and their sizes."""
    count = len(arrays)
    pointers = (ctypes.c_void_p * count)(*[array.ctypes.data for array in arrays])
    sizes = (ctypes.c_int64 * count)(*[array.size for array in arrays])
    return _int64(count), pointers, sizes
