"""DPF against its algorithm written out: the gradient at the masked weights moves the dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import granet
from refusals import refused

STEPS, EVERY, END = 24, 4, 16
LR, MOMENTUM, DECAY = 0.1, 0.9, 0.01


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 4)).double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    return x, x[:, :4].argmax(1)


def largest(weights: list[Tensor], sparsity: float) -> list[Tensor]:
    """Masks of the largest |w| of all layers, by sorting."""
    flat = np.concatenate([w.detach().numpy().ravel() for w in weights])
    mask = np.ones(len(flat), bool)
    mask[np.argsort(np.abs(flat))[: round(sparsity * len(flat))]] = False
    parts = np.split(mask, np.cumsum([w.numel() for w in weights])[:-1])
    return [torch.from_numpy(part).view(w.shape) for part, w in zip(parts, weights, strict=True)]


def test_every_step_is_the_one_of_the_paper() -> None:
    model, twin = net(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    method = granet.DPF(sparsity=0.75, every=EVERY, prune_end=END)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)

    dense = {name: p.detach().clone() for name, p in twin.named_parameters()}
    buffers = {name: torch.zeros_like(p) for name, p in dense.items()}
    names = ["0.weight", "2.weight"]
    masks = [torch.ones_like(dense[name], dtype=torch.bool) for name in names]
    returned = 0
    for step in range(1, STEPS + 1):
        x, y = batch(step)
        shown = {name: w.clone().requires_grad_() for name, w in dense.items()}
        masked = shown | {name: shown[name] * mask for name, mask in zip(names, masks, strict=True)}
        leaves = list(masked.values())
        gradients = torch.autograd.grad(nn.functional.cross_entropy(functional_call(twin, masked, (x,)), y), leaves)
        for name, gradient in zip(masked, gradients, strict=True):  # at the masked weights, to the dense weights
            buffers[name] = MOMENTUM * buffers[name] + gradient + DECAY * dense[name]
            dense[name] = dense[name] - LR * buffers[name]
        if step % EVERY == 0 and step < STEPS:
            share = min(1.0, step / END)
            new = largest([dense[name] for name in names], 0.75 * (1 - (1 - share) ** 3))
            returned += sum(int((b & ~a).sum()) for a, b in zip(masks, new, strict=True))
            masks = new

        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        hidden = sparsifier.state_dict()["hidden"]["weights"]
        for name, mask in zip(names, masks, strict=True):
            torch.testing.assert_close(hidden[name], dense[name], rtol=1e-9, atol=1e-12)
            assert torch.equal(sparsifier.masks[name], mask)
            assert torch.equal(model.get_parameter(name), torch.where(mask, hidden[name], 0.0))
    assert returned > 0  # else the test shows nothing of a mask that is chosen anew
    assert sum(record.regrown for record in sparsifier.history) == returned
    assert sparsifier.sparsity == 0.75


def test_hidden_weights_are_trained_on() -> None:
    """A gradient at a weight that is switched off moves the dense weight behind it."""
    model = nn.Linear(4, 1, bias=False)
    model.weight.data = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sparsifier = granet.sparsify(model, optimizer, granet.DPF(sparsity=0.5, every=1, prune_end=1), total_steps=9)
    for gradient in ([0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.5, -0.5]):
        model.weight.grad = torch.tensor([gradient])
        optimizer.step()
    assert sparsifier.state_dict()["hidden"]["weights"]["weight"].tolist() == [[4.0, 3.0, 3.5, 1.5]]
    assert model.weight.tolist() == [[4.0, 0.0, 3.5, 0.0]]
    assert [(record.pruned, record.regrown) for record in sparsifier.history] == [(2, 0), (0, 1)]


def test_it_chooses_anew_every_16_steps_to_the_end() -> None:
    assert granet.DPF(sparsity=0.9).updates(granet.Clock(0, 100)) == range(16, 100, 16)


@pytest.mark.parametrize("distribution", ["global", "uniform"])
def test_the_sparsity_is_exact(distribution: str) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    method = granet.DPF(sparsity=0.6, every=2, prune_end=8, distribution=distribution)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=12)
    for step in range(12):
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        zeros = [int((p == 0).sum()) for p in (model[0].weight, model[2].weight)]
        assert sum(zeros) == round(100 * sparsifier.target_sparsity)
    assert sum(zeros) == 60
    assert (zeros == [36, 24]) == (distribution == "uniform")  # of 60 and 40 weights


@pytest.mark.filterwarnings("ignore:granet. step 2. a gradient is not finite")
def test_hidden_weights_that_diverged_are_named_and_not_the_score() -> None:
    """The model shows zeros in their place, so that its weights and gradients are finite again."""
    model = nn.Linear(4, 1, bias=False)
    model.weight.data = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    granet.sparsify(model, optimizer, granet.DPF(sparsity=0.5, every=1, prune_end=1), total_steps=9)
    for spoiled in (0.0, torch.nan):
        model.weight.grad = torch.tensor([[0.0, 0.0, 0.0, spoiled]])
        optimizer.step()
    model.weight.grad = torch.zeros(1, 4)
    with refused("'weight'", ..., "diverged"):
        optimizer.step()
