"""Channels that can only go together: every channel of every tensor has a label, and labels are tied to each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Axis = Tensor | None
"""The labels along a dimension; None where nothing can be taken out, as of a batch or an image."""
Axes = tuple[Axis, ...]
Shape = Sequence[int]


class Labels:
    """Makes labels, ties them, and pins those that must stay."""

    def __init__(self) -> None:
        self._count = 0
        self._ties: list[tuple[Tensor, Tensor]] = []
        self._pins: list[tuple[Tensor, str]] = []

    def fresh(self, size: int) -> Axis:
        """Labels for a new dimension; one of size 1 is broadcast, not cut."""
        if size <= 1:
            return None
        self._count += size
        return torch.arange(self._count - size, self._count)

    def staying(self, size: int, why: str) -> Tensor:
        """Labels for channels that are among others and must stay."""
        self._count += size
        axis = torch.arange(self._count - size, self._count)
        self.pin(axis, why)
        return axis

    def tie(self, one: Axis, other: Axis, why: str) -> Axis:
        """Two dimensions whose channels go one with the other."""
        if one is not None and other is not None:
            self._ties.append((one, other))
        self.pin(other if one is None else one if other is None else None, why)
        return one

    def pin(self, axis: Axis, why: str) -> None:
        if axis is not None:
            self._pins.append((axis, why))

    def together(self, rows: Tensor) -> Tensor:
        """All labels of a row go together; the first stands for them."""
        first = rows[:, :1]
        self._ties.append((first.expand_as(rows).reshape(-1), rows.reshape(-1)))
        return first.flatten()

    def groups(self) -> tuple[Tensor, dict[int, str]]:
        """The label that stands for each label's group, and why groups that must stay do."""
        root = torch.arange(self._count)
        one = torch.cat([tie[0] for tie in self._ties]) if self._ties else root[:0]
        other = torch.cat([tie[1] for tie in self._ties]) if self._ties else root[:0]
        while bool((root[one] != root[other]).any()):
            least = torch.minimum(root[one], root[other])
            for side in (one, other):
                root.scatter_reduce_(0, root[side], least, "amin")
            while bool((root[root] != root).any()):
                root = root[root]
        pinned: dict[int, str] = {}
        for labels, why in self._pins:
            for label in set(root[labels].tolist()):
                pinned.setdefault(label, why)
        return root, pinned

    def reshape(self, axes: Axes, old: Shape, new: Shape, spared: frozenset[int], why: str) -> Axes:
        """The labels of a view: dimensions are merged, and split, in runs of equal size.

        Of a split, one of the new dimensions can be cut, in whole rows: the outermost that is not spared, unless the
        labels repeat along the others anyway.
        """
        made: list[Axis] = []
        for first, last in _runs(old, new):
            sizes, wanted = old[first[0] : last[0]], new[first[1] : last[1]]
            merged = self._merge(axes[first[0] : last[0]], sizes, why)
            begin = len(made)
            made += self._split(merged, wanted, frozenset(place - begin for place in spared), why)
        return tuple(made)

    def _merge(self, axes: Sequence[Axis], sizes: Shape, why: str) -> Axis:
        labelled = [place for place, axis in enumerate(axes) if axis is not None]
        if not labelled:
            return None
        if len(labelled) > 1:
            for place in labelled:
                self.pin(axes[place], why)
            return None
        place = labelled[0]
        axis = axes[place]
        assert axis is not None
        return axis.repeat_interleave(math.prod(sizes[place + 1 :])).repeat(math.prod(sizes[:place]))

    def _split(self, axis: Axis, sizes: Shape, spared: frozenset[int], why: str) -> list[Axis]:
        made: list[Axis] = [None] * len(sizes)
        places = [place for place, size in enumerate(sizes) if size > 1]
        if axis is None or not places:
            self.pin(axis, why)
            return made
        rows = {place: axis.view(*sizes).movedim(place, 0).reshape(sizes[place], -1) for place in places}
        for place in places:
            if bool((rows[place] == rows[place][:, :1]).all()):
                made[place] = rows[place][:, 0]
                return made
        place = next((place for place in places if place not in spared), places[0])
        made[place] = self.together(rows[place])
        return made


def _runs(old: Shape, new: Shape) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where dimensions of equal size, taken together, begin and end in both shapes.

    >>> _runs((2, 8, 4, 4), (2, 128))
    [((0, 0), (1, 1)), ((1, 1), (4, 2))]
    """
    runs = []
    i = j = 0
    while i < len(old) or j < len(new):
        begin = (i, j)
        left = right = 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        runs.append((begin, (i, j)))
    return runs
