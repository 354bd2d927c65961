"""Every kind of layer is what PyTorch computes, on every instruction set that is here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from granet.native import NativePlan, isas
from native_twin import EMULATED, Twin, halves

sizes = st.integers(1, 40)
seeds = st.integers(0, 2**32 - 1)
densities = st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.6, 1.0])
batches = st.sampled_from([1, 1, 2, 3, 5, 8, 16, 17])
threads = st.sampled_from([1, 1, 2, 3])


def every_isa() -> st.SearchStrategy[str]:
    return st.deferred(lambda: st.sampled_from((*isas(), *halves())))


@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    draw = data.draw
    height, width = draw(sizes), draw(sizes)
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (3, 3), (2, 2), (5, 5), (7, 7), (1, 3), (3, 1), (4, 5)]))
    stride = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (2, 1), (1, 2), (3, 3), (4, 2)]))
    padding = draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3)]))
    assume(height + 2 * padding[0] > dilation[0] * (kernel[0] - 1))
    assume(width + 2 * padding[1] > dilation[1] * (kernel[1] - 1))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 8]))
    ins, outs = groups * draw(st.integers(1, 20 // groups + 1)), groups * draw(st.integers(1, 20 // groups + 1))
    twin = Twin(draw(batches), draw(threads), draw(every_isa()), draw(seeds))
    x = twin.input(ins, height, width)
    geometry = {"stride": stride, "padding": padding, "dilation": dilation}
    y = twin.conv(x, outs, kernel, draw(densities), bias=draw(st.booleans()), groups=groups, **geometry)
    if draw(st.booleans()):  # a second one with a residual, on what the first one left
        y = twin.conv(x, outs, kernel, draw(densities), groups=groups, residual=y, relu=draw(st.booleans()), **geometry)
    twin.finish(y)
    assert twin.error() < twin.exact


@given(st.data())
def test_convolutions_of_tiny_maps(data: st.DataObject) -> None:
    """They are a matrix that multiplies all of the input."""
    draw = data.draw
    twin = Twin(1, draw(threads), draw(every_isa()), draw(seeds))
    groups, stride = draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 2)]))
    y = twin.input(groups * draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    outs = groups * draw(st.integers(1, 20))
    y = twin.conv(y, outs, (3, 3), draw(densities), groups=groups, stride=stride, padding=(1, 1))
    y = twin.conv(y, outs, (3, 3), draw(densities), padding=(1, 1), residual=y, relu=draw(st.booleans()))
    twin.finish(y, twin.global_pool(y))
    assert twin.error() < twin.exact


def test_a_row_without_weights_is_its_bias_whatever_is_beside_it() -> None:
    for isa in isas():
        plan = NativePlan(1, 1, isa)
        weight = np.array([0, 3], np.uint32), np.array([2.0, 1.0], np.float32)  # two of twenty rows, of two columns
        plan.output(plan.linear(plan.input(2), 20, *weight, np.arange(20, dtype=np.float32)))
        plan.finish()
        (found,) = plan.run([np.array([[[[np.inf]], [[4.0]]]], np.float32)])
        assert found.ravel().tolist() == [np.inf, 5.0, *range(2, 20)]


@given(st.data())
def test_chains_of_convolutions(data: st.DataObject) -> None:
    """What lies around and between tiles is right for the layer after."""
    draw = data.draw
    twin = Twin(draw(batches), draw(threads), draw(every_isa()), draw(seeds))
    y = twin.input(draw(st.integers(1, 5)), draw(sizes), draw(sizes))
    for _ in range(draw(st.integers(1, 4))):
        kernel, padding = draw(
            st.sampled_from([((3, 3), (1, 1)), ((1, 1), (0, 0)), ((5, 5), (2, 2)), ((7, 7), (3, 3))])
        )
        stride = draw(st.sampled_from([(1, 1), (1, 1), (2, 2)]))
        y = twin.conv(y, draw(st.integers(1, 9)), kernel, 0.3, stride=stride, padding=padding, relu=draw(st.booleans()))
    twin.finish(y)
    assert twin.error() < twin.exact


@given(st.data())
def test_linear_layers(data: st.DataObject) -> None:
    draw = data.draw
    twin = Twin(draw(st.sampled_from([1, 2, 7, 8, 40, 64, 100])), draw(threads), draw(every_isa()), draw(seeds))
    x = twin.input(draw(st.integers(1, 70)))
    outs = draw(st.integers(1, 50))
    y = twin.linear(x, outs, draw(densities), relu=draw(st.booleans()))
    y = twin.linear(x, outs, draw(densities), residual=y, relu=draw(st.booleans()))
    twin.finish(y)
    assert twin.error() < twin.exact


@given(st.data())
def test_pools(data: st.DataObject) -> None:
    draw = data.draw
    height, width = draw(sizes), draw(sizes)
    kernel = draw(st.sampled_from([(2, 2), (3, 3), (1, 2), (5, 3), (7, 7)]))
    stride = draw(st.sampled_from([(1, 1), (2, 2), (3, 2), kernel]))
    padding = draw(st.sampled_from([(0, 0), (kernel[0] // 2, kernel[1] // 2)]))
    assume(height + 2 * padding[0] >= kernel[0] and width + 2 * padding[1] >= kernel[1])
    twin = Twin(draw(batches), draw(threads), draw(every_isa()), draw(seeds))
    x = twin.conv(twin.input(2, height, width), 3, (1, 1), 1.0)
    y = twin.max_pool(x, kernel, stride, padding)
    z = twin.average_pool(x, kernel, stride, padding, draw(st.booleans()))
    w = twin.conv(y, 2, (3, 3), 1.0, padding=(1, 1))  # which reads around what the pool left
    twin.finish(y, z, w, twin.global_pool(x), twin.global_pool(z, "max"))
    assert twin.error() < twin.exact


@given(st.data())
def test_threads_divide_large_maps_and_small_ones(data: st.DataObject) -> None:
    """Rows of the first maps and channels of the last ones, with windows that read what other threads made."""
    draw = data.draw
    side, pads = st.integers(17, 44), st.sampled_from([0, 1])
    # Also more images than threads, but fewer blocks of them.
    batch, workers = draw(st.sampled_from([(1, 2), (1, 3), (12, 4), (16, 3)]))
    twin = Twin(batch, workers, draw(every_isa()), draw(seeds))
    x = twin.conv(twin.input(2, draw(side), draw(side)), 6, (3, 3), padding=(1, 1))
    y = twin.conv(x, 6, draw(st.sampled_from([(1, 1), (3, 3), (5, 5)])), relu=True)
    y = twin.conv(y, 6, (3, 3), padding=(1, 1), residual=y)
    z = twin.max_pool(y, (3, 3), (2, 2), (draw(pads), 0))
    w = twin.conv(z, 8, (3, 3), stride=(2, 2), padding=(1, draw(pads)))
    w = twin.conv(twin.conv(w, 8, (3, 3), padding=(1, 1)), 7, (3, 3), padding=(2, 2))
    twin.finish(twin.conv(x, 5, (3, 3), stride=(3, 3)), twin.relu(y), w, twin.global_pool(w))
    assert twin.error() < twin.exact


def test_threads_have_no_copies_of_what_no_cache_holds() -> None:
    side, channels = 600, 8
    memory = []
    for workers in (1, 4):
        twin = Twin(1, workers, isas()[0], 0)
        y = twin.conv(twin.input(1, side, side), channels, (3, 3), padding=(1, 1))
        twin.finish(twin.conv(y, 2, (3, 3), padding=(1, 1)))
        assert twin.error() < twin.exact
        memory.append(twin.plan.memory()[1])
    assert memory[1] < memory[0] + 4 * side * side * channels


@given(st.data())
def test_sums(data: st.DataObject) -> None:
    draw = data.draw
    twin = Twin(draw(batches), draw(threads), draw(every_isa()), draw(seeds))
    x = twin.input(3, draw(sizes), draw(sizes))
    a = twin.conv(x, 3, (3, 3), padding=(1, 1))
    b = twin.conv(x, 3, (1, 1))
    total = twin.add(twin.add(a, b, relu=True), x)
    twin.finish(total, twin.relu(total), twin.conv(total, 4, (3, 3), padding=(1, 1)), a, x)
    assert twin.error() < twin.exact


@given(st.data())
def test_a_residual_network(data: st.DataObject) -> None:
    """The shapes of ResNets: a stem, blocks of three with a residual, half the size with each, a mean and a head."""
    draw = data.draw
    twin = Twin(draw(batches), draw(threads), draw(every_isa()), draw(seeds))
    y = twin.conv(twin.input(3, draw(sizes), draw(sizes)), 8, (7, 7), 1.0, stride=(2, 2), padding=(3, 3), relu=True)
    y = twin.max_pool(y, (3, 3), (2, 2), (1, 1))
    for stage in range(3):
        stride = (2, 2) if stage else (1, 1)
        narrow = twin.conv(y, 4, (1, 1), relu=True)
        narrow = twin.conv(narrow, 4, (3, 3), stride=stride, padding=(1, 1), relu=True)
        y = twin.conv(narrow, 12, (1, 1), residual=twin.conv(y, 12, (1, 1), stride=stride), relu=True)
        y = twin.conv(twin.conv(y, 4, (1, 1), relu=True), 12, (1, 1), residual=y, relu=True)
    twin.finish(twin.linear(twin.flatten(twin.global_pool(y)), 10), twin.linear(twin.flatten(y), 7))
    assume(not twin.half or twin.largest() < 65504 / 4)  # else a sum may be too large for halves
    assert twin.error() < (0.1 if twin.half else twin.exact)  # now and then little is left of sums in several layers


@pytest.mark.parametrize("batch", [1, 5, 16])
def test_a_mobile_network(batch: int) -> None:
    """Each channel by itself, then all of a place together, and one factor for each channel's neighbours."""
    twin = Twin(batch)
    y = twin.input(16, 15, 15)
    for stride in (1, 2):
        y = twin.conv(y, 16, (3, 3), 1.0, groups=16, stride=(stride, stride), padding=(1, 1), relu=True)
        y = twin.conv(y, 16, (1, 1), 0.2, relu=True)
    twin.finish(y)
    assert twin.error() < twin.exact


@pytest.mark.parametrize("isa", [None, EMULATED])
def test_what_is_not_a_number_stays_visible(isa: str | None) -> None:
    twin = Twin(1, isa=isa)
    x = twin.input(1, 6, 6)
    twin.finish(twin.conv(x, 1, (3, 3), 1.0, relu=True), twin.max_pool(x, (2, 2), (2, 2)), twin.relu(x))
    twin.given[0][0, 0, 3, 3] = np.nan
    convolved, pooled, kept = twin.plan.run(twin.given)
    assert np.isnan(convolved[0, 0, 1:4, 1:4]).all() and np.isnan(convolved).sum() == 9
    assert np.isnan(pooled).sum() == 1 and np.isnan(kept).sum() == 1
