"""``mask_gradients()`` before a norm is taken: the norm of what will be used, and growth that still sees everything."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import granet

Kit = SimpleNamespace
STEPS = 12


def start(kit: Kit, initial: float = 0.4) -> tuple[nn.Module, torch.optim.Optimizer, granet.Sparsifier]:
    model = kit.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    method = granet.GraNet(sparsity=0.8, initial_sparsity=initial, prune_end=8, every=2)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=STEPS)


def masked_norm(model: nn.Module, sparsifier: granet.Sparsifier) -> Tensor:
    masks = sparsifier.masks
    used = [p.grad * masks[name] if name in masks else p.grad for name, p in model.named_parameters()]
    return torch.cat([grad.flatten() for grad in used]).norm()


def test_the_norm_leaves_inactive_weights_out(kit: Kit) -> None:
    model, optimizer, sparsifier = start(kit)
    for batch in kit.batches(STEPS):
        kit.backward(model, batch)
        expected = masked_norm(model, sparsifier)
        assert expected < torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        sparsifier.mask_gradients()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        torch.testing.assert_close(norm, expected)
        optimizer.step()
        optimizer.zero_grad()
        kit.check_zeros(sparsifier)


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_growth_still_sees_the_dense_gradient(kit: Kit, calls: int) -> None:
    plain, masked = start(kit), start(kit)
    kit.train(*plain[:2], STEPS)
    model, optimizer, sparsifier = masked
    for batch in kit.batches(STEPS):
        kit.backward(model, batch)
        for _ in range(calls):
            sparsifier.mask_gradients()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        optimizer.step()
        optimizer.zero_grad()
    kit.check_equal(kit.snapshot(*plain), kit.snapshot(*masked))
    assert plain[2].history == sparsifier.history


def test_growth_still_sees_the_dense_gradient_where_clipping_makes_new_tensors(kit: Kit) -> None:
    plain, clipped = start(kit), start(kit)
    kit.train(*plain[:2], STEPS)
    model, optimizer, sparsifier = clipped
    for batch in kit.batches(STEPS):
        kit.backward(model, batch)
        sparsifier.mask_gradients()
        for parameter in model.parameters():
            parameter.grad = parameter.grad.clamp(-1e9, 1e9)
        optimizer.step()
        optimizer.zero_grad()
    kit.check_equal(kit.snapshot(*plain), kit.snapshot(*clipped))
    assert plain[2].history == sparsifier.history


@pytest.mark.parametrize("initial", [0.0, 0.4])
def test_growth_sees_gradients_of_before_they_were_clipped(kit: Kit, initial: float) -> None:
    """In layers that are dense as well. With a learning rate of zero only growth could tell that they were clipped."""
    masks = []
    for clip in (False, True):
        model = kit.net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        method = granet.GraNet(sparsity=0.8, initial_sparsity=initial, prune_end=8, every=2, regrow=0.9)
        sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
        for batch in kit.batches(2):
            kit.backward(model, batch)
            if clip:
                sparsifier.mask_gradients()
                torch.nn.utils.clip_grad_value_(model.parameters(), 1e-5)
            optimizer.step()
            optimizer.zero_grad()
        masks.append(sparsifier.masks)
        assert any(record.regrown for record in sparsifier.history)
    kit.check_equal(*masks)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize(
    ("bad_step", "initial"),
    [(3, 0.4), (4, 0.4), (2, 0.0)],
    ids=["an ordinary step", "one with a mask update", "one of a net that is dense up to it"],
)
def test_a_step_given_up_after_masking_leaves_no_trace(
    kit: Kit, bad_step: int, initial: float, set_to_none: bool
) -> None:
    plain, troubled = start(kit, initial), start(kit, initial)
    for model, *_ in (plain, troubled):
        model.eval()  # running statistics would show one more forward pass
    kit.train(*plain[:2], STEPS)
    model, optimizer, sparsifier = troubled
    strange = next(iter(kit.batches(1, seed=99)))
    for step, batch in enumerate(kit.batches(STEPS), start=1):
        if step == bad_step:
            kit.backward(model, strange)
            model[0].weight.grad[0] = torch.inf
            sparsifier.mask_gradients()
            optimizer.zero_grad(set_to_none=set_to_none)  # and no step
        kit.backward(model, batch)
        sparsifier.mask_gradients()
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
    kit.check_equal(kit.snapshot(*plain), kit.snapshot(*troubled))
    assert plain[2].history == sparsifier.history


def test_a_step_given_up_is_forgotten_even_if_the_next_gradient_is_zero_where_masked() -> None:
    """Weights on inputs that are always zero get no gradient; that must not look like a gradient masked before."""
    model = nn.Linear(6, 6, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.RigL(sparsity=0.5, every=1), total_steps=8)
    model.weight.grad = torch.full((6, 6), torch.inf)
    sparsifier.mask_gradients()
    optimizer.zero_grad()  # the step is given up: the gradient overflowed
    model(torch.zeros(2, 6)).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsifier.mask_gradients()
        optimizer.step()
    assert [record.skipped for record in sparsifier.history] == [False]
