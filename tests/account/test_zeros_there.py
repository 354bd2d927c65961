"""Zeros are counted where they are: in the model, in averages of it, after other weights were loaded."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import granet
from refusals import refused

SPARSE = {"0.weight": 240, "3.weight": 144}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 6))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, average: AveragedModel | None = None) -> None:
    for step in range(steps):
        x = torch.randn(12, 10, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), x[:, :6].argmax(1)).backward()
        optimizer.step()
        if average is not None:
            average.update_parameters(model)


def start(
    method: granet.Method | None = None, **given: Any
) -> tuple[nn.Module, torch.optim.Optimizer, granet.Sparsifier]:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    method = method or granet.GMP(sparsity=0.8, prune_end="75%", every=2)
    return model, optimizer, granet.sparsify(model, optimizer, method, **{"total_steps": 12, **given})


def by_hand(model: nn.Module) -> int:
    return sum(int((model.get_parameter(name) == 0).sum()) for name in SPARSE)


def test_zeros_are_those_that_are_there() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 12)
    found = sparsifier.check()
    assert found and found == sparsifier.check(model)
    assert (found.zeros, found.numel, found.stray) == (by_hand(model), 384, {})
    assert found.sparsity == sparsifier.sparsity
    assert str(found) == f"{found.zeros} of 384 sparse weights are zero ({found.sparsity:.2%}), all that should be"


def test_zeros_beyond_the_masks_are_counted_and_are_no_strays() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 12)
    with torch.no_grad():
        model[0].weight[:12] = 0
    assert sparsifier.check() and sparsifier.check().zeros == by_hand(model) > round(0.8 * 384)


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_average_of_weights(wrapped: bool) -> None:
    model, optimizer, sparsifier = start()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    train(model, optimizer, 12, average)
    ema = average if wrapped else average.module
    found = sparsifier.check(ema)
    stray = {
        name: int((average.module.get_parameter(name)[~mask] != 0).sum()) for name, mask in sparsifier.masks.items()
    }
    assert not found and found.stray == stray and set(stray) == set(SPARSE)
    dense = copy.deepcopy(average.module.state_dict())
    sparsifier.apply_to(ema)
    assert sparsifier.check(ema)
    for name, mask in sparsifier.masks.items():
        assert torch.equal(average.module.get_parameter(name), torch.where(mask, dense[name], 0.0))
    assert all(torch.equal(v, dense[k]) for k, v in average.module.state_dict().items() if k not in SPARSE)


def test_dropped_filters_and_what_follows_them() -> None:
    method = granet.GMP(sparsity=0.5, prune_end="75%", every=2, pattern="filter")
    model, optimizer, sparsifier = start(method, exclude=("3.weight",))
    average = AveragedModel(model)
    train(model, optimizer, 12, average)
    assert set(sparsifier.check(average).stray) == {"0.weight", "0.bias", "1.bias", "3.weight"}
    sparsifier.apply_to(average)
    assert sparsifier.check(average) and sparsifier.check(average).numel == 240


@pytest.mark.parametrize("moment", ["state_dict", "finish", "save"])
@pytest.mark.parametrize("what", ["other weights loaded", "another optimizer"])
def test_weights_that_do_not_fit_the_masks_are_noticed(moment: str, what: str, tmp_path: Any) -> None:
    model, optimizer, sparsifier = start()
    early = copy.deepcopy(model.state_dict())
    train(model, optimizer, 12)
    if what == "other weights loaded":
        model.load_state_dict(early)  # as load_best_model_at_end does
    else:
        train(model, torch.optim.Adam(model.parameters()), 1)
    stray = sum(sparsifier.check().stray.values())
    assert stray > 100
    if moment == "save":
        with refused("masks['0.weight']", ..., "sparsifier.apply_to(model)", unchanged=(model, tmp_path)):
            granet.save(model, tmp_path / "model.safetensors", sparsifier)
        return
    said = rf"^granet: .*; {stray:,} are not zero though they should be: .*; sparsifier\.apply_to\(model\)"
    with pytest.warns(UserWarning, match=said):
        getattr(sparsifier, moment)()
    with warnings.catch_warnings():  # once
        warnings.simplefilter("error")
        getattr(sparsifier, moment)()


@pytest.mark.parametrize(
    "method",
    [granet.DPF(sparsity=0.8, every=2), granet.STR(s_init=-5.0), granet.VD(examples=100)],
    ids=["dpf", "str", "vd"],
)
def test_hidden_trainings_are_not_suspected(method: granet.Method) -> None:
    model, optimizer, sparsifier = start(method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, 12)
        sparsifier.state_dict()
        sparsifier.finish()
    assert sparsifier.check()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Linear(10, 24), ("model", ..., "'0.weight'")),
        (nn.Sequential(nn.Linear(10, 23)), ("model", ..., "'0.weight'", "[23, 10]", "[24, 10]")),
    ],
)
def test_another_model(other: nn.Module, message: tuple) -> None:
    sparsifier = start()[2]
    before = copy.deepcopy(other.state_dict())
    for ask in (sparsifier.check, sparsifier.apply_to):
        with refused(*message):
            ask(other)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


# One warning each.


def test_a_training_that_ends_before_its_target() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 5)
    with pytest.warns(
        UserWarning, match=r"^granet: training ends at step 5, before the last update at step 10: .* 0\.8$"
    ):
        sparsifier.finish()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsifier.remove()


def test_a_layer_that_falls_to_its_floor() -> None:
    model, optimizer, _ = start(granet.GMP(sparsity=0.97, prune_end="75%", every=2), floor=5)
    with torch.no_grad():
        model[3].weight.mul_(1e-4)
    with pytest.warns(UserWarning, match=r"step \d+: 3\.weight: only what its floor keeps is left, 5 of 144;") as said:
        train(model, optimizer, 12)
    assert len([one for one in said if "floor" in str(one.message)]) == 1


def test_the_with_form_finishes_and_unhooks() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with granet.sparsify(model, optimizer, granet.DPF(sparsity=0.5, every=2), total_steps=4) as sparsifier:
        train(model, optimizer, 4)
        assert sparsifier.hidden is not None
    assert sparsifier.hidden is None and sparsifier.check()
    train(model, optimizer, 1)
    assert not sparsifier.check()


def test_the_with_form_unhooks_after_an_exception_and_does_not_hide_it() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with pytest.raises(KeyError, match="mine"), granet.sparsify(model, optimizer, granet.Static(sparsity=0.8)):
        raise KeyError("mine")
    granet.sparsify(model, optimizer, granet.Static(sparsity=0.8))
