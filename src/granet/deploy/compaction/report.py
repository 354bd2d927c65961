"""What compaction gained: parameters, FLOPs and latency, before and after."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from granet.deploy.compaction.plan import Stays
from granet.flop_counting import flops
from granet.model_inputs import arguments
from granet.probe.modes import in_mode


@dataclass(frozen=True)
class Compaction:
    """Each pair is before and after."""

    parameters: tuple[int, int]
    flops: tuple[int, int]
    """Of one pass on the example."""
    latency: tuple[float, float]
    """Milliseconds of one pass on the example in eager PyTorch, where the model is: medians of interleaved repeats."""
    widths: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    """The shapes of parameters that are smaller now."""
    staying: tuple[Stays, ...]
    """Filters that do nothing and could not be taken out."""

    def __repr__(self) -> str:
        lines = [
            f"parameters {self.parameters[0]:,} -> {self.parameters[1]:,} ({_share(*self.parameters)})",
            f"FLOPs      {self.flops[0]:,} -> {self.flops[1]:,} ({_share(*self.flops)})",
            f"latency    {self.latency[0]:.3g} -> {self.latency[1]:.3g} ms ({self.latency[0] / self.latency[1]:.2f}x)",
        ]
        lines += [
            f"stays      {one.count} of the filters of {one.weight} that do nothing: {one.why}" for one in self.staying
        ]
        return "\n".join(lines)


def compare(before: nn.Module, after: nn.Module, example: Any, staying: Sequence[Stays]) -> Compaction:
    """Count and measure both."""
    shapes = {name: tuple(parameter.shape) for name, parameter in after.named_parameters()}
    widths = {
        name: (tuple(parameter.shape), shapes[name])
        for name, parameter in before.named_parameters()
        if name in shapes and tuple(parameter.shape) != shapes[name]
    }
    return Compaction(
        parameters=(_count(before), _count(after)),
        flops=(_flops(before, example), _flops(after, example)),
        latency=_latency(before, after, example),
        widths=widths,
        staying=tuple(staying),
    )


def _share(before: float, after: float) -> str:
    return f"{after / before:.1%}" if before else "none"


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _flops(model: nn.Module, example: Any) -> int:
    return flops(model, tuple(example) if isinstance(example, list) else example).dense


def _latency(before: nn.Module, after: nn.Module, example: Any, seconds: float = 1.0) -> tuple[float, float]:
    """Medians in milliseconds; the two take turns, so that a machine that slows down slows both."""
    positional, named = arguments(example)
    cuda = any(isinstance(leaf, Tensor) and leaf.is_cuda for leaf in tree_leaves(example))
    times: tuple[list[float], list[float]] = ([], [])
    with torch.inference_mode(), in_mode(before, training=False), in_mode(after, training=False):
        end = time.perf_counter() + seconds
        while len(times[0]) < 6 or (time.perf_counter() < end and len(times[0]) < 200):
            for model, taken in zip((before, after), times, strict=True):
                begin = time.perf_counter()
                model(*positional, **named)
                if cuda:
                    torch.cuda.synchronize()
                taken.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])
