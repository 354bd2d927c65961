"""Where the elements of a shard lie, against slices of a tensor that holds its own positions."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from granet.tensors.part import Part
from refusals import refused


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """A shape, and a slice along the first dimension and along another one."""
    whole = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    other = draw(st.integers(0, len(whole) - 1))
    slices = []
    for dim, size in enumerate(whole):
        start, stop = sorted(draw(st.tuples(*[st.integers(0, size)] * 2))) if dim in (0, other) else (0, size)
        slices.append(slice(start, stop))
    return whole, tuple(slices)


@given(boxes())
def test_places_are_those_of_the_slice(box: tuple[tuple[int, ...], tuple[slice, ...]]) -> None:
    whole, slices = box
    here = torch.arange(torch.Size(whole).numel()).view(whole)[slices]
    part = Part.of(whole, [one.start for one in slices], here.shape)
    assert part.whole == torch.Size(whole).numel()
    assert part.places(torch.arange(here.numel())).tolist() == here.flatten().tolist()


def test_places_beyond_32_bits() -> None:
    part = Part.of((1 << 20, 1 << 14), (0, 5), (1 << 20, 2))
    assert part.places(torch.tensor([(1 << 21) - 1])).tolist() == [(1 << 34) - (1 << 14) + 6]


def test_cuts_along_several_inner_dimensions_are_refused() -> None:
    with refused("shape", (2, 1, 1)):
        Part.of((4, 2, 2), (0, 0, 1), (2, 1, 1))
