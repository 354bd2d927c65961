"""Methods that look before they begin train, resume, copy and end like all others."""

import copy
import io
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import granet

Kit = SimpleNamespace
METHODS: dict[str, granet.Method] = {
    "snip": granet.SNIP(sparsity=0.8, batch_count=2),
    "grasp": granet.GraSP(sparsity=0.8),
    "synflow": granet.SynFlow(sparsity=0.8, rounds=3),
    "magnitude-init": granet.MagnitudeInit(sparsity=0.8),
    "lth": granet.LTH(sparsity=0.8),
    "lrr": granet.LRR(sparsity=0.8),
    "one-shot": granet.OneShot(sparsity=0.8),
    "sis": granet.SIS(sparsity=0.6, batch_count=1, iterations=10),
    "wanda": granet.Wanda(sparsity=0.8, pattern="weight", batch_count=1),
    "sis-tolerance": granet.SIS(tolerance=0.3, batch_count=1, iterations=10),
}
Run = tuple[nn.Module, torch.optim.Optimizer, granet.Sparsifier]


def start(kit: Kit, name: str, seed: int = 0) -> Run:
    model = kit.net(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    given: dict[str, Any] = {"batches": kit.batches(2, seed), "loss": nn.functional.cross_entropy}
    given["trained"] = kit.net(seed + 1).state_dict()
    return model, optimizer, granet.sparsify(model, optimizer, METHODS[name], **given)


@pytest.mark.parametrize("name", METHODS)
def test_zeros_stay_and_the_count_is_kept(kit: Kit, name: str) -> None:
    run = start(kit, name)
    asked = run[2].target_sparsity
    kit.check_count(run[2])
    masks = {key: mask.clone() for key, mask in run[2].masks.items()}
    kit.train(*run[:2], 5)
    kit.check_zeros(run[2])
    kit.check_count(run[2])
    assert run[2].target_sparsity == asked > 0
    assert not run[2].history
    assert all(torch.equal(mask, masks[key]) for key, mask in run[2].masks.items())


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_equals_an_uninterrupted_one(kit: Kit, name: str) -> None:
    run, other = start(kit, name), start(kit, name, seed=5)
    kit.train(*run[:2], 4)
    file = io.BytesIO()
    torch.save([part.state_dict() for part in run], file)
    file.seek(0)
    for part, state in zip(other, torch.load(file, weights_only=True), strict=True):
        part.load_state_dict(state)
    kit.check_equal(kit.snapshot(*run), kit.snapshot(*other))
    assert other[2].target_sparsity == run[2].target_sparsity
    for each in (run, other):
        kit.train(*each[:2], 4, seed=7)
    kit.check_equal(kit.snapshot(*run), kit.snapshot(*other))
    assert run[2].state_dict()["step"] == other[2].state_dict()["step"] == 8


@pytest.mark.parametrize("name", METHODS)
def test_a_copy_goes_its_own_way_and_an_end_is_an_end(kit: Kit, name: str) -> None:
    run = start(kit, name)
    kit.train(*run[:2], 2)
    twin = copy.deepcopy(run)
    for each in (run, twin):
        kit.train(*each[:2], 3, seed=7)
    kit.check_equal(kit.snapshot(*run), kit.snapshot(*twin))
    run[2].remove()
    kit.check_zeros(run[2])
    assert not run[1]._optimizer_step_pre_hooks
    assert twin[1]._optimizer_step_pre_hooks


@pytest.mark.parametrize("name", ["snip", "lrr"])
def test_a_step_that_the_scaler_skips_leaves_the_start_as_it_is(kit: Kit, name: str) -> None:
    model, optimizer, sparsifier = start(kit, name)
    before = kit.snapshot(model, optimizer, sparsifier)
    scaler = torch.amp.GradScaler("cpu")
    (batch,) = kit.batches(1)
    model.eval()  # batch norm must not move
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1]) * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    kit.check_equal(before, kit.snapshot(model, optimizer, sparsifier))
    assert sparsifier.step == 0


def test_methods_that_do_not_look_never_touch_the_batches(kit: Kit) -> None:
    def forbidden() -> Any:
        raise AssertionError("looked")
        yield

    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, granet.Static(sparsity=0.5), batches=forbidden(), loss=None, trained={})


def test_nothing_of_what_was_looked_at_is_kept(kit: Kit) -> None:
    run = start(kit, "lrr")
    assert not hasattr(run[2]._net, "probe")
    assert run[2]._net.start is None
