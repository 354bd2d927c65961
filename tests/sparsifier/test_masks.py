"""Masks and what a step costs: bool, in place for ever, one call for all layers; and the names users rely on."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import granet

Kit = SimpleNamespace
METHODS = [
    granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2),
    granet.GMP(sparsity=0.8, prune_end=8, every=2),
    granet.RigL(sparsity=0.7, every=2, end=10),
    granet.RigLITOP(sparsity=0.7, every=2),
    granet.SET(sparsity=0.7, every=2),
    granet.Static(sparsity=0.7),
]


def start(kit: Kit, method: granet.Method, seed: int = 0) -> tuple[nn.Module, torch.optim.SGD, granet.Sparsifier]:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=12, seed=seed)


def test_unless_told_otherwise_every_layer_keeps_one_weight(kit: Kit) -> None:
    _, _, sparsifier = start(kit, granet.Static(sparsity=1 - 3 / 572))
    assert sparsifier.active == {"0.weight": 1, "4.weight": 1, "6.weight": 1}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_nothing_moves_in_memory(kit: Kit, method: granet.Method) -> None:
    """CUDA graphs, fused optimizers and flattened parameters hold on to addresses."""
    model, optimizer, sparsifier = start(kit, method)
    kit.train(model, optimizer, 1)

    def addresses() -> list[int]:
        masks = [mask.data_ptr() for mask in sparsifier.masks.values()]
        buffers = [optimizer.state[p]["momentum_buffer"].data_ptr() for p in model.parameters()]
        return masks + buffers + [p.data_ptr() for p in model.parameters()]

    before = addresses()
    kit.train(model, optimizer, 11)
    state = sparsifier.state_dict()
    sparsifier.load_state_dict(state)
    assert addresses() == before


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_the_seed_decides_the_masks(kit: Kit, method: granet.Method) -> None:
    runs = [start(kit, method, seed) for seed in (0, 0, 1)]
    for i, run in enumerate(runs):
        torch.manual_seed(i)  # the global generator has no say
        kit.train(*run[:2], 12)
    same, again, other = (run[2].masks for run in runs)
    assert all(torch.equal(same[name], again[name]) for name in same)
    equal = all(torch.equal(same[name], other[name]) for name in same)
    assert equal == (type(method) is granet.GMP)  # nothing about GMP is random


@pytest.mark.parametrize("dtypes", [1, 2])
def test_a_step_masks_all_layers_at_once(monkeypatch: pytest.MonkeyPatch, dtypes: int) -> None:
    """One foreach call for each device and dtype, on every step but those with an update."""
    layers = [nn.Linear(8, 8, bias=False) for _ in range(6)]
    if dtypes == 2:
        layers = [layer.double() if i % 2 else layer for i, layer in enumerate(layers)]
    model = nn.ModuleList(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    granet.sparsify(model, optimizer, granet.RigL(sparsity=0.5, every=4, end=9), total_steps=12)
    calls: list[int] = []
    original = torch._foreach_mul_

    def counted(tensors: Any, others: Any) -> None:
        calls.append(len(tensors))
        original(tensors, others)

    monkeypatch.setattr(torch, "_foreach_mul_", counted)
    for step in range(1, 13):
        for parameter in model.parameters():
            parameter.grad = torch.rand_like(parameter)
        calls.clear()
        optimizer.step()
        if step not in (4, 8):
            assert calls == [6 // dtypes] * dtypes


def test_counts_are_what_they_say(kit: Kit) -> None:
    model, optimizer, sparsifier = start(kit, METHODS[0])
    for batch in kit.batches(12):
        kit.backward(model, batch)
        optimizer.step()
        optimizer.zero_grad()
        zeros = sum(int((~mask).sum()) for mask in sparsifier.masks.values())
        numel = sum(mask.numel() for mask in sparsifier.masks.values())
        assert sparsifier.sparsity == pytest.approx(zeros / numel, abs=1e-15)
        assert sparsifier.active == {name: int(mask.sum()) for name, mask in sparsifier.masks.items()}
        assert zeros == round(numel * sparsifier.target_sparsity)
        for name, layer in sparsifier.layers.items():
            assert layer.mask is sparsifier.masks[name]
            assert layer.mask.dtype == torch.bool and not layer.mask.requires_grad
            assert (layer.active, layer.numel) == (int(layer.mask.sum()), layer.weight.numel())
            assert layer.sparsity == pytest.approx(1 - layer.active / layer.numel)
        if sparsifier.history:
            last = sparsifier.history[-1]
            assert last.active == tuple(layer.active for layer in sparsifier.layers.values())
            assert last.achieved == pytest.approx(sparsifier.sparsity)
            assert last.target == sparsifier.target_sparsity


def test_pruned_and_regrown_add_up(kit: Kit) -> None:
    _, optimizer, sparsifier = run = start(kit, METHODS[0])
    before = sum(layer.active for layer in sparsifier.layers.values())
    kit.train(run[0], optimizer, 12)
    for record in sparsifier.history:
        assert before - record.pruned == sum(record.active)
        assert 0 < record.regrown <= sum(record.active)
        before = sum(record.active)


def test_the_public_names(kit: Kit) -> None:
    _, _, sparsifier = start(kit, METHODS[0])
    for name in ("sparsity", "target_sparsity", "layers", "masks", "history", "state_dict", "load_state_dict", "remove",
                 "mask_gradients"):  # fmt: skip
        assert hasattr(sparsifier, name)
    for name in granet.__all__:
        assert hasattr(granet, name)
    assert {"sparsify", "GraNet", "GMP", "RigL", "SET", "list_methods", "create_method", "flops"} <= set(granet.__all__)
    fields = {field.name for field in dataclasses.fields(granet.UpdateRecord)}
    assert {"step", "target", "achieved", "pruned", "regrown"} <= fields
    method = granet.GraNet(sparsity=0.9, initial_sparsity=0.5, start=0, prune_end="50%", every=1000, regrow=0.5)
    assert "sparsity=0.9" in repr(method)
    assert method == granet.create_method("granet", sparsity=0.9, initial_sparsity=0.5)
    assert hash(method) == hash(granet.GraNet(sparsity=0.9, initial_sparsity=0.5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.sparsity = 0.5  # type: ignore[misc]


def test_masks_given_out_in_a_dict_do_not_let_a_layer_be_lost(kit: Kit) -> None:
    _, _, sparsifier = start(kit, METHODS[0])
    sparsifier.masks.clear()
    sparsifier.layers.clear()
    assert len(sparsifier.masks) == len(sparsifier.layers) == 3
