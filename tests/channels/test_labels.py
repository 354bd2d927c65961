"""Labels through views: what can be cut of a new dimension, and what goes together with it."""

from __future__ import annotations

import torch

from granet.channels.labels import Axes, Labels


def groups(labels: Labels) -> list[set[int]]:
    root, _ = labels.groups()
    return [set((root == one).nonzero().flatten().tolist()) for one in root.unique().tolist()]


def view(
    labels: Labels, axes: Axes, old: tuple[int, ...], new: tuple[int, ...], spared: frozenset[int] = frozenset()
) -> Axes:
    return labels.reshape(axes, old, new, spared, "a view")


def listed(axes: Axes) -> list[list[int] | None]:
    return [None if axis is None else axis.tolist() for axis in axes]


def test_ties_hold_through_others() -> None:
    labels = Labels()
    a, b, c = labels.fresh(3), labels.fresh(3), labels.fresh(3)
    labels.tie(b, c, "")
    labels.tie(a, b, "")
    labels.pin(c[2:], "it is read")  # type: ignore[index]
    root, pinned = labels.groups()
    assert root.tolist() == [0, 1, 2] * 3
    assert pinned == {2: "it is read"}


def test_what_is_tied_to_what_cannot_be_cut_stays() -> None:
    labels = Labels()
    labels.tie(labels.fresh(2), None, "an image has them")
    assert labels.groups()[1] == {0: "an image has them", 1: "an image has them"}


def test_flattened_and_back() -> None:
    labels = Labels()
    axis = labels.fresh(3)
    flat = view(labels, (None, axis, None, None), (2, 3, 2, 2), (2, 12))
    assert listed(flat) == [None, [0] * 4 + [1] * 4 + [2] * 4]
    assert listed(view(labels, flat, (2, 12), (2, 3, 4))) == [None, [0, 1, 2], None]
    assert groups(labels) == [{0}, {1}, {2}]


def test_heads_go_as_a_whole() -> None:
    labels = Labels()
    heads = view(labels, (None, labels.fresh(6)), (5, 6), (5, 2, 3))
    assert listed(heads) == [None, [0, 3], None]
    assert groups(labels) == [{0, 1, 2}, {3, 4, 5}]


def test_heads_of_query_key_and_value_go_together() -> None:
    labels = Labels()
    heads = view(labels, (None, labels.fresh(12)), (5, 12), (5, 3, 2, 2), frozenset({1}))
    assert listed(heads) == [None, None, [0, 2], None]
    assert groups(labels) == [{0, 1, 4, 5, 8, 9}, {2, 3, 6, 7, 10, 11}]


def test_batch_and_heads_as_one_dimension_and_back() -> None:
    labels = Labels()
    merged = view(labels, (None, None, labels.fresh(6)), (5, 4, 6), (5, 8, 3))
    assert listed(merged) == [None, [0, 3] * 4, None]
    assert listed(view(labels, merged, (5, 8, 3), (5, 4, 2, 3))) == [None, None, [0, 3], None]


def test_two_dimensions_of_channels_cannot_be_merged() -> None:
    labels = Labels()
    merged = view(labels, (labels.fresh(2), labels.fresh(3)), (2, 3), (6,))
    assert listed(merged) == [None]
    assert len(labels.groups()[1]) == 5


def test_one_channel_is_no_channel() -> None:
    assert Labels().fresh(1) is None
    assert torch.equal(Labels().staying(1, "it is joined to others"), torch.tensor([0]))
