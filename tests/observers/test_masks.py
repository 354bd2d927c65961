"""Observers of masks, against a few lines of sets and dictionaries."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import granet
from granet.net import Change
from granet.observers import Observers

NAMES = ("overlap", "ever_active", "survival", "dead_filters")
Places = frozenset[int]


class Scripted:
    """Stands for a sparsifier whose masks are as written: two layers of 2 x 3 weights, places 0 to 11."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.layers = granet.sparsify(self.model, optimizer, granet.Static(sparsity=0.5)).layers
        self.step = 0
        self.listeners: list[Callable[[Change], None]] = []

    def on_change(self, listener: Callable[[Change], None]) -> None:
        self.listeners.append(listener)

    def update(self, places: Places) -> None:
        self.take(places)
        for listener in self.listeners:
            listener(Change())

    def take(self, places: Places) -> None:
        flat = torch.tensor([place in places for place in range(12)])
        for layer, mask in zip(self.layers.values(), flat.view(2, 2, 3), strict=True):
            layer.mask.copy_(mask)


def watch(masks: list[Places], epochs: list[int]) -> list[dict[str, float]]:
    """The figures after each epoch of so many updates, every second step one of them."""
    scripted = Scripted()
    scripted.take(masks[0])
    observers = Observers(NAMES, scripted.model, scripted)  # type: ignore[arg-type]
    figures = []
    coming = iter(masks[1:])
    for count in epochs:
        for _ in range(count):
            scripted.step += 1
            observers.after_step()
            scripted.step += 1
            scripted.update(next(coming))
            observers.after_step()
        figures.append(observers.epoch())
    return figures


def test_by_hand() -> None:
    # Place 5 comes at update 1 and goes at 3 (age 2), place 6 comes at 2 and stays, 0 goes at 1 and is back at 3.
    masks = [{0, 1, 2, 3}, {5, 1, 2, 3}, {5, 1, 2, 6}, {0, 1, 2, 6}]
    first, second, third = watch([frozenset(mask) for mask in masks], [2, 1, 0])
    assert first == pytest.approx(
        {
            "overlap.jaccard": 3 / 5,
            "overlap.kept": 3 / 4,
            "ever_active.share": 6 / 12,
            "survival.alive": 1.0,
            "dead_filters.share": 1 / 4,  # rows 0-2, 3-5, 6-8 have a weight, 9-11 none
        }
    )
    assert second["survival.alive"] == pytest.approx(2 / 3) and second["survival.age_at_death"] == 2.0
    assert second["dead_filters.share"] == 2 / 4
    assert not [key for key in third if key.startswith("overlap")]  # no update in that epoch
    assert third["survival.age_at_death"] == 2.0 and third["ever_active.share"] == 0.5


@given(st.lists(st.frozensets(st.integers(0, 11), min_size=1), min_size=2, max_size=7))
def test_any_masks(masks: list[Places]) -> None:
    (figures,) = watch(masks, [len(masks) - 1])
    both = [(len(a & b), len(a | b), len(a)) for a, b in pairwise(masks)]
    assert figures["overlap.jaccard"] == pytest.approx(sum(x / y for x, y, _ in both) / len(both))
    assert figures["overlap.kept"] == pytest.approx(sum(x / z for x, _, z in both) / len(both))
    assert figures["ever_active.share"] == pytest.approx(len(frozenset().union(*masks)) / 12)
    born: dict[int, int] = {}
    regrown, ages = 0, []
    for number, (a, b) in enumerate(pairwise(masks), start=1):
        for place in a - b:
            if place in born:
                ages.append(number - born.pop(place))
        for place in b - a:
            born[place] = number
            regrown += 1
    assert figures.get("survival.alive") == (pytest.approx(len(born) / regrown) if regrown else None)
    assert figures.get("survival.age_at_death") == (pytest.approx(sum(ages) / len(ages)) if ages else None)
    rows = [set(range(start, start + 3)) for start in (0, 3, 6, 9)]
    assert figures["dead_filters.share"] == sum(not row & masks[-1] for row in rows) / 4


def test_masks_that_change_without_an_update_are_seen_at_the_end_of_an_epoch() -> None:
    scripted = Scripted()
    scripted.take(frozenset({0}))
    observers = Observers(["ever_active"], scripted.model, scripted)  # type: ignore[arg-type]
    scripted.step = 1
    scripted.take(frozenset({1, 2}))
    observers.after_step()
    assert observers.epoch() == {"ever_active.share": 3 / 12}


def test_a_step_that_was_left_out_is_not_seen() -> None:
    scripted = Scripted()
    scripted.take(frozenset({0}))
    observers = Observers(["overlap"], scripted.model, scripted)  # type: ignore[arg-type]
    scripted.step = 2
    scripted.update(frozenset({0, 1}))
    for _ in range(3):
        observers.after_step()
    assert observers.epoch() == pytest.approx({"overlap.jaccard": 0.5, "overlap.kept": 1.0})


def test_filters_of_a_transposed_convolution_are_its_outputs() -> None:
    model = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.1))
    (layer,) = sparsifier.layers.values()
    layer.mask.fill_(True)
    layer.mask[:2, 1] = False  # the second output of the first group
    layer.mask[3, 0] = False  # one of two inputs: its output still has the other
    assert Observers(["dead_filters"], model, sparsifier).epoch() == {"dead_filters.share": pytest.approx(1 / 6)}
