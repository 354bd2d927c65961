"""The least weights that keep a layer's outputs, where the answer is known in closed form or by definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softshrink

from granet.methods.sis.inclusion import Constraint, constraint, inclusion_gap, largest_singular_value, least_weights


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_gap_is_what_relu_forbids() -> None:
    z = torch.tensor([1.0, -2.0, 3.0, -4.0, 0.5])
    y = torch.tensor([1.0, 0.0, 2.0, 5.0, 0.0])
    assert inclusion_gap(z, y, rectified=True).tolist() == [0.0, 0.0, 1.0, -9.0, 0.5]
    assert inclusion_gap(z, y, rectified=False).tolist() == [0.0, -2.0, 1.0, -9.0, 0.5]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_there_is_no_gap_where_relu_gives_the_same(values: list[float]) -> None:
    z = torch.tensor(values, dtype=torch.float64)
    assert not inclusion_gap(z, z.relu(), rectified=True).any()


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=2, max_size=6),
    st.floats(0.0, 4.0),
    st.booleans(),
)
def test_the_excess_leads_to_the_nearest_point_that_meets_the_constraint(
    pairs: list[tuple[float, float]], bound: float, rectified: bool
) -> None:
    z, original = torch.tensor(pairs, dtype=torch.float64).T
    y = original.relu() if rectified else original
    one = Constraint(lambda weight: weight, y, rectified, bound)
    nearest = z - one.excess(z)
    distance = inclusion_gap(nearest, y, rectified).norm()
    assert distance <= bound + 1e-9
    # Nearest: whoever meets the constraint lies behind the plane through it, across the way from z.
    torch.manual_seed(0)
    for _ in range(20):
        away = torch.randn_like(z)
        inside = y + away * (bound / away.norm())
        assert float((z - nearest) @ (inside - nearest)) <= 1e-8


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.3, 0.6, 0.9])
def test_independent_inputs_give_a_soft_threshold(tolerance: float) -> None:
    """With X^T X = 1, |XW - XW0| is |W - W0|: every weight shrinks by the same amount, up to the bound."""
    inputs = torch.linalg.qr(torch.randn(40, 12, generator=generator()).double())[0]
    weight = torch.randn(5, 12, generator=generator()).double()
    low, high = 0.0, float(weight.abs().max())
    for _ in range(60):
        middle = (low + high) / 2
        too_far = (softshrink(weight, middle) - weight).norm() > tolerance * weight.norm()
        low, high = (low, middle) if too_far else (middle, high)
    found = least_weights(weight, [keep(inputs, weight, False, tolerance)], tolerance, 300)
    assert torch.allclose(found, softshrink(weight, low), atol=1e-6)
    assert torch.equal(found == 0, softshrink(weight, low) == 0)


def keep(inputs: Tensor, weight: Tensor, rectified: bool, tolerance: float) -> Constraint:
    return constraint(lambda weight: inputs @ weight.T, weight, rectified, tolerance)


def test_relu_leaves_out_what_only_sinks_below_zero() -> None:
    """One unit that is never on: nothing need be kept of it, though its preactivations are large."""
    inputs = torch.rand(30, 6, generator=generator()).double()
    weight = torch.randn(2, 6, generator=generator()).double()
    weight[0] = -weight[0].abs()
    weight[1] = weight[1].abs()
    found = least_weights(weight, [keep(inputs, weight, True, 0.05)], 0.05, 400)
    assert not found[0].any()
    assert found[1].any()
    plain = least_weights(weight, [keep(inputs, weight, False, 0.05)], 0.05, 400)
    assert plain[0].any()


@pytest.mark.parametrize("rectified", [False, True])
def test_the_outcome_meets_every_batch_and_shrinks(rectified: bool) -> None:
    inputs = torch.randn(64, 10, generator=generator()).double()
    weight = torch.randn(4, 10, generator=generator()).double()
    sizes = []
    for tolerance in (0.05, 0.2, 0.5):
        constraints = [keep(part, weight, rectified, tolerance) for part in inputs.split(32)]
        found = least_weights(weight, constraints, tolerance, 300)
        for one in constraints:
            assert inclusion_gap(one.preactivation(found), one.outputs, rectified).norm() <= one.bound * 1.02
        sizes.append(float(found.abs().sum()))
    assert float(weight.abs().sum()) > sizes[0] > sizes[1] > sizes[2]


def test_a_constant_in_the_preactivation_stays() -> None:
    bias = torch.tensor([3.0, -1.0]).double()
    inputs = torch.linalg.qr(torch.randn(20, 5, generator=generator()).double())[0]
    weight = torch.randn(2, 5, generator=generator()).double()
    with_bias = constraint(lambda weight: inputs @ weight.T + bias, weight, False, 0.3)
    found = [least_weights(weight, [one], 0.3, 200) for one in (with_bias, keep(inputs, weight, False, 0.3))]
    assert torch.allclose(*found, atol=1e-9)


def test_nothing_in_gives_nothing_out() -> None:
    weight = torch.ones(2, 3)
    assert not least_weights(weight, [keep(torch.zeros(4, 3), weight, True, 0.1)], 0.1, 5).any()
    assert not least_weights(torch.zeros(2, 3), [keep(torch.ones(4, 3), weight, True, 0.1)], 0.1, 5).any()


def test_the_largest_singular_value_is_not_underestimated() -> None:
    inputs = torch.randn(30, 8, generator=generator()).double()
    weight = torch.randn(3, 8, generator=generator()).double()
    found = largest_singular_value(weight, [keep(part, weight, False, 0.1) for part in inputs.split(10)])
    exact = float(torch.linalg.matrix_norm(inputs, 2))
    assert exact <= found <= 1.06 * exact


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_weights_that_are_all_the_same_negative_number(shape: tuple[int, int]) -> None:
    weight = torch.full(shape, -0.7).double()
    inputs = torch.linalg.qr(torch.randn(20, shape[1], generator=generator()).double())[0]
    found = least_weights(weight, [keep(inputs, weight, False, 0.1)], 0.1, 200)
    assert torch.allclose(found, torch.full_like(weight, -0.63))
