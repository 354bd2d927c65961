"""Plans: shapes are PyTorch's own, and what cannot run is refused as the plan is made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from granet.deploy.operators import Activation, AdaptivePool, Add, Array, Conv, Flatten, Linear, Op, Pool
from granet.deploy.plan import Plan

PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 4))


def array(*shape: int) -> Array:
    return Array.of(np.ones(shape, dtype=np.float32))


@given(st.tuples(st.integers(1, 12), st.integers(1, 12)), PAIRS, PAIRS, PAIRS, PAIRS)
def test_convolutions_have_the_shapes_of_pytorch(
    sides: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> None:
    shape, op = (2, 4, *sides), Conv(0, 0, stride=stride, padding=padding, dilation=dilation, groups=2)
    try:
        expected = F.conv2d(torch.ones(shape), torch.ones(6, 2, *kernel), None, stride, padding, dilation, 2).shape
    except RuntimeError:
        with pytest.raises(ValueError, match=r"^operator 0 \(conv\)"):
            Plan((shape,), (op,), (1,), (array(6, 2, *kernel),))
    else:
        assert Plan((shape,), (op,), (1,), (array(6, 2, *kernel),)).shapes == (shape, expected)


@given(st.tuples(st.integers(1, 12), st.integers(1, 12)), PAIRS, PAIRS, PAIRS, st.booleans())
def test_pools_have_the_shapes_of_pytorch(
    sides: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], ceil: bool
) -> None:
    shape = (2, 3, *sides)
    try:
        expected = F.max_pool2d(torch.ones(shape), kernel, stride, padding, ceil_mode=ceil).shape
    except RuntimeError:
        with pytest.raises(ValueError, match=r"^operator 0 \(pool\)"):
            Plan((shape,), (Pool(0, "max", kernel, stride, padding, ceil),), (1,), ())
    else:
        assert Plan((shape,), (Pool(0, "max", kernel, stride, padding, ceil),), (1,), ()).shapes[1] == expected


def test_values_are_known_by_number() -> None:
    ops: tuple[Op, ...] = (
        Conv(0, 0, bias=1, padding=(1, 1), activation="relu"),
        Conv(1, 0, residual=0, padding=(1, 1)),
        Add(2, 1),
        AdaptivePool(3, (1, 1)),
        Flatten(4),
        Linear(5, 2, activation="relu6"),
    )
    plan = Plan(((1, 8, 4, 4),), ops, (3, 6), (array(8, 8, 3, 3), array(8), array(5, 8)))
    assert plan.shapes[3:] == ((1, 8, 4, 4), (1, 8, 1, 1), (1, 8), (1, 5))
    assert plan.last_use == (1, 2, 2, 6, 4, 5, 6)


@pytest.mark.parametrize(
    ("op", "told"),
    [
        (Conv(1, 0), "value 1: must be one from 0 to 0, made before"),
        (Conv(-1, 0), "value -1: must be one from 0 to 0, made before"),
        (Conv(0, 3), "array 3: must be one of the 3 there are"),
        (Conv(0, -1), "array -1: must be one of the 3 there are"),
        (Conv(0, 0, bias=2), "bias \\[5, 8\\]: must be \\[8\\]"),
        (Conv(0, 0, groups=0), "weight \\[8, 8, 3, 3\\] in 0 groups does not fit"),
        (Conv(0, 0, stride=(0, 1)), "stride \\[0, 1\\]: must be from 1 to 1024"),
        (Conv(0, 0, padding=(-1, 0)), "padding \\[-1, 0\\]: must be from 0 to 1024"),
        (Conv(0, 0, residual=0), "cannot add \\[1, 8, 4, 4\\] to \\[1, 8, 2, 2\\]"),
        (Conv(0, 0, activation="tanh"), "activation 'tanh': must be one of '', 'relu', 'relu6'"),
        (Conv(0, 2), "weight \\[5, 8\\]: must be \\[out, in / groups, height, width\\]"),
        (Linear(0, 2), "weight \\[5, 8\\] does not fit \\[1, 8, 4, 4\\]"),
        (Pool(0, "least", (2, 2), (2, 2)), "kind 'least': must be 'max' or 'mean'"),
        (AdaptivePool(0, (5, 1)), "size \\[5, 1\\]: must be from 1 to that of"),
        (Add(0, 2), "value 2: must be one from 0 to 0, made before"),
    ],
)
def test_what_cannot_run_is_refused(op: Op, told: str) -> None:
    arrays = (array(8, 8, 3, 3), array(8), array(5, 8))
    with pytest.raises(ValueError, match=rf"^operator 0 \(\w+\): {told}"):
        Plan(((1, 8, 4, 4),), (op,), (1,), arrays)


@pytest.mark.parametrize(
    ("positions", "values", "told"),
    [
        ([1, 6], [1.0, 2.0], "position 6: must be below 6"),
        ([1, 1], [1.0, 2.0], "positions must ascend"),
        ([1], [1.0, 2.0], "has 2 values for 1 positions"),
        ([1], [float("nan")], "has values that are not finite"),
        (None, [1.0], "has 1 values for 6 positions"),
    ],
)
def test_weights_that_are_not_what_they_say_are_refused(
    positions: list[int] | None, values: list[float], told: str
) -> None:
    where = None if positions is None else np.array(positions, dtype=np.uint32)
    with pytest.raises(ValueError, match=f"^array 0: {told}$"):
        Plan(((1, 3),), (Linear(0, 0),), (1,), (Array((2, 3), where, np.array(values, dtype=np.float32)),))


@given(st.lists(st.sampled_from([0.0, 1.0, -2.5]), min_size=1, max_size=30))
def test_arrays_leave_zeros_out_and_give_them_back(values: list[float]) -> None:
    dense = np.array(values, dtype=np.float32)
    found = Array.of(dense)
    found.check()
    assert (found.dense() == dense).all()
    assert len(found.values) == (len(dense) if found.positions is None else np.count_nonzero(dense))


def test_a_plan_has_inputs_operators_and_outputs() -> None:
    plan = Plan(((2, 3),), (Activation(0),), (1,), ())
    for fields in ({"inputs": ()}, {"ops": ()}, {"outputs": ()}):
        with pytest.raises(ValueError, match=r"^a plan must have inputs, operators and outputs$"):
            replace(plan, **fields)
    for outputs in ((0,), (2,), (1, 1)):
        with pytest.raises(ValueError, match=r"^outputs .*: must be different values from 1 to 1$"):
            replace(plan, outputs=outputs)
