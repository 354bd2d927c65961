"""Training FLOPs against a step-by-step account."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import granet
from granet.flop_counting import FlopsReport, LayerFlops, TrainingFlops, flops
from granet.sparsifier import UpdateRecord
from refusals import refused

REPORT = FlopsReport(
    (
        LayerFlops("a", weights=10, active=10, dense=70, sparse=70, parameter="a.weight"),
        LayerFlops("b", weights=4, active=4, dense=12, sparse=12, parameter="b.weight"),
        LayerFlops("scores", weights=0, active=0, dense=9, sparse=9),
    )
)
LAYERS = ("a.weight", "b.weight")


def forward(active: tuple[int, ...]) -> int:
    return 7 * active[0] + 3 * active[1] + 9


def record(step: int, active: tuple[int, ...]) -> UpdateRecord:
    return UpdateRecord(step, target=0.0, achieved=0.0, pruned=0, regrown=0, skipped=False, active=active)


COUNTS = st.tuples(st.integers(0, 10), st.integers(0, 4))


@given(
    start=COUNTS,
    updates=st.dictionaries(st.integers(1, 30), COUNTS, max_size=6),
    steps=st.integers(0, 30),
    dense_gradient=st.sampled_from(["never", "on updates", "always"]),
)
@example(start=(5, 2), updates={7: (1, 1)}, steps=7, dense_gradient="on updates")
def test_against_every_single_step(
    start: tuple[int, int], updates: dict[int, tuple[int, int]], steps: int, dense_gradient: str
) -> None:
    total, masks = 0, start
    for step in range(1, steps + 1):
        gradient_is_dense = dense_gradient == "always" or (dense_gradient == "on updates" and step in updates)
        total += 2 * forward(masks) + (91 if gradient_is_dense else forward(masks))
        masks = updates.get(step, masks)  # an update comes after its step
    training = TrainingFlops(REPORT, LAYERS, start, dense_gradient)  # type: ignore[arg-type]
    cost = training.after(steps, [record(step, updates[step]) for step in sorted(updates)])
    assert cost.flops == total
    assert cost.ratio == (total / (3 * 91 * steps) if steps else 1.0)


def test_a_stretched_run_costs_as_many_times_as_much() -> None:
    training = TrainingFlops(REPORT, LAYERS, (5, 2), "never")
    once, twice = training.after(100), training.after(200)
    assert twice.ratio == once.ratio == forward((5, 2)) / 91
    assert twice.relative_to(100) == 2 * once.relative_to(100)


def test_dense_training_is_the_unit() -> None:
    assert TrainingFlops(REPORT, (), (), "never").after(17).ratio == 1.0
    assert TrainingFlops(REPORT, LAYERS, (10, 4), "always").after(17).ratio == 1.0


def test_two_dense_passes_of_everything_cost_twice_dense_training() -> None:
    training = TrainingFlops(REPORT, LAYERS, (5, 2), "always", dense_passes=2)
    assert training.after(17, [record(4, (1, 1))]).ratio == 2.0


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (granet.GraNet(sparsity=0.5), "on updates"),
        (granet.RigL(sparsity=0.5), "on updates"),
        (granet.RigLITOP(sparsity=0.5), "on updates"),
        (granet.GMP(sparsity=0.5), "never"),
        (granet.SET(sparsity=0.5), "never"),
        (granet.Static(sparsity=0.5), "never"),
        (granet.SNFS(sparsity=0.5), "always"),
        (granet.SNFSFixed(sparsity=0.5), "always"),
        (granet.DPF(sparsity=0.5), "always"),
        (granet.VD(), "always"),
    ],
)
def test_a_method_says_how_it_is_counted(method: granet.Method, expected: str) -> None:
    assert method.dense_gradient == expected
    assert method.dense_passes == (2 if isinstance(method, granet.VD) else 0)


def train(method: granet.Method, steps: int) -> tuple[granet.Sparsifier, TrainingFlops, list[int]]:
    """A run, and the FLOPs of a masked forward pass of each of its steps, by counting anew."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    image = torch.randn(1, 1, 6, 6)
    report = flops(model, image, masks={})
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=steps)
    training, passes = TrainingFlops.of(report, sparsifier), []
    for _ in range(steps):
        passes.append(flops(model, image, masks=sparsifier.masks).sparse)
        model(image).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return sparsifier, training, passes


@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_gradual_pruning_is_the_mean_of_its_forward_passes() -> None:
    sparsifier, training, passes = train(granet.GMP(sparsity=0.9, every=3, prune_end=15), 20)
    cost = training.after(20, sparsifier.history)
    assert cost.flops == 3 * sum(passes)
    assert passes[0] == training.report.dense and passes[-1] < 0.5 * passes[0]
    assert training.after(7, sparsifier.history).flops == 3 * sum(passes[:7])  # in the middle of the run


@pytest.mark.parametrize("batches", [1, 2])
def test_granet_adds_a_dense_gradient_on_updates(batches: int) -> None:
    """And on the steps before them whose gradients growth reads too."""
    method = granet.GraNet(sparsity=0.9, initial_sparsity=0.5, every=3, prune_end=15, grow_batch_count=batches)
    sparsifier, training, passes = train(method, 20)
    updates = [record.step for record in sparsifier.history]
    assert updates == [3, 6, 9, 12, 15, 18]
    expected = 3 * sum(passes) + batches * sum(training.report.dense - passes[step - 1] for step in updates)
    assert training.after(20, sparsifier.history).flops == expected
    assert passes[0] < training.report.dense


@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_the_masks_at_the_start_must_be_known() -> None:
    sparsifier, training, _ = train(granet.GMP(sparsity=0.9, every=2, prune_end=4), 4)
    with refused("sparsifier.step", 4):
        TrainingFlops.of(training.report, sparsifier)


def test_bad_values() -> None:
    with refused("dense_gradient", "sometimes", "'never'", "'on updates'", "'always'"):
        TrainingFlops(REPORT, LAYERS, (1, 1), "sometimes")  # type: ignore[arg-type]
    for sometimes in ("never", "on updates"):
        with pytest.raises(ValueError, match=f"dense_gradient='{sometimes}': must be 'always' with dense_passes=1"):
            TrainingFlops(REPORT, LAYERS, (1, 1), sometimes, dense_passes=1)  # type: ignore[arg-type]
    with refused("active", (1,), "2"):
        TrainingFlops(REPORT, LAYERS, (1,), "never")
    with refused("active['b.weight']", 5):
        TrainingFlops(REPORT, LAYERS, (1, 5), "never")
    training = TrainingFlops(REPORT, LAYERS, (1, 1), "never")
    with refused("steps", -1):
        training.after(-1)
    with refused("steps", 0):
        training.after(3).relative_to(0)
