"""What is hidden is saved, copied and loaded with the rest: a training goes on as if it had never stopped."""

from __future__ import annotations

import copy
import io
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch

Kit = SimpleNamespace


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def load(run: Any, state: dict[str, Any], *order: str) -> None:
    for part in order or ("model", "optimizer", "sparsifier"):
        getattr(run, part).load_state_dict(state[part])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_resumed_run_equals_an_uninterrupted_one(kit: Kit, method: str, optimizer: str) -> None:
    whole = kit.Run(method, optimizer).train(0, 7)
    state = through_a_file(whole.state())
    whole.train(7, kit.steps)
    resumed = kit.Run(method, optimizer, seed=5)
    load(resumed, state)
    assert not kit.differences(kit.flatten(state), resumed.tensors())
    resumed.train(7, kit.steps)
    assert not kit.differences(whole.tensors(), resumed.tensors())
    assert whole.sparsifier.sparsity > 0


def test_the_order_of_loading_does_not_matter(kit: Kit, method: str) -> None:
    run, other = kit.Run(method).train(0, 7), kit.Run(method, seed=5)
    load(other, through_a_file(run.state()), "sparsifier", "optimizer", "model")
    assert not kit.differences(run.tensors(), other.tensors())
    assert not kit.differences(run.train(7, 12).tensors(), other.train(7, 12).tensors())


def test_going_back_in_the_same_process(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 5)
    state = copy.deepcopy(run.state())
    after = run.train(5, 10).tensors()
    load(run, state)
    assert not kit.differences(run.train(5, 10).tensors(), after)


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


def test_saving_changes_nothing_and_a_state_is_a_copy(kit: Kit, method: str) -> None:
    quiet, saved = kit.Run(method).train(0, 6), kit.Run(method)
    for step in range(6):
        saved.train(step, step + 1)
        state = saved.sparsifier.state_dict()
    before = kit.flatten(state)
    assert not kit.differences(quiet.tensors(), saved.tensors())
    saved.train(6, 12)
    assert not kit.differences(before, kit.flatten(state))


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_training_copied_whole_goes_its_own_way(kit: Kit, method: str, how: str) -> None:
    run = kit.Run(method).train(0, 5)
    parts = run.model, run.optimizer, run.sparsifier
    twin = copy.copy(run)
    twin.model, twin.optimizer, twin.sparsifier = (
        copy.deepcopy(parts) if how == "deepcopy" else pickle.loads(pickle.dumps(parts))
    )
    before = run.tensors()
    assert not kit.differences(before, twin.tensors())
    twin.train(5, 12)
    assert not kit.differences(before, run.tensors())
    assert not kit.differences(run.train(5, 12).tensors(), twin.tensors())
    twin.sparsifier.remove()
    assert len(twin.optimizer.param_groups) == 1
    run.train(11, 12)


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


def test_a_finished_training_is_loaded_as_finished(kit: Kit, method: str) -> None:
    run, other = kit.Run(method).train(0, 12), kit.Run(method, seed=5)
    run.sparsifier.finish()
    state = through_a_file(run.state())
    assert "hidden" not in state["sparsifier"]
    load(other, state, "sparsifier", "optimizer", "model")
    assert not kit.differences(run.tensors(), other.tensors())
    assert not kit.differences(run.train(12, 15).tensors(), other.train(12, 15).tensors())


def test_a_state_of_another_kind_is_refused(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 3)
    state, before = run.sparsifier.state_dict(), run.tensors()
    kind, tensors = next(iter(state["hidden"].items()))
    for wrong in ({}, None, {kind: {}}, {kind: tensors | {"4.weight": torch.zeros(3)}}):
        with pytest.raises(ValueError, match=rf"state\['hidden'\]\['{kind}'\]\['.\.weight'\]: must be a tensor"):
            run.sparsifier.load_state_dict(state | {"hidden": wrong})
        assert not kit.differences(before, run.tensors())
    run.sparsifier.finish()
    with pytest.raises(ValueError, match=r"state\['hidden'\]: is of a training that goes on"):
        run.sparsifier.load_state_dict(state)


def test_a_copy_of_what_is_finished_is_finished(kit: Kit, method: str) -> None:
    run = kit.Run(method).train(0, 12)
    run.sparsifier.finish()
    model, optimizer, sparsifier = copy.deepcopy((run.model, run.optimizer, run.sparsifier))
    assert sparsifier.hidden is None
    assert not any(module._forward_hooks for module in model.modules())
    sparsifier.remove()
    assert len(optimizer.param_groups) == 1
