"""The end: plain weights with exact zeros, and a model and an optimizer as they were before."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import granet
from refusals import refused

Kit = SimpleNamespace


def test_the_end_leaves_plain_weights_and_final_masks(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 12)
    assert run.sparsifier.hidden
    share = run.sparsifier.sparsity
    run.sparsifier.finish()
    assert not run.sparsifier.hidden
    assert run.sparsifier.sparsity == share > 0
    for layer in run.sparsifier.layers.values():
        assert torch.equal(layer.weight != 0, layer.mask)
        assert layer.hidden is None
    assert sum(bool(group["params"]) for group in run.optimizer.param_groups) == 1
    assert len(run.optimizer.state) == len(list(run.model.parameters()))
    assert not any(module._forward_hooks for module in run.model.modules())


@pytest.mark.filterwarnings("ignore:granet. training ends at step .*, before the last update")
def test_training_after_the_end_fine_tunes_what_is_left(kit: Kit, method: str) -> None:
    run = kit.Run(method, steps=16).train(0, 5)
    run.sparsifier.finish()
    assert not run.sparsifier.updates
    masks = {name: mask.clone() for name, mask in run.sparsifier.masks.items()}
    weights = {name: layer.weight.detach().clone() for name, layer in run.sparsifier.layers.items()}
    run.train(5, 16)
    for name, layer in run.sparsifier.layers.items():
        assert torch.equal(layer.mask, masks[name])
        assert torch.count_nonzero(layer.weight[~layer.mask]) == 0
        assert not torch.equal(layer.weight, weights[name])
    assert run.sparsifier.step == 16


def test_removing_finishes_and_unhooks(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 12)
    run.sparsifier.remove()
    zeros = run.zeros()
    assert zeros > 0
    assert len(run.optimizer.param_groups) == 1
    assert not run.optimizer._optimizer_step_pre_hooks
    assert not any(module._forward_hooks for module in run.model.modules())
    run.train(12, 13)
    assert run.sparsifier.step == 12
    granet.sparsify(run.model, run.optimizer, granet.Static(sparsity=0.5))  # nothing is in the way of another


def test_what_cannot_be_finished_can_be_removed(kit: Kit) -> None:
    run = kit.Run("vd").train(0, 3)
    with torch.no_grad():
        run.model[4].weight[0, 0] = float("nan")
    with refused("method", "vd", "'4.weight'"):
        run.sparsifier.remove()
    assert len(run.optimizer.param_groups) == 1 and not run.optimizer._optimizer_step_pre_hooks
    assert not any(module._forward_hooks for module in run.model.modules())
    run.sparsifier.remove()


def test_methods_that_hide_nothing_have_nothing_to_finish() -> None:
    model = nn.Linear(10, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.RigL(sparsity=0.5, every=1), total_steps=9)
    mask = sparsifier.masks["weight"].clone()
    sparsifier.finish()
    assert torch.equal(mask, sparsifier.masks["weight"])
    model(torch.randn(5, 10)).sum().backward()
    optimizer.step()
    assert len(sparsifier.history) == 1  # updates go on


def test_the_model_shows_sparse_weights_at_any_time(kit: Kit) -> None:
    for name in ("gmp-original", "dpf", "str"):
        run = kit.Run(name)
        for step in range(12):
            run.train(step, step + 1)
            assert run.zeros() == round(run.sparsifier.sparsity * 216)
        assert run.zeros() > 0
