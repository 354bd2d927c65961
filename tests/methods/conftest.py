"""A method run on a tiny net whose weights and gradients are drawn anew at each update, and the plain way to do it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from granet import Clock, Method
from granet.net import make_net
from granet.weights import SparseLayer

Flat = list[np.ndarray]
SHAPES = [(16, 3, 3, 3), (24, 16, 1, 1), (40, 30), (10, 40)]


class Trial:
    """One training as a method sees it: before each update the active weights and all gradients have moved."""

    def __init__(
        self, method: Method, total: int, shapes: Sequence[tuple[int, ...]] = SHAPES, *,
        epoch: int | None = None, floor: int = 1, seed: int = 0, coarse: bool = False, scales: Sequence[float] = (),
    ) -> None:  # fmt: skip
        self.method, self.total, self.epoch = method, total, epoch
        self.updates = method.updates(Clock(0, total, epoch))
        self.rng, self.coarse = np.random.default_rng(seed), coarse
        self.scales = scales or [1.0] * len(shapes)
        layers = [SparseLayer.of(f"{i}.weight", nn.Parameter(torch.zeros(s)), i, seed) for i, s in enumerate(shapes)]
        self.net = make_net(layers, floor, method.pattern, method.sparsity)
        self._propose(0, lambda: method.begin(self.net))

    def __iter__(self) -> Iterator[tuple[Clock, Flat, Flat, Flat, Flat]]:
        """At each update: the clock, weights, gradients, and the masks before and after, all flat."""
        for step in self.updates:
            before = self.masks
            self._move()
            weights = [layer.weight.detach().flatten().double().numpy().copy() for layer in self.net.layers]
            gradients = [layer.gradient.flatten().double().numpy().copy() for layer in self.net.layers]
            clock = Clock(step, self.total, self.epoch)
            self._propose(step, lambda clock=clock: self.method.update(self.net, clock))
            assert self.net.active.tolist() == self.active
            yield clock, weights, gradients, before, self.masks

    @property
    def masks(self) -> Flat:
        return [layer.mask.flatten().numpy().copy() for layer in self.net.layers]

    @property
    def active(self) -> list[int]:
        return [layer.active for layer in self.net.layers]

    @property
    def zeros(self) -> int:
        return self.net.numel - sum(self.active)

    def _move(self) -> None:
        for layer, scale in zip(self.net.layers, self.scales, strict=True):
            weight, gradient = (torch.from_numpy(self.rng.normal(size=layer.weight.shape)).float() for _ in range(2))
            if self.coarse:
                weight, gradient = weight.mul(2).round(), gradient.mul(2).round()
            layer.weight.data.copy_(weight.mul(scale) * layer.mask)
            layer.gradient = gradient

    def _propose(self, step: int, moves: Callable[[], None]) -> None:
        self.net.open(step, self.net.layers, torch.tensor(True))
        moves()
        self.net.commit().write_masks()


@pytest.fixture
def trial() -> type[Trial]:
    return Trial


class Plain:
    """The moves by sorting, as the papers write them."""

    @staticmethod
    def prune_globally(weights: Flat, masks: Flat, keep: int) -> Flat:
        """The ``keep`` largest |w| of all active weights; equal ones by position."""
        size = np.where(np.concatenate(masks), np.abs(np.concatenate(weights)), -1)
        result = np.zeros(len(size), bool)
        result[np.argsort(-size, kind="stable")[:keep]] = True
        return np.split(result, np.cumsum([len(mask) for mask in masks])[:-1])

    @staticmethod
    def prune_layer(weight: np.ndarray, mask: np.ndarray, keep: int) -> np.ndarray:
        return Plain.prune_globally([weight], [mask], keep)[0]

    @staticmethod
    def regenerate(weights: Flat, scores: Flat, masks: Flat, ratio: float, rounding: Callable = math.ceil) -> Flat:
        """In each layer drop a share of the active weights and grow as many, the dropped ones being candidates."""
        result = []
        for weight, score, mask in zip(weights, scores, masks, strict=True):
            moved = rounding(ratio * mask.sum())
            kept = Plain.prune_layer(weight, mask, mask.sum() - moved)
            result.append(kept | Plain.prune_layer(score, ~kept, moved))
        return result


@pytest.fixture
def plain() -> type[Plain]:
    return Plain


@pytest.fixture
def equal() -> Callable[[Flat, Flat], bool]:
    return lambda some, others: all(map(np.array_equal, some, others))


class Units:
    """Blocks of 4x1 and filters, by reshaping; for weights with their outputs first."""

    @staticmethod
    def split(values: Tensor, pattern: str) -> Tensor:
        """[units, weights of each]"""
        if pattern == "filter":
            return values.flatten(1)
        return values.reshape(len(values) // 4, 4, -1).transpose(1, 2).reshape(-1, 4)

    @staticmethod
    def join(figures: Tensor, like: Tensor, pattern: str) -> Tensor:
        """One figure for each unit, at all its weights."""
        if pattern == "filter":
            return figures.view(-1, *[1] * (like.ndim - 1)).expand(like.shape)
        return figures.view(len(like) // 4, 1, -1).expand(-1, 4, -1).reshape(like.shape)

    @staticmethod
    def active(mask: Tensor, pattern: str) -> Tensor:
        """Which units are; all of their weights, or none."""
        entries = Units.split(mask, pattern)
        assert (entries == entries[:, :1]).all()
        return entries[:, 0].clone()


@pytest.fixture
def units() -> type[Units]:
    return Units
