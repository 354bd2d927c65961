"""A state dict that does not fit is refused whole: the message says what is wrong, and nothing has changed."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import granet
from refusals import refused

Kit = SimpleNamespace
State = dict[str, Any]
METHOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)


def start(model: nn.Module, method: granet.Method = METHOD, **options: Any) -> tuple[nn.Module, Any, granet.Sparsifier]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=12, **options)


@pytest.fixture
def state(kit: Kit) -> State:
    run = start(kit.net(), seed=1)
    kit.train(*run[:2], 7)
    return run[2].state_dict()


def test_the_state_itself_is_good(kit: Kit, state: State) -> None:
    run = start(kit.net())
    run[2].load_state_dict(state)
    assert run[2].step == 7


def four_layers(kit: Kit) -> nn.Module:
    return kit.net().append(nn.Linear(4, 4))


def another_shape(kit: Kit) -> nn.Module:
    model = kit.net()
    model[6] = nn.Linear(8, 5)
    return model


def one_frozen(kit: Kit) -> nn.Module:
    model = kit.net()
    model[6].requires_grad_(False)
    return model


def of_others(kit: Kit) -> Iterator[tuple[State, str, Any, str]]:
    """States of other models and other methods; what is wrong with each."""
    small = nn.Sequential(nn.Linear(5, 30), nn.Linear(30, 5))
    for model, options, name, shape, tells in (
        (small, {}, "0.weight", [30, 5], "another model"),
        (another_shape(kit), {}, "6.weight", [5, 8], "[4, 8]"),
        (kit.net(), {"exclude": ("6.*",)}, "6.weight", None, "another model"),
        (four_layers(kit), {}, "7.weight", [4, 4], "another model"),
        (one_frozen(kit), {}, "6.weight", None, "[4, 8]"),
    ):
        yield start(model, **options)[2].state_dict(), f"state['shapes'][{name!r}]", shape, tells
    yield start(kit.net(), granet.RigL(sparsity=0.8, every=2))[2].state_dict(), "state['method']", "rigl", "'granet'"
    for name, there, here in (
        ("sparsity", 0.9, 0.8),
        ("every", "2ep", 2),
        ("distribution", "uniform", "global"),
        ("initial_distribution", "erk", None),
    ):
        other = start(kit.net(), replace(METHOD, **{name: there}), steps_per_epoch=2)[2].state_dict()
        yield other, f"state['fields'][{name!r}]", there, repr(here)


def damaged(state: State) -> Iterator[tuple[Any, str, Any, str]]:
    """As from a damaged file, or one of another version; what is wrong with each."""
    for value in ({}, {"state": {}, "param_groups": []}, None, 3):
        yield value, "state", ..., ""
    for key in ("method", "step", "seed", "shapes", "masks", "history", "target_sparsity"):
        yield {name: part for name, part in state.items() if name != key}, "state", ..., key
    for key in ("fields", "seed", "shapes", "masks", "target_sparsity", "step"):
        yield state | {key: None}, f"state[{key!r}]", None, ""
    for memory in ({"6.weight": None}, {"a": 1}, [1]):
        yield state | {"memory": memory}, "state['memory']", ..., ""
    yield state | {"fields": state["fields"] | {"every": "3ep"}}, "state['fields']['every']", "3ep", "2"
    masks = {name: mask for name, mask in state["masks"].items() if name != "4.weight"}
    for wrong in ({}, *({"4.weight": one} for one in ([1, 2], torch.zeros(3, dtype=torch.uint8), torch.ones(8, 54)))):
        yield state | {"masks": masks | wrong}, "state['masks']['4.weight']", ..., "packed mask"
    for step in (-1, "seven"):
        yield state | {"step": step}, "state['step']", step, ""
    first, *others = state["history"]
    for history in (None, [first | {"active": [1]}, *others], [{"epoch": 3}]):
        yield state | {"history": history}, "state['history']", ..., ""


def test_what_does_not_fit_is_refused_and_training_goes_on_as_if_nothing_was_tried(kit: Kit, state: State) -> None:
    run, alone = start(kit.net()), start(kit.net())
    for each in (run, alone):
        kit.train(*each[:2], 3)
    for wrong, subject, value, tells in (*of_others(kit), *damaged(state)):
        with refused(subject, value, tells, unchanged=run):
            run[2].load_state_dict(wrong)
    for each in (run, alone):
        kit.train(*each[:2], 5)
    kit.check_equal(kit.snapshot(*alone), kit.snapshot(*run))


def test_a_shorter_training(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    other = granet.sparsify(model, optimizer, replace(METHOD, prune_end=6), total_steps=20)
    kit.train(model, optimizer, 3)
    run = start(kit.net(), other.method)
    with refused("total_steps", 12, "20"):
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
        with refused("steps_per_epoch", 5, "3"):
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
