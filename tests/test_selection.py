"""Selection against Python's ``sorted``, on every path and device there is here.

A path is the plain torch one or the Triton kernels; the kernels run on a CUDA device, or else in Triton's interpreter.
Chunks, blocks and pieces are made tiny, so that small examples cross their borders.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from devices import needs_gpu, needs_triton, on_every_path, on_every_path_at_length, on_fast_paths
from examples import examples
from granet import selection
from granet.kernels import layer_table
from granet.selection import Candidates, Ranking, TorchRanking, rank

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "CHUNK", 5)
        patch.setattr(layer_table, "BLOCK", 16)
        patch.setattr(layer_table, "PIECE", 32)
        yield


class Layer(NamedTuple):
    values: list[float]
    mask: list[bool]
    dtype: torch.dtype = torch.float32
    strided: bool = False

    @property
    def scores(self) -> Tensor:
        tensor = torch.tensor(self.values, dtype=self.dtype)
        return torch.stack([tensor, torch.full_like(tensor, math.nan)], 1)[:, 0] if self.strided else tensor

    def places(self, candidates: Candidates) -> list[int]:
        return [i for i, active in enumerate(self.mask) if active is (candidates == "active")]

    def best(self, candidates: Candidates) -> list[int]:
        """Candidates from the best one down: the documented order, spelt out."""
        values = self.scores.tolist()
        return sorted(self.places(candidates), key=lambda i: (*order(values[i]), i))


def order(value: float) -> tuple[bool, float]:
    """Sorts first what ranks first: NaN, then by falling absolute value."""
    return (False, 0.0) if math.isnan(value) else (True, -abs(value))


def ranking(path: str, device: str, layers: Sequence[Layer], candidates: Candidates) -> tuple[Ranking, list[Tensor]]:
    scores = [layer.scores.to(device) for layer in layers]
    masks = [torch.tensor(layer.mask, dtype=torch.bool, device=device) for layer in layers]
    return build(path)(scores, masks, candidates), masks


def build(path: str) -> Callable[[Sequence[Tensor], Sequence[Tensor], Candidates], Ranking]:
    if path == "torch":
        return TorchRanking
    from granet.kernels.selection import TritonRanking

    return TritonRanking


def check_select(
    path: str, device: str, layers: Sequence[Layer], counts: Sequence[int], candidates: Candidates
) -> None:
    ranked, masks = ranking(path, device, layers, candidates)
    ranked.select(torch.tensor(counts, device=device))
    for layer, count, mask in zip(layers, counts, masks, strict=True):
        winners = set(layer.best(candidates)[:count])
        kept_active = set() if candidates == "active" else set(layer.places("active"))
        assert mask.nonzero().squeeze(1).tolist() == sorted(winners | kept_active)
        assert len(winners) == min(count, len(layer.places(candidates)))


def fair_counts(layers: Sequence[Layer], total: int, floors: Sequence[int]) -> list[int]:
    """Each layer first takes its floor; the rest goes to the best of what is left, earlier layers first."""
    queues = [layer.best("active") for layer in layers]
    counts = [min(floor, len(queue)) for floor, queue in zip(floors, queues, strict=True)]
    left = [
        (order(layer.scores.tolist()[i]), number, i)
        for number, (layer, queue) in enumerate(zip(layers, queues, strict=True))
        for i in queue[counts[number] :]
    ]
    for _, number, _ in sorted(left)[: max(0, total - sum(counts))]:
        counts[number] += 1
    return counts


# Examples: many ties, special values, neighbours in the last bit.


def floats_of(bits: int, width: str) -> float:
    value: float = struct.unpack(f"<{width}", bits.to_bytes(struct.calcsize(width), "little"))[0]
    return value


SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan, -math.nan, 1e-45, 5e-324, -6e-8])
FEW = st.integers(0, 4)
NEIGHBOURS = {  # of 1, below and above, one step of the dtype apart
    torch.float32: FEW.map(lambda low: floats_of(0x3F7FFFFE + low, "f")),
    torch.float64: FEW.map(lambda low: floats_of(0x3FEFFFFFFFFFFFFE + low, "d")),
    torch.float16: FEW.map(lambda low: floats_of(0x3BFE + low, "e")),
    torch.bfloat16: FEW.map(lambda low: floats_of((0x3F7E + low) << 16, "f")),
}


@st.composite
def layer_of(draw: st.DrawFn, dtypes: Sequence[torch.dtype], size: int = 40) -> Layer:
    dtype = draw(st.sampled_from(dtypes))
    element = st.one_of(SPECIAL, NEIGHBOURS[dtype], st.floats(width=32))
    values = draw(st.lists(element, max_size=size))
    mask = draw(st.one_of(st.just([True] * len(values)), st.just([False] * len(values)),
                          st.lists(st.booleans(), min_size=len(values), max_size=len(values))))  # fmt: skip
    return Layer(values, mask, dtype, draw(st.booleans()))


def layers_of(path: str, device: str) -> st.SearchStrategy[list[Layer]]:
    """Of one dtype or of several; the kernels leave float64 to the plain path."""
    known = [d for d in DTYPES if path == "torch" or d != torch.float64]
    mixed = st.lists(layer_of(known), min_size=1, max_size=4)
    layers = st.one_of(mixed, st.sampled_from(known).flatmap(lambda d: st.lists(layer_of([d]), min_size=1, max_size=4)))
    return layers.filter(lambda some: path == "torch" or any(layer.values for layer in some))


# The properties.


@pytest.mark.hypothesis
@on_fast_paths
@pytest.mark.parametrize("candidates", ["active", "inactive"])
def test_select_takes_the_largest_and_as_many_as_asked(path: str, device: str, candidates: Candidates) -> None:
    @settings(max_examples=examples(150))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        layers = data.draw(layers_of(path, device))
        counts = [data.draw(st.integers(0, len(layer.places(candidates)))) for layer in layers]
        check_select(path, device, layers, counts, candidates)

    check()


@pytest.mark.hypothesis
@on_fast_paths
def test_global_counts_are_fair_and_add_up(path: str, device: str) -> None:
    @settings(max_examples=examples(150))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        layers = data.draw(layers_of(path, device))
        numbers = [len(layer.places("active")) for layer in layers]
        floors = [data.draw(st.integers(0, 12)) for _ in layers]
        least = sum(map(min, floors, numbers))
        total = data.draw(st.integers(least, sum(numbers)))
        ranked, masks = ranking(path, device, layers, "active")
        counts = ranked.global_counts(torch.tensor(total, device=device), torch.tensor(floors, device=device))
        assert counts.tolist() == fair_counts(layers, total, floors)
        assert counts.sum() == total
        fewer = torch.tensor([data.draw(st.integers(0, count)) for count in counts.tolist()], device=device)
        for now in (counts, fewer):  # the same ranking serves all three
            ranked.select(now)
            for layer, mask, count in zip(layers, masks, now.tolist(), strict=True):
                assert mask.nonzero().squeeze(1).tolist() == sorted(layer.best("active")[:count])

    check()


@on_every_path_at_length
@pytest.mark.parametrize(("total", "met"), [(-5, 3), (0, 3), (2, 3), (3, 3), (9, 9), (10, 9), (10**6, 9)])
def test_a_global_total_out_of_reach_is_met_as_nearly_as_possible(path: str, device: str, total: int, met: int) -> None:
    layers = [Layer([3.0, 1.0, 2.0, 5.0, 4.0], [True] * 5), Layer([0.0], [True]), Layer([9.0] * 3, [True] * 3)]
    ranked, _ = ranking(path, device, layers, "active")
    floors = torch.tensor([1, 1, 1], device=device)
    assert ranked.global_counts(torch.tensor(total, device=device), floors).sum() == met


@on_every_path
def test_more_than_there_is_means_all(path: str, device: str) -> None:
    check_select(path, device, [Layer([1.0, 2.0, 0.0], [True, False, True])], [7], "active")
    check_select(path, device, [Layer([1.0, 2.0, 0.0], [True, False, True])], [7], "inactive")


@on_every_path_at_length
@pytest.mark.parametrize("candidates", ["active", "inactive"])
@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 64, 65])
def test_all_equal_scores_fall_to_the_first_positions(
    path: str, device: str, count: int, candidates: Candidates
) -> None:
    layers = [Layer([value] * 65, [candidates == "active"] * 65) for value in (0.0, 2.0, math.inf, math.nan)]
    check_select(path, device, layers, [count] * 4, candidates)


@on_every_path_at_length
@pytest.mark.parametrize("candidates", ["active", "inactive"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_sizes_around_chunks_and_blocks(path: str, device: str, share: float, candidates: Candidates) -> None:
    sizes = [1, 4, 5, 6, 15, 16, 17, 31, 32, 33, 63, 64, 65]
    values = torch.randn(65, generator=torch.Generator().manual_seed(0)).tolist()
    layers = [Layer(values[:size], [i % 3 != 0 for i in range(size)]) for size in sizes]
    counts = [int(share * len(layer.places(candidates))) for layer in layers]
    check_select(path, device, layers, counts, candidates)


@on_every_path
def test_layers_without_elements_or_candidates(path: str, device: str) -> None:
    layers = [Layer([], []), Layer([5.0, 1.0], [False, False]), Layer([1.0, 3.0, 2.0], [True] * 3), Layer([], [])]
    check_select(path, device, layers, [0, 0, 2, 0], "active")
    ranked, _ = ranking(path, device, layers, "active")
    counts = ranked.global_counts(torch.tensor(2, device=device), torch.ones(4, dtype=torch.int64, device=device))
    assert counts.tolist() == [0, 0, 2, 0]


@on_every_path_at_length
@pytest.mark.parametrize(("total", "shared"), [(0, [0, 0, 0]), (2, [2, 0, 0]), (4, [3, 1, 0]), (8, [3, 3, 2])])
def test_ties_between_layers_fall_to_the_earlier_layer(path: str, device: str, total: int, shared: list[int]) -> None:
    ranked, _ = ranking(path, device, [Layer([1.0, -1.0, 1.0], [True] * 3)] * 3, "active")
    floors = torch.zeros(3, dtype=torch.int64, device=device)
    assert ranked.global_counts(torch.tensor(total, device=device), floors).tolist() == shared


@on_every_path
def test_a_binding_floor_is_paid_for_by_the_other_layers(path: str, device: str) -> None:
    layers = [Layer([9.0, 8.0, 7.0], [True] * 3), Layer([0.1, 0.2], [True] * 2), Layer([6.0, 5.0], [True] * 2)]
    ranked, _ = ranking(path, device, layers, "active")
    counts = ranked.global_counts(torch.tensor(4, device=device), torch.tensor([0, 1, 0], device=device))
    assert counts.tolist() == [3, 1, 0]
    ranked, masks = ranking(path, device, layers, "active")
    counts = ranked.global_counts(torch.tensor(4, device=device), torch.tensor([0, 1, 1], device=device))
    ranked.select(counts)
    assert [mask.tolist() for mask in masks] == [[True, True, False], [False, True], [True, False]]


@on_every_path
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_all_nans_are_equal(path: str, device: str, dtype: torch.dtype) -> None:
    """Whatever bits a NaN carries: a conversion keeps them on one device and not on another."""
    whole = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}[dtype]
    quiet = int(torch.tensor(math.nan, dtype=dtype).view(whole))
    bits = torch.tensor([quiet, quiet + 1, quiet - 1, 0], dtype=whole, device=device)
    masks = [torch.ones(4, dtype=torch.bool, device=device)]
    build(path)([bits.view(dtype)], masks, "active").select(torch.tensor([1], device=device))
    assert masks[0].tolist() == [True, False, False, False]


@on_every_path
def test_positions_count_in_logical_order_whatever_the_memory_layout(path: str, device: str) -> None:
    scores = torch.randn(4, 3, 2, 5, generator=torch.Generator().manual_seed(0)).mul(2).round().to(device)  # ties
    wanted, got = (torch.ones(120, dtype=torch.bool, device=device) for _ in range(2))
    for mask, tensor in ((wanted, scores), (got, scores.to(memory_format=torch.channels_last))):
        build(path)([tensor], [mask], "active").select(torch.tensor([61], device=device))
    assert torch.equal(wanted, got)
    assert got.sum() == 61
    got = torch.ones(120, dtype=torch.bool, device=device)
    build(path)([scores.permute(2, 1, 0, 3)], [got], "active").select(torch.tensor([61], device=device))
    expected = Layer(scores.permute(2, 1, 0, 3).flatten().tolist(), [True] * 120).best("active")[:61]
    assert got.nonzero().squeeze(1).tolist() == sorted(expected)


@on_every_path
def test_a_flat_tensor_may_have_gaps(path: str, device: str) -> None:
    """``reshape(-1)`` copies most layouts, but a vector with gaps stays as it is."""
    scores = torch.tensor([1.0, 9.0, 2.0, 9.0, 3.0, 9.0], device=device)[::2]
    masks = [torch.ones(3, dtype=torch.bool, device=device)]
    build(path)([scores], masks, "active").select(torch.tensor([1], device=device))
    assert masks[0].tolist() == [False, False, True]


@on_every_path
def test_scores_are_left_alone(path: str, device: str) -> None:
    scores = torch.tensor([-1.0, math.nan, 3.0, -0.0], device=device)
    before = scores.view(torch.int32).clone()
    masks = [torch.tensor([True, False, True, True], device=device)]
    build(path)([scores], masks, "active").select(torch.tensor([1], device=device))
    assert torch.equal(scores.view(torch.int32), before)


@on_every_path_at_length
@pytest.mark.parametrize("near", [-1, 0, 1])
def test_the_true_chunk_and_piece_sizes(path: str, device: str, near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "CHUNK", 1 << 17)
    monkeypatch.setattr(layer_table, "BLOCK", 2048)
    monkeypatch.setattr(layer_table, "PIECE", 16_384)
    size = near + (16_384 if path == "triton" else 1 << 17)
    scores = torch.randn(size, generator=torch.Generator().manual_seed(0)).mul(100).round().div(100)  # ties
    masks = [torch.ones(size, dtype=torch.bool, device=device)]
    build(path)([scores.to(device)], masks, "active").select(torch.tensor([size // 3], device=device))
    best = scores.abs().sort(descending=True, stable=True).indices[: size // 3]
    assert masks[0].nonzero().squeeze(1).tolist() == best.sort().values.tolist()


@pytest.mark.parametrize("others", [[], [Layer([1.0], [True], torch.bfloat16)]], ids=["alone", "beside narrower"])
def test_float64_is_compared_in_full(others: list[Layer]) -> None:
    fine = [1.0, 1.0 + 2**-52, 1.0 - 2**-53]
    layers = [Layer(fine, [True] * 3, torch.float64), *others]
    ranked, _ = ranking("torch", "cpu", layers, "active")
    floors = torch.tensor([0] * len(layers))
    assert ranked.global_counts(torch.tensor(1), floors).tolist() == [1, *(0 for _ in others)]
    check_select("torch", "cpu", layers, [1, *(1 for _ in others)], "active")
    check_select("torch", "cpu", layers, [2, *(0 for _ in others)], "active")


def test_the_path_is_chosen_by_device_and_dtype() -> None:
    masks = [torch.ones(3, dtype=torch.bool)]
    assert isinstance(rank([torch.ones(3)], masks, "active"), TorchRanking)


@needs_gpu
@needs_triton
def test_kernels_rank_on_a_gpu_but_for_float64() -> None:
    masks = [torch.ones(3, dtype=torch.bool, device="cuda")]
    assert isinstance(rank([torch.ones(3, device="cuda")], masks, "active"), build("triton"))  # type: ignore[arg-type]
    assert isinstance(rank([torch.ones(3, device="cuda", dtype=torch.float64)], masks, "active"), TorchRanking)


@needs_gpu
def test_the_kernels_never_make_the_host_wait() -> None:
    scores = [torch.randn(100_000, device="cuda"), torch.randn(77, device="cuda")]
    masks = [torch.ones(len(score), dtype=torch.bool, device="cuda") for score in scores]
    floors, total = torch.tensor([1, 1], device="cuda"), torch.tensor(5000, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ranked = rank(scores, masks, "active")
        ranked.select(ranked.global_counts(total, floors))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert sum(int(mask.sum()) for mask in masks) == 5000
