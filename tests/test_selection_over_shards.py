"""Selection among weights that ranks hold parts of, against the same among whole weights.

Ranks are threads that take turns: one works until it has numbers to sum, and goes on when all have. Every split is one
that FSDP2 or tensor parallelism makes, or a pipeline, where a rank holds nothing of a layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier, Lock
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from devices import on_every_path_at_length, on_fast_paths
from examples import examples
from granet import selection
from granet.kernels import layer_table
from granet.selection import Candidates, Ranking, TorchRanking
from granet.tensors.part import Part, Reduce

Work = Callable[[Ranking, str], Sequence[Tensor]]
"""What is asked of a ranking on a device."""


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "CHUNK", 5)
        patch.setattr(layer_table, "BLOCK", 16)
        patch.setattr(layer_table, "PIECE", 32)
        yield


class Layer(NamedTuple):
    scores: Tensor
    mask: Tensor
    boxes: list[tuple[slice, ...]]
    """For each rank, what it holds."""

    def held_by(self, rank: int) -> tuple[Tensor, Tensor, Part]:
        box = self.boxes[rank]
        scores = self.scores[box]
        offset = [one.start for one in box] + [0] * (scores.ndim - len(box))
        return scores, self.mask[box].reshape(-1).clone(), Part.of(self.scores.shape, offset, scores.shape)


class Ranks:
    """Runs the same work on every rank; of the threads, only one at a time is not waiting for the others."""

    def __init__(self, number: int) -> None:
        self._barrier, self._turn = Barrier(number), Lock()
        self._numbers: list[Tensor | None] = [None] * number
        self.sums = 0

    def run(self, work: Callable[[int, Reduce], list[Tensor]]) -> list[list[Tensor]]:
        def alone(rank: int) -> list[Tensor]:
            try:
                with self._turn:
                    return work(rank, lambda numbers: self._sum(rank, numbers))
            except BaseException:
                self._barrier.abort()
                raise

        with ThreadPoolExecutor(len(self._numbers)) as pool:
            return list(pool.map(alone, range(len(self._numbers))))

    def _sum(self, rank: int, numbers: Tensor) -> Tensor:
        assert not numbers.is_floating_point()
        self._numbers[rank] = numbers.clone()
        self._wait()
        self.sums += rank == 0
        total = sum(one for one in self._numbers if one is not None)
        self._wait()
        return numbers.copy_(total)  # in place, as an all-reduce is

    def _wait(self) -> None:
        self._turn.release()
        try:
            self._barrier.wait(timeout=60)
        finally:
            self._turn.acquire()


def build(path: str) -> Callable[..., Ranking]:
    if path == "torch":
        return TorchRanking
    from granet.kernels.selection import TritonRanking

    return TritonRanking


def check(path: str, device: str, layers: Sequence[Layer], work: Work, candidates: Candidates = "active") -> int:
    """That work gives every rank the same numbers as on whole weights, and its part of the masks; how often it sums."""
    whole = [layer.mask.reshape(-1).clone() for layer in layers]
    numbers = work(TorchRanking([layer.scores for layer in layers], whole, candidates), "cpu")

    def on_rank(rank: int, reduce: Reduce) -> list[Tensor]:
        scores, masks, parts = zip(*[layer.held_by(rank) for layer in layers], strict=True)
        masks = [mask.to(device) for mask in masks]
        given = work(build(path)([one.to(device) for one in scores], masks, candidates, parts, reduce), device)
        assert [one.tolist() for one in given] == [one.tolist() for one in numbers]
        return masks

    ranks = Ranks(len(layers[0].boxes))
    for rank_number, masks in enumerate(ranks.run(on_rank)):
        for layer, expected, mask in zip(layers, whole, masks, strict=True):
            there = expected.view(layer.scores.shape)[layer.boxes[rank_number]]
            assert mask.tolist() == there.flatten().tolist()
    return ranks.sums


def select(counts: Sequence[int]) -> Work:
    def work(ranking: Ranking, device: str) -> Sequence[Tensor]:
        ranking.select(torch.tensor(counts, device=device))
        return []

    return work


def prune(total: int, floors: Sequence[int], share: float) -> Work:
    """A global count, a selection by it, and one of fewer."""

    def work(ranking: Ranking, device: str) -> Sequence[Tensor]:
        counts = ranking.global_counts(torch.tensor(total, device=device), torch.tensor(floors, device=device))
        ranking.select(counts)
        fewer = (counts * share).long()
        ranking.select(fewer)
        return counts, fewer

    return work


# Examples: few different scores, so that ties lie everywhere; ranks without anything.

VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0, 0.5, math.inf, -math.inf, math.nan, 1e-45, 0.99999994])


def cuts(draw: st.DrawFn, size: int, pieces: int) -> list[slice]:
    ends = [0, *sorted(draw(st.lists(st.integers(0, size), min_size=pieces - 1, max_size=pieces - 1))), size]
    return [slice(start, stop) for start, stop in pairwise(ends)]


@st.composite
def layer_of(draw: st.DrawFn, number: int, dtype: torch.dtype) -> Layer:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=3)))
    size = math.prod(shape)
    few = draw(st.lists(VALUES, min_size=1, max_size=3))
    scores = torch.tensor(draw(st.lists(st.sampled_from(few), min_size=size, max_size=size)), dtype=dtype).view(shape)
    mask = torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size))).view(shape)
    by = draw(st.sampled_from(["rows", "columns", "both", "one rank"]))
    if by == "rows":
        return Layer(scores, mask, [(one,) for one in cuts(draw, shape[0], number)])
    if by == "columns":
        return Layer(scores, mask, [(slice(0, shape[0]), one) for one in cuts(draw, shape[1], number)])
    if by == "both" and number == 4:
        rows, columns = cuts(draw, shape[0], 2), cuts(draw, shape[1], 2)
        return Layer(scores, mask, [(row, column) for row in rows for column in columns])
    holder = draw(st.integers(0, number - 1))
    return Layer(scores, mask, [(slice(0, shape[0] if i == holder else 0),) for i in range(number)])


@st.composite
def layers_of(draw: st.DrawFn, path: str) -> list[Layer]:
    number = draw(st.integers(1, 4))
    dtypes = [torch.float32, torch.bfloat16, *([torch.float64] if path == "torch" else [])]
    dtype = draw(st.sampled_from(dtypes))
    return draw(st.lists(layer_of(number, dtype), min_size=1, max_size=3))


@pytest.mark.hypothesis
@on_fast_paths
@pytest.mark.parametrize("candidates", ["active", "inactive"])
def test_each_layer_alone(path: str, device: str, candidates: Candidates) -> None:
    @settings(max_examples=examples(80))
    @given(st.data())
    def test(data: st.DataObject) -> None:
        layers = data.draw(layers_of(path))
        there = [int((layer.mask == (candidates == "active")).sum()) for layer in layers]
        check(path, device, layers, select([data.draw(st.integers(0, most)) for most in there]), candidates)

    test()


@pytest.mark.hypothesis
@on_fast_paths
def test_all_layers_together(path: str, device: str) -> None:
    @settings(max_examples=examples(80))
    @given(st.data())
    def test(data: st.DataObject) -> None:
        layers = data.draw(layers_of(path))
        floors = [data.draw(st.integers(0, 12)) for _ in layers]
        total = data.draw(st.integers(0, sum(int(layer.mask.sum()) for layer in layers) + 2))
        check(path, device, layers, prune(total, floors, data.draw(st.sampled_from([0.5, 0.9, 1.0]))))

    test()


def halves(shape: tuple[int, int], dim: int) -> list[tuple[slice, ...]]:
    ends = (0, shape[dim] // 2, shape[dim])
    before = (slice(0, shape[0]),) * dim
    return [(*before, slice(start, stop)) for start, stop in pairwise(ends)]


@on_every_path_at_length
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 59, 60, 61, 119, 120, 200])
def test_equal_scores_fall_to_the_first_positions_of_the_whole(path: str, device: str, dim: int, count: int) -> None:
    shape = 10, 12
    layer = Layer(torch.full(shape, 0.5), torch.ones(shape, dtype=torch.bool), halves(shape, dim))
    check(path, device, [layer], select([count]))


@on_every_path_at_length
def test_a_floor_binds_the_layer_and_not_the_part(path: str, device: str) -> None:
    """Each part alone is above what the layer keeps, or below it: the floor counts once."""
    low, high = torch.full((4, 6), 0.1), torch.arange(1.0, 25.0).view(4, 6)
    layers = [Layer(scores, torch.ones(4, 6, dtype=torch.bool), halves((4, 6), dim)) for scores in (low, high)
              for dim in (0, 1)]  # fmt: skip
    check(path, device, layers, prune(30, [7, 1, 0, 2], 1.0))


def test_where_all_or_none_of_the_equal_scores_win_positions_are_not_searched() -> None:
    """It saves half of what ranks send."""
    shape = 4, 6
    scores = torch.arange(24.0).view(shape)
    plain = Layer(scores, torch.ones(shape, dtype=torch.bool), halves(shape, 1))
    tied = Layer(scores // 2, torch.ones(shape, dtype=torch.bool), halves(shape, 1))
    assert check("torch", "cpu", [plain], select([7])) == 3
    assert check("torch", "cpu", [tied], select([6])) == 3
    assert check("torch", "cpu", [tied], select([7])) == 4
