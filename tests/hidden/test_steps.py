"""Steps that are skipped, evaluated twice or broken off: the model shows the same weights as if they had not been."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import granet
from granet.sparsifier import steps_of
from refusals import refused

Kit = SimpleNamespace


def scaled_step(run: Any, scaler: Any, step: int, *, spoil: bool = False, clip: bool = False) -> None:
    run.optimizer.zero_grad()
    scaler.scale(run.loss(step)).backward()
    if spoil:
        run.model[4].weight.grad.view(-1)[5] = torch.inf
    if clip:
        scaler.unscale_(run.optimizer)
        run.sparsifier.mask_gradients()
    scaler.step(run.optimizer)
    scaler.update()


@pytest.mark.parametrize(("optimizer", "clip"), [("sgd-fused", False), ("adamw", True)])
def test_steps_that_a_scaler_skips_leave_no_trace(kit: Kit, method: str, optimizer: str, clip: bool) -> None:
    """Scales are powers of two, so that a calm run without a scaler is the same up to Adam's eps."""
    calm, troubled = kit.Run(method, optimizer), kit.Run(method, optimizer)
    calm.model[1].eval()
    troubled.model[1].eval()  # running statistics would show a batch more
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for step in range(6):
        calm.train(step, step + 1)
        if step in (1, 3):
            before = troubled.tensors()
            scaled_step(troubled, scaler, 99, spoil=True, clip=clip)
            assert not kit.differences(before, troubled.tensors())
        scaled_step(troubled, scaler, step, clip=clip)
    assert scaler.get_scale() == 16.0
    assert calm.sparsifier.step == troubled.sparsifier.step == 6
    a, b = calm.sparsifier.state_dict()["hidden"], troubled.sparsifier.state_dict()["hidden"]
    for kind in a:
        for name in a[kind]:
            torch.testing.assert_close(a[kind][name], b[kind][name], rtol=1e-3, atol=1e-4, msg=f"{kind} {name}")
    for p, q in zip(calm.model.parameters(), troubled.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


def test_reading_the_gradients_first_changes_nothing(kit: Kit, method: str) -> None:
    plain, read = kit.Run(method).train(0, 8), kit.Run(method)
    for step in range(8):
        read.optimizer.zero_grad()
        read.loss(step).backward()
        read.sparsifier.mask_gradients()
        read.sparsifier.mask_gradients()
        read.optimizer.step()
    assert not kit.differences(plain.tensors(), read.tensors())


def test_an_exception_in_a_closure_leaves_the_weights_as_they_were(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 6)
    before = run.tensors()

    def closure() -> float:
        raise KeyError("out of data")

    with pytest.raises(KeyError):
        run.optimizer.step(closure)
    assert not kit.differences(before, run.tensors())
    run.train(6, 8)
    assert not kit.differences(run.tensors(), kit.Run(method).train(0, 8).tensors())


@pytest.mark.parametrize("name", ["gmp-original", "dpf"])
def test_a_closure_is_evaluated_at_the_weights_the_model_shows(kit: Kit, name: str) -> None:
    """L-BFGS moves the weights and evaluates again, within one step."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    method = granet.create_method(name, sparsity=0.5, every=1, prune_end=1)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=9)
    x = torch.randn(20, 6)
    seen = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        seen.append(int((model.weight == 0).sum()))
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(6)]
    first = seen.index(9)
    assert first >= 2
    assert set(seen[:first]) == {0}
    assert set(seen[first:]) == {9}
    assert sparsifier.sparsity == 0.5
    assert losses[-1] < losses[1]


@pytest.mark.filterwarnings("ignore:granet. method='vd'. weights had a gradient but no noise")
def test_an_optimizer_that_raises_is_recovered_from(kit: Kit, method: str) -> None:
    """torch calls no hook then; the next step, or finish(), shows the weights again."""
    run = kit.Run(method).train(0, 6)
    shown = [p.detach().clone() for p in run.model.parameters()]
    group = run.optimizer.param_groups[0]
    group["lr"] = "fast"
    run.loss(6).backward()
    with pytest.raises(TypeError):
        run.optimizer.step()
    group["lr"] = 0.0
    group["weight_decay"] = 0.0
    group["momentum"] = 0.0
    run.train(6, 7)
    for p, before in zip(run.model.parameters(), shown, strict=True):
        torch.testing.assert_close(p.detach(), before, rtol=0.2, atol=0.2)
    for layer in run.sparsifier.layers.values():
        if method != "vd":
            assert torch.equal(layer.weight != 0, layer.mask)


@pytest.mark.filterwarnings("ignore:granet. training ends at step .*, before the last update")
@pytest.mark.filterwarnings("ignore:granet. .* not zero though they should be")
def test_an_optimizer_that_raises_leaves_nothing_behind_at_the_end(kit: Kit, method: str) -> None:
    run, twin = kit.Run(method).train(0, 6), kit.Run(method).train(0, 6)
    run.loss(6).backward()
    rate = run.optimizer.param_groups[0]["lr"]
    run.optimizer.param_groups[0]["lr"] = "fast"
    with pytest.raises(TypeError):
        run.optimizer.step()
    run.optimizer.param_groups[0]["lr"] = rate
    for either in (run, twin):
        either.sparsifier.finish()
    for layer, other in zip(run.sparsifier.layers.values(), twin.sparsifier.layers.values(), strict=True):
        assert torch.equal(layer.weight, other.weight)


def test_half_precision(kit: Kit, method: str) -> None:
    run = kit.Run(method, dtype=torch.float16).train(0, 12)
    assert all(p.dtype == torch.float16 and torch.isfinite(p).all() for p in run.model.parameters())
    if method in ("gmp-original", "dpf"):
        assert run.sparsifier.sparsity == 0.5
    run.sparsifier.finish()
    zeros = run.zeros()
    assert zeros > 0
    assert run.sparsifier.sparsity == zeros / (72 + 144)


def test_autocast(kit: Kit, method: str) -> None:
    run = kit.Run(method)
    for step in range(6):
        run.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = run.loss(step)
        loss.backward()
        run.optimizer.step()
    assert all(torch.isfinite(p).all() for p in run.model.parameters())


@pytest.mark.parametrize("name", ["gmp-original", "dpf", "str"])
def test_weights_written_between_steps_are_taken_over(kit: Kit, name: str) -> None:
    """A checkpoint of the model alone: the next step starts from its values, not from those hidden before."""
    run, other = kit.Run(name).train(0, 9), kit.Run(name, seed=7)
    run.model.load_state_dict(other.model.state_dict())
    loaded = {name: layer.weight.detach().clone() for name, layer in run.sparsifier.layers.items()}
    for group in run.optimizer.param_groups:
        group["lr"] = 0.0
    run.train(9, 10)
    for layer_name, layer in run.sparsifier.layers.items():
        assert 0 < layer.active < layer.numel
        torch.testing.assert_close(layer.weight[layer.mask], loaded[layer_name][layer.mask])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_weight_of_a_large_filter_that_is_written_to(dtype: torch.dtype) -> None:
    model = nn.Linear(1024, 4, bias=False).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    granet.sparsify(model, optimizer, granet.STR(s_init=-8.0, pattern="filter"), total_steps=2000)
    with torch.no_grad():
        model.weight[0, 0] = 0.5
    model.weight.grad = torch.zeros_like(model.weight)
    optimizer.step()
    assert model.weight[0, 0].item() == pytest.approx(0.5, rel=0.01)


@pytest.mark.filterwarnings("ignore:granet. 0.weight. no gradient")
def test_a_layer_without_a_gradient_is_recorded_as_it_is(kit: Kit, method: str) -> None:
    """At an update, every other time: where masks change at every step, they are not what the last record counted."""
    run = kit.Run(method)
    for step in range(kit.steps):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        if steps_of(run.sparsifier).updates.reads_next and step % 4 == 1:
            run.model[0].weight.grad = None
        run.optimizer.step()
        if run.sparsifier.step in run.sparsifier.updates:
            assert run.sparsifier.history[-1].active == tuple(run.sparsifier.active.values()), step
            assert run.sparsifier.history[-1].achieved == run.sparsifier.sparsity


def test_a_step_cannot_be_replayed(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 3)
    before = run.tensors()
    with refused("method", method):
        steps_of(run.sparsifier).taken()
    assert not kit.differences(before, run.tensors())


def test_the_storage_of_weights_and_masks_never_moves(kit: Kit, method: str) -> None:
    run = kit.Run(method)
    places = [(layer.weight.data_ptr(), layer.mask.data_ptr()) for layer in run.sparsifier.layers.values()]
    run.train(0, 12)
    run.sparsifier.finish()
    assert places == [(layer.weight.data_ptr(), layer.mask.data_ptr()) for layer in run.sparsifier.layers.values()]
