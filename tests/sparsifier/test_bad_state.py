"""A state dict that does not fit is refused whole: the message says what is wrong, and nothing has changed."""

import copy
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import granet

Kit = SimpleNamespace
State = dict[str, Any]
METHOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)


def start(model: nn.Module, method: granet.Method = METHOD, **options: Any) -> tuple[nn.Module, Any, granet.Sparsifier]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=12, **options)


def refused(kit: Kit, state: Any, match: str) -> None:
    run = start(kit.net())
    kit.train(*run[:2], 3)
    tensors, before = kit.snapshot(*run), copy.deepcopy(run[2].state_dict())
    with pytest.raises(ValueError, match=match):
        run[2].load_state_dict(state)
    kit.check_equal(tensors, kit.snapshot(*run))
    after = run[2].state_dict()
    assert {key: after[key] for key in after if key != "masks"} == {
        key: before[key] for key in before if key != "masks"
    }
    assert len(run[1]._optimizer_step_pre_hooks) == 1
    alone = start(kit.net())
    kit.train(*alone[:2], 3)
    for some in (run, alone):
        kit.train(*some[:2], 5)
    kit.check_equal(kit.snapshot(*alone), kit.snapshot(*run))  # and training goes on as if nothing was tried


@pytest.fixture
def state(kit: Kit) -> State:
    run = start(kit.net(), seed=1)
    kit.train(*run[:2], 7)
    return run[2].state_dict()


def test_the_state_itself_is_good(kit: Kit, state: State) -> None:
    run = start(kit.net())
    run[2].load_state_dict(state)
    assert run[2].step == 7


def test_another_model(kit: Kit) -> None:
    other = start(nn.Sequential(nn.Linear(5, 30), nn.Linear(30, 5)))
    refused(kit, other[2].state_dict(), "of another model")


def test_the_same_names_in_another_shape(kit: Kit) -> None:
    model = kit.net()
    model[6] = nn.Linear(8, 5)
    refused(kit, start(model)[2].state_dict(), r"6\.weight.*\[5, 8\].*another model.*\[4, 8\]")


def test_fewer_and_more_layers(kit: Kit) -> None:
    refused(kit, start(kit.net(), exclude=("6.*",))[2].state_dict(), r"6\.weight.*another model")
    model = kit.net()
    model.append(nn.Linear(4, 4))
    refused(kit, start(model)[2].state_dict(), r"7\.weight.*another model")
    model = kit.net()
    model[6].requires_grad_(False)
    refused(kit, start(model)[2].state_dict(), r"6\.weight'\]=None: .* has \[4, 8\] \(None: .* frozen weights are not")


def test_another_method(kit: Kit) -> None:
    refused(kit, start(kit.net(), granet.RigL(sparsity=0.8, every=2))[2].state_dict(), "method.*'rigl'.*'granet'")


@pytest.mark.parametrize(
    ("name", "there", "here"),
    [
        ("sparsity", 0.9, 0.8),
        ("every", "2ep", 2),
        ("distribution", "uniform", "global"),
        ("initial_distribution", "erk", None),
    ],
)
def test_the_same_method_with_another_field(kit: Kit, name: str, there: Any, here: Any) -> None:
    other = start(kit.net(), replace(METHOD, **{name: there}), steps_per_epoch=2)
    message = f"state['fields'][{name!r}]={there!r}: must be {here!r}, as here"
    refused(kit, other[2].state_dict(), f"^{re.escape(message)}$")


