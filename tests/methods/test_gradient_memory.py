"""Growth by the gradients of several steps, whatever way those steps are made."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import granet
from granet.methods.gradient_memory import GradientMemory, MeanGradient, Momentum
from granet.methods.rigl import SparseToSparse
from granet.scores import magnitude, momentum
from granet.sparsifier import steps_of
from refusals import refused

METHODS = {
    "rigl": lambda n: granet.RigL(sparsity=0.6, every=5, end=20, grow_batch_count=n),
    "rigl-itop": lambda n: granet.RigLITOP(sparsity=0.6, every=5, grow_batch_count=n),
    "granet": lambda n: granet.GraNet(sparsity=0.6, initial_sparsity=0.6, prune_end=10, every=5, grow_batch_count=n),
}
RATIO = {
    "rigl": lambda step: 0.15 * (1 + math.cos(math.pi * step / 20)),
    "rigl-itop": lambda step: 0.005 + 0.495 / 2 * (1 + math.cos(math.pi * step / 20)),
}
RATIO["granet"] = RATIO["rigl-itop"]
ROUND = {"rigl": math.floor, "rigl-itop": math.ceil, "granet": math.ceil}


def start(method: granet.Method, steps: int = 20, **options) -> tuple[nn.Module, torch.optim.SGD, granet.Sparsifier]:
    torch.manual_seed(0)
    model = nn.Linear(10, 8, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, **options)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=steps)


def loss(model: nn.Module, step: int, part: slice = slice(None)) -> Tensor:
    x = torch.randn(6, 10, generator=torch.Generator().manual_seed(step))[part]
    return nn.functional.cross_entropy(model(x), x[:, :8].argmax(1), reduction="sum")


def grown(layer: granet.SparseLayer, mask: Tensor, score: Tensor, moved: int) -> Tensor:
    """The mask after ``moved`` of the smallest went and as many of the largest scores came."""
    weight = layer.weight.detach().abs().masked_fill(~mask, -1).flatten()
    result = torch.zeros(80, dtype=torch.bool)
    result[weight.argsort(descending=True, stable=True)[: int(mask.sum()) - moved]] = True
    outside = score.abs().flatten().masked_fill(result, -1)
    result[outside.argsort(descending=True, stable=True)[:moved]] = True
    return result.view(8, 10)


@pytest.mark.parametrize("batches", [1, 2, 3, 5])
@pytest.mark.parametrize("name", METHODS)
def test_growth_is_by_the_mean_of_the_last_gradients(name: str, batches: int) -> None:
    """Weights just before the update are those after the optimizer's step, seen by a twin that never updates."""
    model, optimizer, sparsifier = start(METHODS[name](batches))
    layer, seen, updates = sparsifier.layers["weight"], [], 0
    for step in range(1, 20):
        optimizer.zero_grad()
        loss(model, step).backward()
        seen.append(model.weight.grad.clone())
        mask = layer.mask.clone()
        twin, sgd = copy.deepcopy((model, optimizer))
        twin.weight.grad = seen[-1] * mask
        sgd.step()
        optimizer.step()
        if step % 5 == 0:
            mean = torch.stack(seen[-batches:]).mean(0)
            weights = granet.SparseLayer.of("twin", twin.weight, 0, 0)
            moved = ROUND[name](RATIO[name](step) * 32)
            assert torch.equal(layer.mask, grown(weights, mask, mean, moved))
            updates += moved > 0
        else:
            assert torch.equal(layer.mask, mask)
    assert updates == 3
    assert sparsifier.sparsity == 0.6


def masks_of(run: tuple[nn.Module, torch.optim.SGD, granet.Sparsifier]) -> list[Tensor]:
    return [run[0].weight.detach().clone(), *(mask.clone() for mask in run[2].masks.values())]


def plain_run(method: granet.Method) -> list[Tensor]:
    run = start(method)
    for step in range(1, 20):
        run[1].zero_grad()
        loss(run[0], step).backward()
        run[1].step()
    return masks_of(run)


