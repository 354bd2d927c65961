"""``sparsify(..., state=saved)``: what it takes, what it writes and what it refuses."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import granet
from bits import differences
from refusals import refused

STEPS, SAVED = 24, 11
METHODS: dict[str, granet.Method] = {
    "granet": granet.GraNet(sparsity=0.9, initial_sparsity=0.4, prune_end="75%", every=3),
    "granet-mean": granet.GraNet(sparsity=0.9, initial_sparsity=0.4, prune_end="75%", every=3, grow_batch_count=3),
    "deep-r": granet.DeepR(sparsity=0.8, l1=1e-3, noise=0.1, log_every=3),
    "snfs": granet.SNFS(sparsity=0.8, every=3),
    "static": granet.Static(sparsity=0.8),
    "dpf": granet.DPF(sparsity=0.8, every=3),
    "gmp-original": granet.GMPOriginal(sparsity=0.8, every=3, dense_first=False),
    "str": granet.STR(s_init=-5.0),
    "vd": granet.VD(examples=100),
}


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 6))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        torch.manual_seed(step)
        x = torch.randn(12, 10)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), x[:, :6].argmax(1)).backward()
        optimizer.step()


def start(name: str, seed: int = 0, **given: Any) -> tuple[nn.Module, torch.optim.Optimizer, granet.Sparsifier]:
    torch.manual_seed(seed)
    model = net()
    optimizer = sgd(model)
    return model, optimizer, sparsify(name, model, optimizer, seed=seed, **given)


def sparsify(name: str, model: nn.Module, optimizer: torch.optim.Optimizer, **given: Any) -> granet.Sparsifier:
    return granet.sparsify(model, optimizer, METHODS[name], **{"total_steps": STEPS, **given})


@pytest.fixture(scope="module")
def saved() -> Callable[[str], tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """The states of model, optimizer and sparsifier in the middle of a training and at its end."""
    done: dict[str, Any] = {}

    def run(name: str) -> Any:
        if name not in done:
            parts = start(name)
            train(*parts[:2], 0, SAVED)
            middle = [copy.deepcopy(part.state_dict()) for part in parts]
            train(*parts[:2], SAVED, STEPS)
            done[name] = middle, [part.state_dict() for part in parts]
        return copy.deepcopy(done[name])  # an optimizer goes on with the tensors that it loads

    return run


def test_weights_of_another_moment_are_masked_at_the_next_step(saved: Any) -> None:
    (_, _, state), _ = saved("granet")
    model, optimizer, sparsifier = start("granet", seed=3, state=state)
    assert all(bool(p.all()) for p in model.parameters() if p.ndim > 1)
    train(model, optimizer, SAVED, SAVED + 1)
    assert sparsifier.check()


def test_equal_masks_write_nothing(saved: Any) -> None:
    (_, _, state), _ = saved("granet")
    model, _, sparsifier = start("granet", state=state)
    before = copy.deepcopy(model.state_dict())
    sparsifier.load_state_dict(state)
    assert not differences(model.state_dict(), before)


def test_other_masks_are_written_at_once(saved: Any) -> None:
    (_, _, state), _ = saved("granet")
    sparsifier = start("granet")[2]
    sparsifier.load_state_dict(state)
    assert sparsifier.check()


@pytest.mark.parametrize(("there", "here"), [("module.", ""), ("_forward_module.", ""), ("", "module.")])
@pytest.mark.parametrize("name", ["granet-mean", "dpf"])
def test_a_state_saved_in_a_wrapper(name: str, there: str, here: str, saved: Any) -> None:
    (model_state, optimizer_state, state), end = saved(name)

    def renamed(values: dict[str, Any]) -> dict[str, Any]:
        return {f"{there}{key}" if key else key: value for key, value in values.items()}

    wrapped = {**state, **{key: renamed(state[key]) for key in ("shapes", "masks", "memory")}}
    if "hidden" in state:
        wrapped["hidden"] = {kind: renamed(values) for kind, values in state["hidden"].items()}
    torch.manual_seed(7)
    model = net()
    outer = nn.ModuleDict({"module": model}) if here else model
    optimizer = sgd(model)
    model.load_state_dict(model_state)
    sparsifier = sparsify(name, outer, optimizer, state=wrapped)
    optimizer.load_state_dict(optimizer_state)
    assert list(sparsifier.layers) == [f"{here}0.weight", f"{here}3.weight"]
    train(model, optimizer, SAVED, STEPS)
    assert not differences(model.state_dict(), end[0])


def test_another_prefix_is_named(saved: Any) -> None:
    (_, _, state), _ = saved("granet")
    other = {**state, **{key: {f"net.{name}": one for name, one in state[key].items()} for key in ("shapes", "masks")}}
    model, optimizer, sparsifier = start("granet")
    with refused("state['shapes']['0.weight']", None, "'net.'"):
        sparsifier.load_state_dict(other)
    sparsifier.remove()
    with refused("state['shapes']['0.weight']", None, "'net.'", unchanged=(model, optimizer)):
        sparsify("granet", model, optimizer, state=other)


@pytest.mark.parametrize("name", ["granet", "snfs", "deep-r", "str"])
def test_a_state_of_another_method_or_a_damaged_one_leaves_all_as_it_was(name: str, saved: Any) -> None:
    (_, _, state), _ = saved(name)
    torch.manual_seed(0)
    model = net()
    optimizer = sgd(model)
    (_, _, other), _ = saved("static")
    damaged = [
        (other, "state['method']", "static"),
        ({**state, "masks": {}}, "state['masks']['0.weight']", ...),
        ({**state, "memory": {"0.weight": 3}}, "state['memory']['0.weight']", ...),
        ("state", "state", ...),
    ]
    if "hidden" in state:
        damaged.append(({**state, "hidden": {}}, "state['hidden']['weights']['0.weight']", ...))
    for one, subject, value in damaged:
        with refused(subject, value, unchanged=(model, optimizer)):
            sparsify(name, model, optimizer, state=one)
    sparsify(name, model, optimizer)  # the weights are free


def test_a_longer_training_is_let_through_and_said(saved: Any) -> None:
    (model_state, _, state), _ = saved("granet")
    torch.manual_seed(7)
    model = net()
    optimizer = sgd(model)
    model.load_state_dict(model_state)
    said = (
        rf"^granet: total_steps=48: the saved training had 24; from step {SAVED} on masks follow the schedule of the "
    )
    with pytest.warns(UserWarning, match=said):
        sparsifier = sparsify("granet", model, optimizer, total_steps=48, state=state)
    assert sparsifier.updates[-1] > STEPS
    train(model, optimizer, SAVED, 48)
    assert sparsifier.sparsity == pytest.approx(0.9, abs=0.5 / 384)
    other = net()
    with refused("total_steps", 20, "24"):
        sparsify("granet", other, sgd(other), total_steps=20, state=state)


def test_after_the_last_update_any_length_will_do(saved: Any) -> None:
    _, (_, _, state) = saved("granet")
    model = net()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsify("granet", model, sgd(model), state=state)


@pytest.mark.filterwarnings("ignore:granet.*training ends at step")
@pytest.mark.parametrize("end", ["finish", "remove"])
@pytest.mark.parametrize("name", ["dpf", "gmp-original", "str", "vd"])
def test_after_the_end_of_what_is_hidden_the_masks_stay_as_they_are(name: str, end: str) -> None:
    first = start(name)
    train(*first[:2], 0, SAVED)
    getattr(first[2], end)()
    states = [copy.deepcopy(part.state_dict()) for part in first]
    model, optimizer, resumed = start(name, seed=3, state=states[2])
    model.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    assert resumed.updates == first[2].updates == range(0)
    for one in (first, (model, optimizer)):
        train(*one[:2], SAVED, SAVED + 1)
    assert end == "remove" or not differences(model.state_dict(), first[0].state_dict())
    train(model, optimizer, SAVED + 1, STEPS)
    assert resumed.check() and resumed.active == first[2].active
