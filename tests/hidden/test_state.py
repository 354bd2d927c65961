"""What is hidden is no part of a copied model, is restored whole, and is refused where it does not fit."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from refusals import refused

Kit = SimpleNamespace


def load(run: Any, state: dict[str, Any], *order: str) -> None:
    for part in order or ("model", "optimizer", "sparsifier"):
        getattr(run, part).load_state_dict(state[part])


def test_going_back_from_the_middle_of_a_step(kit: Kit, method: str) -> None:
    """What the step had put into the weights is not what was loaded."""
    run = kit.Run(method).train(0, 5)
    state = copy.deepcopy(run.state())
    after = run.train(5, 8).tensors()
    run.loss(8).backward()
    run.optimizer.param_groups[0]["lr"] = "fast"
    with pytest.raises(TypeError):
        run.optimizer.step()
    load(run, state)
    assert not kit.differences(run.train(5, 8).tensors(), after)


def test_a_model_copied_alone_is_an_ordinary_model(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 5)
    before = run.tensors()
    twin = copy.deepcopy(run.model)
    assert list(twin.state_dict()) == list(run.model.state_dict())
    x = run.batch(0)[0]
    assert torch.equal(twin(x), twin(x))  # no noise
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    twin(x).sum().backward()
    optimizer.step()
    assert not kit.differences(before, run.tensors())


@pytest.mark.filterwarnings("ignore:granet. training ends at step .*, before the last update")
def test_a_state_of_another_kind_is_refused(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 3)
    state, before = run.sparsifier.state_dict(), run.tensors()
    kind, tensors = next(iter(state["hidden"].items()))
    for wrong, name in (
        ({}, "0.weight"), (None, "0.weight"), ({kind: {}}, "0.weight"),
        ({kind: tensors | {"4.weight": torch.zeros(3)}}, "4.weight"),
    ):  # fmt: skip
        with refused(f"state['hidden'][{kind!r}]['{name}']"):
            run.sparsifier.load_state_dict(state | {"hidden": wrong})
        assert not kit.differences(before, run.tensors())
    run.sparsifier.finish()
    with refused("state['hidden']"):
        run.sparsifier.load_state_dict(state)


def test_a_copy_of_what_is_finished_is_finished(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 12)
    run.sparsifier.finish()
    model, optimizer, sparsifier = copy.deepcopy((run.model, run.optimizer, run.sparsifier))
    assert sparsifier.hidden is None
    assert not any(module._forward_hooks for module in model.modules())
    sparsifier.remove()
    assert len(optimizer.param_groups) == 1
