"""Plans: what is refused and how that is said, one plan for several callers, and every way to compute a step."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from granet.native import NativePlan, NativeUnsupported, isas, library
from granet.native.structures import STRUCTURES
from native_twin import EMULATED, Twin, halves
from quick import slow_but_for


def positions(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.uint32)


def values(*numbers: float) -> Any:
    return np.array(numbers, dtype=np.float32)


def small(**changes: Any) -> dict[str, Any]:
    """Arguments of a convolution of the plan below, with changes."""
    usual = {
        "input": 0,
        "out_channels": 4,
        "kernel": (3, 3),
        "positions": positions(0, 5),
        "values": values(1, 2),
        "bias": None,
        "padding": (1, 1),
    }
    return {**usual, **changes}


def test_structures_are_those_of_the_library() -> None:
    sizes = [library().granet_struct_size(which) for which in range(len(STRUCTURES) + 1)]
    assert sizes == [*map(ctypes.sizeof, STRUCTURES), 0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"input": 7}, "input is 7, and the plan has 1 values"),
        ({"input": -1}, "input is -1, and the plan has 1 values"),
        ({"residual": 0}, "the residual is 2x5x6, and the output 4x5x6"),
        ({"residual": 3}, "residual is 3, and the plan has 1 values"),
        ({"residual": -2}, "residual is -2, neither a value nor -1"),
        ({"out_channels": 0}, "out_channels is 0, not between 1 and 4194304"),
        ({"out_channels": 2**62}, "out_channels is 4611686018427387904, not between 1 and 4194304"),
        ({"out_channels": 2**70}, "1180591620717411303424 is not a number of 64 bits"),
        ({"kernel": (0, 3)}, "kernel_h is 0, not between 1 and 4096"),
        ({"kernel": (3, 9)}, "a kernel that reaches over 9 is larger than the width of its input with padding, 8"),
        ({"dilation": (1, 4)}, "a kernel that reaches over 9 is larger than the width of its input with padding, 8"),
        ({"stride": (1, 0)}, "stride_w is 0, not between 1 and 4096"),
        ({"padding": (-1, 0)}, "padding_h is -1, not between 0 and 4096"),
        ({"groups": 3}, "groups is 3, not between 1 and 2"),
        ({"groups": 2, "out_channels": 5}, "out_channels is 5, not a multiple of groups, 2"),
        ({"positions": positions(5, 5)}, "positions[1] is 5 after 5, not ascending"),
        ({"positions": positions(0, 72)}, "positions[1] is 72, of 72 weights"),
        ({"values": values(0, np.inf)}, "values[1] is inf, not finite"),
        ({"bias": values(0, 0, np.nan, 0)}, "bias[2] is nan, not finite"),
        ({"bias": values(0)}, "bias has shape (1,), not (4,)"),
        ({"values": values(0)}, "positions have shape (2,), and values (1,): both must be one list of one length"),
    ],
)
def test_convolutions_that_are_refused(changes: dict[str, Any], said: str) -> None:
    plan = NativePlan(1)
    plan.input(2, 5, 6)
    with pytest.raises(ValueError, match=re.escape(said)):
        plan.conv(**small(**changes))
    plan.output(plan.conv(**small()))  # nothing is left of it
    plan.finish()
    assert plan.run([np.zeros((1, 2, 5, 6))])[0].shape == (1, 4, 5, 6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda plan: NativePlan(0), "batch is 0, not between 1 and 65536"),
        (lambda plan: NativePlan(1, 0), "threads is 0, not between 1 and 256"),
        (lambda plan: NativePlan(1, 10_000), "threads is 10000, not between 1 and 256"),
        (lambda plan: NativePlan(1, 1, "avx9000"), "isa is avx9000, not one of"),
        (lambda plan: NativePlan(1, 1, EMULATED), "isa is emulated, not one of"),
        (lambda plan: NativePlan(1, 1, "baseline", bits=16), "isa is baseline, not one of"),
        (lambda plan: NativePlan(1, bits=64), "bits is 64, neither 16 nor 32"),
        (lambda plan: plan.input(0), "channels is 0, not between"),
        (lambda plan: plan.linear(0, 3, positions(), values()), "a linear layer's input is 2x5x6: flatten it"),
        (lambda plan: plan.max_pool(0, (3, 3), (1, 1), (2, 2)), "padding_h is 2, not between 0 and 1"),
        (lambda plan: plan.max_pool(0, (6, 1), (1, 1)), "a kernel that reaches over 6 is larger than the height"),
        (lambda plan: plan.global_pool(0, "median"), "kind is 'median', not one of max, average"),
        (lambda plan: plan.add(0, plan.input(2, 6, 5)), "left is 2x5x6, and right 2x6x5"),
        (lambda plan: plan.output(1), "value is 1, and the plan has 1 values"),
        (lambda plan: plan.shape(2**40), "1099511627776 is not a number of 32 bits"),
    ],
)
def test_other_calls_that_are_refused(call: Callable[[NativePlan], Any], said: str) -> None:
    plan = NativePlan(1)
    plan.input(2, 5, 6)
    with pytest.raises(ValueError, match=re.escape(said)):
        call(plan)


@pytest.mark.parametrize("sizes", [(2**27, 2**20, 1), (2**20, 2**20, 1)])
def test_what_is_too_large_is_not_supported(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(NativeUnsupported, match=r"a value of .* is too large"):
        NativePlan(1).input(*sizes)


def test_calls_at_a_wrong_time_are_refused() -> None:
    plan = NativePlan(1)
    x = plan.input(1)
    for early in (plan.steps, plan.memory, lambda: plan.run([]), lambda: plan.chosen(0)):
        with pytest.raises(RuntimeError, match="the plan is not finished"):
            early()
    with pytest.raises(RuntimeError, match="the plan has no output"):
        plan.finish()
    plan.output(x)
    plan.finish()
    for late in (plan.finish, lambda: plan.input(1), lambda: plan.output(x)):
        with pytest.raises(RuntimeError, match="the plan is finished"):
            late()
    plan.close()
    with pytest.raises(RuntimeError, match="the plan is closed"):
        plan.steps()


def test_arrays_of_a_wrong_number_or_size_are_refused() -> None:
    plan = NativePlan(2)
    plan.output(plan.input(3, 4, 5))
    plan.finish()
    with pytest.raises(ValueError, match="0 inputs were given, and the plan has 1"):
        plan.run([])
    with pytest.raises(ValueError, match="input 0 has 60 elements, not 120"):
        plan.run([np.zeros((1, 3, 4, 5), np.float32)])


def network(batch: int = 1, threads: int = 1, isa: str | None = None) -> Twin:
    twin = Twin(batch, threads, isa)
    y = twin.conv(twin.input(3, 18, 18), 18, (3, 3), 1.0, padding=(1, 1), relu=True)
    y = twin.conv(y, 18, (3, 3), 0.2, padding=(1, 1), residual=y, relu=True)
    y = twin.conv(twin.max_pool(y, (2, 2), (2, 2)), 21, (3, 3), 0.1, stride=(2, 2), padding=(1, 1))
    twin.finish(twin.linear(twin.flatten(twin.global_pool(y)), 10))
    return twin


@pytest.mark.parametrize(
    ("isa", "batch"),
    [
        *((isa, batch) for isa in ("baseline", None) for batch in (1, 4)),
        *slow_but_for([(EMULATED, 1)], [(EMULATED, 1), (EMULATED, 4)]),
    ],
)
def test_every_choice_computes_the_same(isa: str | None, batch: int) -> None:
    twin = network(batch, isa=isa)
    tried = 0
    for step in twin.plan.steps():
        choices = twin.plan.choices(step.number)
        assert step.tunable == bool(choices)
        for choice in choices:
            twin.plan.choose(step.number, choice)
            assert twin.plan.chosen(step.number) == choice
            assert twin.error() < twin.exact
            tried += 1
    assert tried > 30


def test_choices_that_are_refused() -> None:
    twin = network(isa="baseline")
    step = next(step for step in twin.plan.steps() if step.tunable)
    chosen = twin.plan.chosen(step.number)
    for wrong, said in (
        ({"rows": 2}, "rows is 2, neither 1 nor 4"),
        ({"tile_h": 5}, "tile_h is 5, not between 1 and 4"),
        ({"rows": 1, "tile_h": 2, "tile_w": 90}, "tile_w is 90, not between 1 and"),
        ({"slice": 0}, "slice is 0, not between 1 and 3"),
    ):
        with pytest.raises(ValueError, match=said):
            twin.plan.choose(step.number, replace(chosen, **wrong))
    with pytest.raises(ValueError, match="step is 99, not between 0 and"):
        twin.plan.choose(99, chosen)
    with pytest.raises(ValueError, match="a step of kind layout has no choices"):
        twin.plan.choose(0, chosen)
    assert twin.plan.chosen(step.number) == chosen and twin.error() < 1e-5


def test_steps_are_measured_and_described() -> None:
    twin = network()
    steps = twin.plan.steps()
    times = twin.plan.measure(0.01)
    assert len(times) == len(steps) and all(time > 0 for time in times)
    assert twin.plan.measure_step(1, 0.001) > 0
    convolution = next(step for step in steps if step.tunable)
    assert convolution.weights == 18 * 3 * 9 and convolution.multiply_adds == 18 * 3 * 9 * 18 * 18
    assert convolution.text.startswith("conv 18x18x18, lanes ")
    with pytest.raises(ValueError, match="seconds is nan, not between 0 and 60"):
        twin.plan.measure(float("nan"))
    weights, activations = twin.plan.memory()
    assert weights > 8 * sum(step.weights for step in steps) and activations > 4 * 18 * 18 * 18


@pytest.mark.parametrize(("batch", "threads"), [(1, 1), (1, 2), (1, 7), (6, 3), (16, 2)])
def test_several_callers_at_once(batch: int, threads: int) -> None:
    """Each has what it would have alone, whoever has the threads meanwhile."""
    twin = network(batch, threads)
    inputs = [np.random.default_rng(seed).standard_normal(twin.given[0].shape, np.float32) for seed in range(8)]
    alone = [twin.plan.run([each])[0] for each in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            together = list(pool.map(lambda each: twin.plan.run([each])[0], inputs))
            assert all(map(np.array_equal, alone, together))


def test_many_plans_share_the_threads() -> None:
    twins = [network(batch, threads) for batch, threads in ((1, 2), (2, 1), (8, 3), (1, 3))]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert max(pool.map(Twin.error, twins)) < 1e-5


def test_a_layer_without_weights_is_its_bias() -> None:
    for isa in (*isas(), *halves()):
        twin = Twin(3, 1, isa)
        x = twin.input(5, 9, 9)
        twin.finish(twin.conv(x, 6, (3, 3), 0.0, padding=(1, 1)), twin.linear(twin.flatten(x), 6, 0.0, relu=True))
        assert twin.error() < (1e-3 if isa in halves() else 1e-30)  # which round the bias


def test_halves_are_never_computed_where_no_processor_does_so_unless_asked_for() -> None:
    assert EMULATED not in isas(16)
    if isas(16):
        assert NativePlan(1, bits=16).batch == 1
    else:
        with pytest.raises(NativeUnsupported, match=r"^this processor has no arithmetic of 16 bits$"):
            NativePlan(1, bits=16)


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("slices", [min, max])
def test_long_sums_of_halves_stay_exact(density: float, slices: Callable[..., int]) -> None:
    """Whatever is chosen: sums of thousands of products are made of short ones."""
    twin = Twin(1, isa=EMULATED)
    twin.finish(twin.conv(twin.input(512, 4, 4), 6, (3, 3), density, padding=(1, 1)))
    (step,) = (step for step in twin.plan.steps() if step.tunable)
    choices = twin.plan.choices(step.number)
    at = slices(choice.slice for choice in choices)
    for choice in choices:
        if choice.slice == at:
            twin.plan.choose(step.number, choice)
            assert twin.rms_error() < 2e-3


def test_what_halves_cannot_hold_is_infinite() -> None:
    plan = Twin(1, isa=EMULATED).plan
    plan.output(plan.conv(plan.input(1, 4, 4), 1, (1, 1), positions(0), values(1000)))
    plan.finish()
    (found,) = plan.run([np.full((1, 1, 4, 4), 100, np.float32)])
    assert np.isposinf(found).all()