def check_same(some: Iterable[Tensor], others: Iterable[Tensor]) -> None:
    for a, b in zip(some, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


REMEMBERING = {
    "mean": granet.RigLITOP(sparsity=0.6, every=5, grow_batch_count=3),
    "momentum": granet.SNFS(sparsity=0.6, every=5),
}


def test_a_mean_begins_anew_also_after_an_update_that_had_no_gradient() -> None:
    model, optimizer, sparsifier = start(REMEMBERING["mean"])
    for step in range(1, 5):
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step()
    mean = sparsifier.layers["weight"].memory["gradient_mean"]
    assert mean.any()
    optimizer.zero_grad()
    with pytest.warns(UserWarning, match="no gradient at a mask update"):
        optimizer.step()
    assert sparsifier.step == 5 and not mean.any()


@pytest.mark.parametrize("method", REMEMBERING.values(), ids=REMEMBERING)
def test_masking_before_the_step_counts_a_gradient_once(method: granet.Method) -> None:
    run = start(method)
    for step in range(1, 20):
        run[1].zero_grad(set_to_none=step % 2 == 0)
        loss(run[0], step).backward()
        for _ in range(2):
            run[2].mask_gradients()
        run[1].step()
    check_same(masks_of(run), plain_run(method))


@pytest.mark.parametrize("method", REMEMBERING.values(), ids=REMEMBERING)
def test_micro_batches_make_one_gradient(method: granet.Method) -> None:
    run = start(method)
    for step in range(1, 20):
        run[1].zero_grad()
        for part in (slice(0, 2), slice(2, 6)):
            loss(run[0], step, part).backward()
        run[1].step()
    check_same(masks_of(run), plain_run(method))


@pytest.mark.parametrize("method", REMEMBERING.values(), ids=REMEMBERING)
def test_a_replayed_step_reads_dense_gradients_from_grad(method: granet.Method) -> None:
    """As from a CUDA graph: SGD on masked gradients written out, .grad stays dense, then advance()."""
    run = start(method)
    model, optimizer, sparsifier = run
    sparsifier.remove()
    buffer = torch.zeros(8, 10)
    optimizer.state[model.weight]["momentum_buffer"] = buffer
    for step in range(1, 20):
        model.zero_grad()
        loss(model, step).backward()
        buffer.mul_(0.9).add_(model.weight.grad * sparsifier.masks["weight"])
        model.weight.data.sub_(0.2 * buffer)
        steps_of(sparsifier).taken()
    check_same(masks_of(run), plain_run(method))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("method", REMEMBERING.values(), ids=REMEMBERING)
def test_steps_given_up_and_changing_scales_leave_no_trace(method: granet.Method, clip: bool, fused: bool) -> None:
    """Step 8 (no update, remembered) and step 10 (update) overflow once each, then go through at half the scale."""
    run = start(method, fused=fused)
    model, optimizer, sparsifier = run
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    for step in range(1, 20):
        for spoilt in [True, False] if step in (8, 10) else [False]:
            optimizer.zero_grad()
            scaler.scale(loss(model, 99 if spoilt else step)).backward()
            if spoilt:
                model.weight.grad[3, 3] = torch.inf
            if clip:
                scaler.unscale_(optimizer)
                sparsifier.mask_gradients()
            scaler.step(optimizer)
            scaler.update()
    assert sparsifier.step == 19
    check_same(masks_of(run), plain_run(method))


def test_a_mean_that_is_not_finite_skips_one_update_only() -> None:
    model, optimizer, sparsifier = start(REMEMBERING["mean"])
    with pytest.warns(UserWarning, match="step 5: a gradient is not finite"):
        for step in range(1, 20):
            optimizer.zero_grad()
            loss(model, step).backward()
            if step == 4:
                model.weight.grad[~sparsifier.masks["weight"]] = torch.nan
            optimizer.step()
    assert [record.skipped for record in sparsifier.history] == [True, False, False]


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_counts_as_zero_in_an_average(value: float) -> None:
    averages = []
    for spoilt in (value, 0.0):
        model, optimizer, sparsifier = start(REMEMBERING["momentum"])
        for step in range(1, 20):
            optimizer.zero_grad()
            loss(model, step).backward()
            if step == 4:
                model.weight.grad[~sparsifier.masks["weight"]] = spoilt
            optimizer.step()
        assert [record.skipped for record in sparsifier.history] == [False, False, False]
        averages.append(sparsifier.layers["weight"].memory["momentum"])
    assert torch.equal(*averages)


def test_half_precision_gradients_add_up_in_float32() -> None:
    model = nn.Linear(10, 8, bias=False, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    method = granet.RigL(sparsity=0.5, every=100, grow_batch_count=100)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=200)
    for _ in range(99):
        model.weight.grad = torch.full_like(model.weight, 0.1)
        optimizer.step()
    mean = sparsifier.layers["weight"].memory["gradient_mean"]
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean, torch.full((8, 10), 0.99 * float(torch.tensor(0.1, dtype=torch.bfloat16))))


def test_only_the_steps_before_an_update_are_wanted() -> None:
    updates = range(10, 31, 10)
    wanted = [step for step in range(1, 50) if MeanGradient(3).wants(step, updates)]
    assert wanted == [8, 9, 10, 18, 19, 20, 28, 29, 30]
    whole = [step for step in range(1, 50) if MeanGradient(10).wants(step, range(20, 31, 10))]
    assert whole == list(range(11, 31))


def test_an_average_is_of_all_steps_up_to_the_last_update() -> None:
    assert [step for step in range(1, 50) if Momentum(0.9).wants(step, range(10, 31, 10))] == list(range(1, 31))
    assert not Momentum(0.9).wants(1, range(0))


def test_steps_long_before_a_late_first_update_are_not_in_its_mean() -> None:
    method = granet.GraNet(sparsity=0.6, start=12, prune_end=20, every=5, grow_batch_count=2)
    model, optimizer, sparsifier = start(method, steps=30)
    assert sparsifier.updates[0] == 15
    for _ in range(14):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
    assert torch.equal(sparsifier.layers["weight"].memory["gradient_mean"], torch.full((8, 10), 0.5))


def test_a_window_longer_than_the_time_between_updates_is_refused() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    with refused("grow_batch_count", 6, "every=5"):
        granet.sparsify(model, optimizer, METHODS["rigl"](6), total_steps=20)
    assert torch.equal(model.weight, before)
    assert not optimizer._optimizer_step_pre_hooks


@dataclass(frozen=True, kw_only=True)
class Remembering(SparseToSparse):
    """A user's own method: a memory, and nothing else said about gradients."""

    every: int | str = 10
    mean: bool = False

    @property
    def gradient_memory(self) -> GradientMemory:
        return MeanGradient(3) if self.mean else Momentum(0.9)

    def update(self, net, clock) -> None:
        net.regenerate(0.3, drop=magnitude, grow=momentum)


def test_a_memory_alone_makes_gradients_dense() -> None:
    model, optimizer, sparsifier = start(Remembering(sparsity=0.6))
    loss(model, 1).backward()
    expected = 0.1 * model.weight.grad
    optimizer.step()
    torch.testing.assert_close(sparsifier.layers["weight"].memory["momentum"], expected)
    assert (expected[~sparsifier.masks["weight"]] != 0).any()


def test_training_flops_follow_the_memory() -> None:
    assert Remembering(sparsity=0.6).dense_gradient == "always"
    assert Remembering(sparsity=0.6, mean=True).dense_gradient == "on updates"