def test_a_shorter_training(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    other = granet.sparsify(model, optimizer, replace(METHOD, prune_end=6), total_steps=20)
    kit.train(model, optimizer, 3)
    run = start(kit.net(), other.method)
    with pytest.raises(ValueError, match=r"^total_steps=12: must be at least 20, as when it was saved"):
        run[2].load_state_dict(other.state_dict())
    assert run[2].step == 0


@pytest.mark.parametrize(("end", "fits"), [("2ep", False), (6, True)])
def test_another_length_of_epochs(kit: Kit, end: str | int, fits: bool) -> None:
    """Matters only to times that are given in epochs."""

    def begin(steps_per_epoch: int) -> granet.Sparsifier:
        model = kit.net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        method = replace(METHOD, prune_end=end)
        return granet.sparsify(model, optimizer, method, total_steps=12, steps_per_epoch=steps_per_epoch)

    state = begin(3).state_dict()
    if fits:
        begin(5).load_state_dict(state)
    else:
        with pytest.raises(ValueError, match=r"^steps_per_epoch=5: must be 3, as when it was saved; masks are still"):
            begin(5).load_state_dict(state)


@pytest.mark.parametrize(
    ("method", "steps", "finished"),
    [
        (granet.RigL(sparsity=0.8, end=6, every=2), 7, False),
        (granet.RigL(sparsity=0.8, end=6, every=2), 4, False),
        (granet.Static(sparsity=0.8), 3, False),
        (granet.DPF(sparsity=0.8, prune_end=8, every=2), 4, True),
    ],
    ids=["rigl", "rigl, just now", "static", "dpf"],
)
@pytest.mark.filterwarnings("ignore:granet. training ends at step .*, before the last update")
def test_masks_that_are_final_do_not_care_about_the_length(
    kit: Kit, method: granet.Method, steps: int, finished: bool
) -> None:
    model, optimizer, saved = start(kit.net(), method)
    kit.train(model, optimizer, steps)
    if finished:
        saved.finish()
    other = kit.net()
    run = granet.sparsify(other, torch.optim.SGD(other.parameters(), lr=0.05, momentum=0.9), method, total_steps=30)
    run.load_state_dict(saved.state_dict())
    assert run.step == steps
    assert run.active == saved.active


def test_a_state_of_before_has_no_fields(kit: Kit, state: State) -> None:
    del state["fields"], state["total_steps"], state["steps_per_epoch"]
    run = start(kit.net())
    run[2].load_state_dict(state)
    assert run[2].step == 7


@pytest.mark.parametrize("key", ["method", "step", "seed", "shapes", "masks", "history", "target_sparsity"])
def test_a_part_is_missing(kit: Kit, state: State, key: str) -> None:
    del state[key]
    refused(kit, state, key)


@pytest.mark.parametrize("key", ["fields", "seed", "shapes", "masks", "history", "target_sparsity", "step"])
def test_a_part_is_something_else(kit: Kit, state: State, key: str) -> None:
    state[key] = None
    refused(kit, state, key)


@pytest.mark.parametrize("memory", [{"6.weight": None}, {"a": 1}, [1]])
def test_the_memory_is_something_else(kit: Kit, state: State, memory: Any) -> None:
    state["memory"] = memory
    refused(kit, state, r"state\['memory'\]: must hold what the method keeps here")


def test_a_field_is_something_else(kit: Kit, state: State) -> None:
    state["fields"]["every"] = torch.zeros(3)
    refused(kit, state, r"state\['fields'\]\['every'\]=.*: must be 2, as here")


def test_a_mask_is_something_else(kit: Kit, state: State) -> None:
    state["masks"]["6.weight"] = [1, 2]
    refused(kit, state, r"masks.*6\.weight.*must be the packed mask")


@pytest.mark.parametrize("value", [{}, {"state": {}, "param_groups": []}, None, 3])
def test_not_a_sparsifiers_state(kit: Kit, value: Any) -> None:
    refused(kit, value, "not a sparsifier's state_dict")


BROKEN: dict[str, Any] = {
    "no mask of a layer": (lambda s: s["masks"].pop("4.weight"), r"masks.*4\.weight"),
    "a mask too short": (lambda s: s["masks"].update({"4.weight": torch.zeros(3, dtype=torch.uint8)}), r"4\.weight"),
    "a mask of floats": (lambda s: s["masks"].update({"4.weight": torch.ones(8, 54)}), r"4\.weight"),
    "a step before the start": (lambda s: s.update(step=-1), "step.*-1"),
    "a step in words": (lambda s: s.update(step="seven"), "step.*'seven'"),
    "a record of fewer layers": (lambda s: s["history"][0].update(active=[1]), "history"),
    "a history of another kind": (lambda s: s.update(history=[{"epoch": 3}]), "history"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_part_is_broken(kit: Kit, state: State, case: str) -> None:
    """From a damaged file, or one of another version."""
    damage, match = BROKEN[case]
    damage(state)
    refused(kit, state, match)
