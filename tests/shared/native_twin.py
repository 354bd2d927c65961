"""A plan, and the same computed by PyTorch in double precision beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from granet.native import NativePlan, isas

Pair = tuple[int, int]

EMULATED = "emulated"
"""The kernels on halves that any processor runs; not there if the compiler has no halves."""


def halves() -> tuple[str, ...]:
    """What computes with them here."""
    try:
        NativePlan(1, isa=EMULATED, bits=16)
    except ValueError:
        return isas(16)
    return (*isas(16), EMULATED)


class Twin:
    def __init__(self, batch: int, threads: int = 1, isa: str | None = None, seed: int = 0) -> None:
        if isa == EMULATED and EMULATED not in halves():
            pytest.skip("the compiler has no halves")
        self.half = isa in halves()
        self.plan = NativePlan(batch, threads, isa, bits=16 if self.half else 32)
        self.exact = 2e-2 if self.half else 1e-5
        """The largest error, relative to the largest output, that rounding in a dozen layers explains."""
        self.random = np.random.default_rng(seed)
        self.batch = batch
        self.values: dict[int, torch.Tensor] = {}
        self.given: list[np.ndarray[Any, Any]] = []
        self.outputs: list[int] = []

    def input(self, channels: int, height: int = 1, width: int = 1) -> int:
        value = self.plan.input(channels, height, width)
        self.given.append(self.random.standard_normal((self.batch, channels, height, width), dtype=np.float32))
        self.values[value] = torch.from_numpy(self.given[-1]).double()
        return value

    def weights(self, shape: tuple[int, ...], density: float) -> Any:
        dense = self.random.standard_normal(shape, dtype=np.float32)
        dense[self.random.random(shape) >= density] = 0
        at = np.flatnonzero(dense).astype(np.uint32)
        return at, dense.ravel()[at], torch.from_numpy(dense).double()

    def conv(
        self,
        input: int,
        outs: int,
        kernel: Pair,
        density: float = 0.3,
        *,
        bias: bool = True,
        groups: int = 1,
        residual: int | None = None,
        relu: bool = False,
        **geometry: Pair,
    ) -> int:
        x = self.values[input]
        at, of, dense = self.weights((outs, x.shape[1] // groups, *kernel), density)
        plus = self.random.standard_normal(outs, dtype=np.float32) if bias else None
        value = self.plan.conv(
            input, outs, kernel, at, of, plus, groups=groups, residual=residual, relu=relu, **geometry
        )
        y = F.conv2d(x, dense, None if plus is None else torch.from_numpy(plus).double(), groups=groups, **geometry)
        return self.keep(value, y if residual is None else y + self.values[residual], relu)

    def linear(
        self, input: int, outs: int, density: float = 0.3, *, residual: int | None = None, relu: bool = False
    ) -> int:
        x = self.values[input]
        at, of, dense = self.weights((outs, x.shape[1]), density)
        plus = self.random.standard_normal(outs, dtype=np.float32)
        value = self.plan.linear(input, outs, at, of, plus, residual=residual, relu=relu)
        y = F.conv2d(x, dense[:, :, None, None], torch.from_numpy(plus).double())
        return self.keep(value, y if residual is None else y + self.values[residual], relu)

    def max_pool(self, input: int, kernel: Pair, stride: Pair, padding: Pair = (0, 0)) -> int:
        value = self.plan.max_pool(input, kernel, stride, padding)
        return self.keep(value, F.max_pool2d(self.values[input], kernel, stride, padding))

    def average_pool(self, input: int, kernel: Pair, stride: Pair, padding: Pair, count_padding: bool) -> int:
        value = self.plan.average_pool(input, kernel, stride, padding, count_padding)
        return self.keep(
            value, F.avg_pool2d(self.values[input], kernel, stride, padding, count_include_pad=count_padding)
        )

    def global_pool(self, input: int, kind: str = "average") -> int:
        x = self.values[input]
        return self.keep(
            self.plan.global_pool(input, kind),
            x.mean((2, 3), keepdim=True) if kind == "average" else x.amax((2, 3), keepdim=True),
        )

    def add(self, left: int, right: int, relu: bool = False) -> int:
        return self.keep(self.plan.add(left, right, relu), self.values[left] + self.values[right], relu)

    def relu(self, input: int) -> int:
        return self.keep(self.plan.relu(input), self.values[input], True)

    def flatten(self, input: int) -> int:
        return self.keep(self.plan.flatten(input), self.values[input].reshape(self.batch, -1, 1, 1))

    def keep(self, value: int, result: torch.Tensor, relu: bool = False) -> int:
        self.values[value] = F.relu(result) if relu else result
        assert self.plan.shape(value) == tuple(result.shape[1:])
        return value

    def output(self, *values: int) -> None:
        for value in values:
            self.plan.output(value)
            self.outputs.append(value)

    def finish(self, *outputs: int) -> None:
        self.output(*outputs)
        self.plan.finish()

    def largest(self) -> float:
        """Of the numbers that are computed."""
        return max(float(value.abs().max()) for value in self.values.values())

    def error(self) -> float:
        """The largest difference of any output, by its largest number.

        In halves by the largest of the whole network: what cancels keeps the rounding errors of what was larger.
        """
        anywhere = self.largest() if self.half else 0.0
        return max(
            float((one - expected).abs().max()) / max(float(expected.abs().max()), anywhere, 1e-3)
            for one, expected in self.outcomes()
        )

    def rms_error(self) -> float:
        return max(
            float((one - expected).square().mean().sqrt() / expected.square().mean().sqrt())
            for one, expected in self.outcomes()
        )

    def outcomes(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Outputs as they are, and as they should be."""
        found = self.plan.run(self.given)
        return [
            (torch.from_numpy(one).double(), self.values[value]) for one, value in zip(found, self.outputs, strict=True)
        ]
