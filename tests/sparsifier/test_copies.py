"""Nothing is wrapped or patched: models copy, pickle and average as ever, and a copied training goes its own way."""

import copy
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import granet
from refusals import refused

Kit = SimpleNamespace
Run = tuple[nn.Module, torch.optim.Optimizer, granet.Sparsifier]
STEPS = 12


def start(kit: Kit, method: granet.Method | None = None) -> Run:
    method = method or granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)
    model = kit.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=STEPS)


def test_a_copied_model_is_an_ordinary_model(kit: Kit) -> None:
    model, optimizer, sparsifier = start(kit)
    names = list(kit.net().state_dict())
    kit.train(model, optimizer, 5)
    twin = copy.deepcopy(model)
    assert list(twin.state_dict()) == list(model.state_dict()) == names
    frozen = kit.snapshot(model, optimizer, sparsifier)
    kit.train(twin, torch.optim.SGD(twin.parameters(), lr=0.1), 2)
    kit.check_equal(frozen, kit.snapshot(model, optimizer, sparsifier))
    assert sparsifier.step == 5


def test_a_model_pickles_without_this_package(kit: Kit) -> None:
    model, optimizer, _ = start(kit)
    kit.train(model, optimizer, 5)
    data = pickle.dumps(model)
    assert b"granet" not in data
    twin = pickle.loads(data)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


def test_a_pickled_optimizer_has_no_hooks(kit: Kit) -> None:
    model, optimizer, _ = start(kit)
    kit.train(model, optimizer, 5)
    assert b"granet" not in pickle.dumps(optimizer)


def train_on(kit: Kit, run: Run, seed: int) -> None:
    kit.train(run[0], run[1], STEPS - 5, seed=seed)


def test_a_training_is_pickled_after_a_step_that_was_given_up(kit: Kit) -> None:
    run = start(kit)
    kit.train(*run[:2], 5)
    kit.backward(run[0], next(iter(kit.batches(1))))
    run[2].mask_gradients()  # of an update step
    run[1].zero_grad()
    twin: Run = pickle.loads(pickle.dumps(run))
    for one in (run, twin):
        train_on(kit, one, seed=1)
    kit.check_equal(kit.snapshot(*run), kit.snapshot(*twin))


def test_masks_are_pickled_once() -> None:
    """They are parts of one tensor, which plain pickling would write for each of them."""
    layers = 20
    model = nn.Sequential(*(nn.Linear(40, 40, bias=False) for _ in range(layers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.create_method("static", sparsity=0.5))
    weights, masks = len(pickle.dumps(model)), layers * 40 * 40
    assert len(pickle.dumps((model, sparsifier))) < weights + 2 * masks + 1000 * layers


def test_copies_of_a_copy(kit: Kit) -> None:
    run = start(kit)
    kit.train(*run[:2], 5)
    twin: Run = copy.deepcopy(copy.deepcopy(run))
    assert len(twin[1]._optimizer_step_pre_hooks) == len(twin[1]._optimizer_step_post_hooks) == 1


def test_a_copy_of_a_removed_sparsifier_is_removed(kit: Kit) -> None:
    run = start(kit)
    kit.train(*run[:2], 5)
    with pytest.warns(UserWarning, match="training ends at step 5, before the last update"):
        run[2].remove()
    twin: Run = copy.deepcopy(run)
    kit.train(*twin[:2], 1)
    assert twin[2].step == 5
    assert not twin[1]._optimizer_step_pre_hooks


def averaged(kit: Kit, run: Run, **how: Any) -> AveragedModel:
    average = AveragedModel(run[0], **how)
    for batch in kit.batches(STEPS):
        kit.backward(run[0], batch)
        run[1].step()
        run[1].zero_grad()
        average.update_parameters(run[0])
    return average


def test_averages_keep_the_names_and_the_zeros_of_a_fixed_mask(kit: Kit) -> None:
    run = start(kit, granet.Static(sparsity=0.7))
    average = averaged(kit, run, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    assert list(average.module.state_dict()) == list(run[0].state_dict())
    for name, mask in run[2].masks.items():
        weight = average.module.get_parameter(name)
        assert torch.count_nonzero(weight[~mask]) == 0
        assert torch.count_nonzero(weight[mask]) == int(mask.sum())


def test_averages_do_not_disturb_a_changing_mask(kit: Kit) -> None:
    run, alone = start(kit), start(kit)
    averaged(kit, run)
    kit.train(*alone[:2], STEPS)
    kit.check_equal(kit.snapshot(*alone), kit.snapshot(*run))


def test_an_average_becomes_sparse_by_apply_to(kit: Kit, tmp_path: Path) -> None:
    run = start(kit)
    average = averaged(kit, run)
    with refused("masks['0.weight']", unchanged=(average.module, tmp_path)):
        granet.save(average.module, tmp_path / "average.safetensors", run[2])
    run[2].apply_to(average.module)
    granet.save(average.module, tmp_path / "average.safetensors", run[2])
