"""Parameters that a method adds to the user's optimizer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import granet
from refusals import refused

ADDING = {"str": granet.STR(s_init=-4.0), "vd": granet.VD(log_sigma2=-4.0)}


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


@pytest.fixture(params=ADDING)
def method(request: pytest.FixtureRequest) -> granet.Method:
    return ADDING[request.param]


def test_each_weights_group_gets_a_companion_with_its_options(method: granet.Method) -> None:
    model = two_layers()
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[1].parameters(), "momentum": 0.3}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.2)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=9)
    added = optimizer.param_groups[2:]
    assert [(group["lr"], group["momentum"]) for group in added] == [(0.5, 0.9), (0.1, 0.3)]
    decay = 0.2 if isinstance(method, granet.STR) else 0.0
    assert [group["weight_decay"] for group in added] == [decay, decay]
    assert [len(group["params"]) for group in added] == [1, 1]
    optimizer.param_groups[0]["lr"] = 0.05
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.1, 0.05, 0.1]
    sparsifier.finish()
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2, 0, 0]  # schedulers have met four
    sparsifier.remove()
    assert len(optimizer.param_groups) == 2


def test_a_group_that_was_empty_before_stays(method: granet.Method) -> None:
    model = two_layers()
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": []}], lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=9)
    sparsifier.finish()
    optimizer.load_state_dict(optimizer.state_dict())  # with groups of its own making
    sparsifier.remove()
    assert [len(group["params"]) for group in optimizer.param_groups] == [4, 0]


def test_an_optimizer_with_named_parameters(method: granet.Method) -> None:
    model = two_layers()
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=9)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    sparsifier.remove()
    assert [group["param_names"] for group in optimizer.param_groups] == [["0.weight", "0.bias", "1.weight", "1.bias"]]


def test_what_is_added_has_names_of_its_own_until_the_end(method: granet.Method) -> None:
    model = two_layers()
    groups = [{"params": list(layer.named_parameters(str(i)))} for i, layer in enumerate(model)]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=9)
    names = [name for group in optimizer.param_groups for name in group["param_names"]]
    assert len(set(names)) == len(names) == 6
    sparsifier.finish()
    assert [len(group["param_names"]) for group in optimizer.param_groups] == [2, 2, 0, 0]


def test_a_group_has_the_options_that_the_optimizer_knows(method: granet.Method) -> None:
    model = two_layers()
    optimizer = torch.optim.Rprop(model.parameters())  # without weight decay
    granet.sparsify(model, optimizer, method, total_steps=9)
    weights, added = optimizer.param_groups
    assert added.keys() == weights.keys()


def test_a_scheduler_made_afterwards_works(method: granet.Method) -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
    granet.sparsify(model, optimizer, method, total_steps=9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adafactor, torch.optim.Rprop])
def test_a_scheduler_goes_on_after_the_end(method: granet.Method, kind: type[torch.optim.Optimizer]) -> None:
    """Some of torch's count the groups they have met; nothing is trained in the emptied ones."""
    model = two_layers()
    optimizer = kind(model.parameters(), lr=0.4)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
        scheduler.step()
        if step == 1:
            sparsifier.finish()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.4 * 0.5**4)


def test_several_on_one_optimizer_leave_it_one_by_one(method: granet.Method) -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = ("0.weight", "1.weight", "2.weight")
    first, second, third = (granet.sparsify(model, optimizer, method, total_steps=9, include=name) for name in names)
    (last,) = optimizer.param_groups[3]["params"]
    first.remove()
    second.remove()
    assert [len(group["params"]) for group in optimizer.param_groups] == [6, 1]
    assert optimizer.param_groups[1]["params"][0] is last
    before = last.detach().clone()
    model(torch.randn(3, 4)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(last, before)
    third.remove()
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("leaves", [True, False], ids=["group deleted", "weight taken out"])
def test_what_belongs_to_a_weight_that_left_the_optimizer_rests(method: granet.Method, leaves: bool) -> None:
    model = two_layers()
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.2}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.1)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=9)

    def step() -> list[bool]:
        """Which of what is hidden, first layer first, the step has moved."""
        before = sparsifier.state_dict()["hidden"]
        model.zero_grad()
        model(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
        after = sparsifier.state_dict()["hidden"]
        return [
            any(not torch.equal(after[kind][f"{i}.weight"], before[kind][f"{i}.weight"]) for kind in after)
            for i in (0, 1)
        ]

    assert step() == [True, True]
    home = optimizer.param_groups if leaves else optimizer.param_groups[0]["params"]
    gone = home.pop(0)
    shown = model[0].weight.detach().clone()
    assert step() == [False, True]
    assert torch.equal(model[0].weight, shown)
    home.append(gone)
    assert step() == [True, True]
    sparsifier.remove()
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 4
    assert len(optimizer.param_groups) == 2


def test_a_companion_group_that_was_deleted_is_not_missed(method: granet.Method) -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=9)
    del optimizer.param_groups[1]
    model(torch.randn(3, 4)).square().sum().backward()
    optimizer.step()
    sparsifier.remove()
    assert [len(group["params"]) for group in optimizer.param_groups] == [4]


def test_the_gradient_of_a_threshold_lasts_one_step() -> None:
    """It is made from the weight's; left behind, an infinite one would make a GradScaler skip every step to come."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, ADDING["str"], total_steps=9)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    assert all(s.grad is None for s in optimizer.param_groups[1]["params"])
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("scheduled", [[0, 1], [1]])
def test_a_scheduler_made_before_is_named(method: granet.Method, scheduled: list[int]) -> None:
    """Also one of some of the layers."""
    model = two_layers()
    optimizer = torch.optim.SGD([p for i in scheduled for p in model[i].parameters()], lr=0.4)
    torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    if len(scheduled) == 1:
        optimizer.add_param_group({"params": model[0].parameters()})
    with refused("optimizer", ..., "make the scheduler after sparsify", unchanged=(model, optimizer)):
        granet.sparsify(model, optimizer, method, total_steps=9)


class OneGroup(torch.optim.SGD):
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self.param_groups:
            raise RuntimeError("one group is enough")
        super().add_param_group(param_group)


def test_an_optimizer_that_takes_no_more_parameters_is_named(method: granet.Method) -> None:
    model = two_layers()
    for optimizer in (OneGroup(model.parameters(), lr=0.1), torch.optim.LBFGS(model.parameters())):
        with refused("optimizer", optimizer, unchanged=(model, optimizer)):
            granet.sparsify(model, optimizer, method, total_steps=9)


def test_a_second_group_that_fails_takes_the_first_with_it(method: granet.Method) -> None:
    class TwoGroups(torch.optim.SGD):
        def add_param_group(self, param_group: dict[str, Any]) -> None:
            if len(self.param_groups) == 3:
                raise RuntimeError("full")
            super().add_param_group(param_group)

    model = two_layers()
    optimizer = TwoGroups([{"params": model[0].parameters()}, {"params": model[1].parameters()}], lr=0.1)
    with refused("optimizer", optimizer, "full", unchanged=(model, optimizer)):
        granet.sparsify(model, optimizer, method, total_steps=9)
