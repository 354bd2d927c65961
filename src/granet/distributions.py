"""How a budget of weights is shared among layers.

A distribution maps the layers' shapes and the overall density to one density per layer;
:func:`counts` turns those into whole numbers of weights whose sum is exactly the budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

Shape = Sequence[int]

PruningDistribution = Literal["global", "uniform"]
"""How pruning shares what is left: it ranks all layers together, or each one alone."""
PRUNING_DISTRIBUTIONS: tuple[str, ...] = get_args(PruningDistribution)


class Distribution(Protocol):
    """Layer densities for an overall density; the weighted mean of the result is that density."""

    def __call__(self, shapes: Sequence[Shape], density: float) -> list[float]: ...


@dataclass(frozen=True)
class Uniform:
    """The same density in every layer, with two exemptions that the other layers make up for.

    Args:
        last_density: the last layer is never thinner than this (0.2 in Gale et al. and in GraNet's uniform variant).
        dense_first: the first layer stays dense.

    >>> Uniform(last_density=0.2)([(100,), (100,)], density=0.15)
    [0.1, 0.2]
    """

    last_density: float = 0.0
    dense_first: bool = False

    def __call__(self, shapes: Sequence[Shape], density: float) -> list[float]:
        sizes = [math.prod(shape) for shape in shapes]
        last = len(sizes) - 1
        held = {0: 1.0} if self.dense_first and last > 0 else {}
        rest = self._rest(sizes, density, held)
        if rest < self.last_density and last > 0:
            held[last] = self.last_density
            rest = self._rest(sizes, density, held)
        return [held.get(i, rest) for i in range(len(sizes))]

    def _rest(self, sizes: Sequence[int], density: float, held: Mapping[int, float]) -> float:
        """The density of the layers that are not held."""
        left = sum(sizes) * density - sum(sizes[i] * d for i, d in held.items())
        open_size = sum(size for i, size in enumerate(sizes) if i not in held)
        if open_size == 0 or left <= 0:
            raise ValueError(
                f"last_density={self.last_density}, dense_first={self.dense_first}: the layers held denser alone "
                f"exceed the {density:.4g} of all weights that are to be left; allow more or exempt fewer layers"
            )
        return left / open_size


def _proportional(shapes: Sequence[Shape], raw: Sequence[float], density: float) -> list[float]:
    """Densities in proportion to ``raw``, capped at 1: the epsilon solve of RigL (Evci et al., 2020, sec. 3).

    Layers that would exceed density 1 become dense and the rest is solved again. The cap is decided by comparing
    budgets, and the loop ends when nothing is left to share, so density 1 needs no lucky rounding.
    """
    sizes = [math.prod(shape) for shape in shapes]
    budget = density * sum(sizes)
    densities = [1.0] * len(shapes)
    open_layers = set(range(len(shapes)))
    while open_layers:
        left = budget - sum(size for i, size in enumerate(sizes) if i not in open_layers)
        epsilon = left / sum(raw[i] * sizes[i] for i in open_layers)
        full = {i for i in open_layers if epsilon * raw[i] >= 1}
        if not full:
            for i in open_layers:
                densities[i] = epsilon * raw[i]
            break
        open_layers -= full  # all at once: without one of them epsilon is larger still, so the others stay full
    return densities


@dataclass(frozen=True)
class ErdosRenyi:
    """Erdős-Rényi (Mocanu et al., 2018): density in proportion to (out + in) / (out * in).

    ``kernel`` adds the kernel's sides to both sums: ERK (Evci et al., 2020), the sum of all dimensions of the weight
    divided by their product.
    """

    kernel: bool = False

    def __call__(self, shapes: Sequence[Shape], density: float) -> list[float]:
        used = [shape if self.kernel else shape[:2] for shape in shapes]
        return _proportional(shapes, [sum(shape) / math.prod(shape) for shape in used], density)


DISTRIBUTIONS: dict[str, Distribution] = {
    "uniform": Uniform(),
    "er": ErdosRenyi(),
    "erk": ErdosRenyi(kernel=True),
}


def distribution(name: str) -> Distribution:
    """The distribution of that name."""
    if not isinstance(name, str) or name not in DISTRIBUTIONS:
        raise ValueError(f"distribution={name!r}: must be one of {', '.join(DISTRIBUTIONS)}")
    return DISTRIBUTIONS[name]


def layer_densities(distribution: Distribution, shapes: Sequence[Shape], density: float) -> list[float]:
    """The layers' densities by a distribution, which may be a user's function.

    ValueError unless each is in [0, 1] and their mean over all weights within a tenth of ``density``: rounding could
    make up for more only by emptying layers.
    """
    if not callable(distribution):
        raise ValueError(
            f"distribution={distribution!r}: must be a function of shapes and density, such as "
            "granet.distributions.distribution('erk'), or None to rank all layers together"
        )
    returned = distribution(shapes, density)
    if not isinstance(returned, Iterable):
        raise ValueError(f"distribution: gave {type(returned).__name__}; must be one density for each layer")
    given = list(returned)
    if len(given) != len(shapes):
        raise ValueError(f"distribution: gave {len(given)} densities; must be one for each of {len(shapes)} layers")
    for place, share in enumerate(given):
        if not -1e-9 < share < 1 + 1e-9:
            raise ValueError(
                f"distribution: gave layer {place} of shape {list(shapes[place])} the density {share!r}; "
                "must be in [0, 1]"
            )
    sizes = [math.prod(shape) for shape in shapes]
    mean = sum(share * size for share, size in zip(given, sizes, strict=True)) / sum(sizes)
    if abs(mean - density) > density / 10 + 1e-9:
        raise ValueError(f"distribution: gave densities of {mean:.4g} on average over weights; must be {density:.4g}")
    return given


def kept(size: int, sparsity: float) -> int:
    """How many of ``size`` weights remain at that sparsity; the zeros are rounded to the nearest whole number."""
    if not -1e-9 < sparsity < 1 + 1e-9:  # a schedule may have computed it, with rounding
        raise ValueError(f"sparsity={sparsity!r}: must be in [0, 1], a share of the weights")
    return size - round(size * float(sparsity))  # in single precision the product would be off by some weights


def least(size: int, floor: int, quantum: int) -> int:
    """What a layer of ``size`` weights keeps at least: the floor, or all if it has fewer, up to a whole quantum."""
    return -(-min(floor, size) // quantum) * quantum


def counts(
    shapes: Sequence[Shape],
    densities: Sequence[float],
    total: int,
    floor: int = 0,
    quanta: Sequence[int] | None = None,
) -> list[int]:
    """Whole numbers nearest to ``densities`` whose sum is ``total``, each at least ``floor``.

    Rounded by largest remainder; a layer smaller than ``floor`` is kept whole. What floors add is taken from layers
    that are not dense, as far as these have enough.

    With ``quanta``, each layer has a multiple of its own quantum, and the sum is as near to ``total`` as one quantum
    more or less brings it.

    >>> counts([(40,), (60,)], [0.5, 0.5], total=50, quanta=[10, 4])
    [20, 28]
    """
    sizes = [math.prod(shape) for shape in shapes]
    quanta = quanta or [1] * len(sizes)
    floors = [least(size, floor, quantum) for size, quantum in zip(sizes, quanta, strict=True)]
    if not sum(floors) <= total <= sum(sizes):
        raise ValueError(f"total={total}: must lie between {sum(floors)} (floor={floor} per layer) and {sum(sizes)}")
    exact = [density * size / quantum for density, size, quantum in zip(densities, sizes, quanta, strict=True)]
    result = [
        min(max(int(number) * quantum, low), size)
        for number, quantum, low, size in zip(exact, quanta, floors, sizes, strict=True)
    ]
    while away := total - sum(result):
        step = 1 if away > 0 else -1
        movable = [
            i
            for i, quantum in enumerate(quanta)
            if floors[i] <= result[i] + step * quantum <= sizes[i] and quantum < 2 * abs(away)
        ]
        movable = [i for i in movable if step > 0 or densities[i] < 1] or movable
        if not movable:
            break
        movable.sort(key=lambda i: step * (result[i] / quanta[i] - exact[i]))
        for i in movable:
            if quanta[i] < 2 * step * away:  # it brings the sum nearer
                result[i] += step * quanta[i]
                away -= step * quanta[i]
    return result
