"""Patterns in a real training loop: they hold after every step, and dropped filters are silent."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import granet
from bits import Parts, differences
from granet.sparsifier import steps_of
from refusals import refused

STEPS = 16
PATTERNS = {"4x1": 0.75, "1x4": 0.75, "filter": 0.5, "2:4": 0.5, "fan-in": 0.75}
METHODS: dict[str, Callable[..., granet.Method]] = {
    "gmp": lambda **k: granet.GMP(every=2, prune_end=10, **k),
    "gmp-uniform": lambda **k: granet.GMP(every=2, prune_end=10, distribution="uniform", **k),
    "granet": lambda **k: granet.GraNet(every=2, prune_end=10, initial_sparsity=0.25, **k),
    "rigl": lambda **k: granet.RigL(every=2, step_on_update=False, **k),
    "rigl-itop": lambda **k: granet.RigLITOP(every=2, **k),
    "set": lambda **k: granet.SET(every=2, **k),
    "static": lambda **k: granet.Static(**k),
}
ALL = pytest.mark.parametrize("pattern", PATTERNS)


class Run(Parts):
    """A small convolutional net with its optimizer and sparsifier; the classifier is left out of the pattern."""

    def __init__(
        self,
        method: str,
        pattern: str,
        seed: int = 0,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
            nn.ConvTranspose2d(8, 8, 2, groups=2), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Flatten(), nn.Linear(48, 4),
        ).to(memory_format=layout)  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.sparsifier = granet.sparsify(
            self.model, self.optimizer, METHODS[method](sparsity=PATTERNS[pattern], pattern=pattern),
            total_steps=STEPS, steps_per_epoch=8, seed=seed, exclude=("10.weight",),
        )  # fmt: skip

    def train(self, first: int, last: int, check: Callable[[], None] = lambda: None) -> None:
        for step in range(first, last):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(8, 4, 5, 5, generator=generator)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), x[:, :, 0, 0].argmax(1)).backward()
            self.optimizer.step()
            check()


def neurons(name: str, mask: Tensor) -> np.ndarray:
    """[out, in, kernel ...]; the second layer is a transposed convolution of two groups, [in, out of a group, ...]."""
    if name != "3.weight":
        return mask.numpy()
    return np.concatenate([half.transpose(0, 1).numpy() for half in mask.split(4)])


def check_pattern(sparsifier: granet.Sparsifier) -> None:
    for name, layer in sparsifier.layers.items():
        mask = neurons(name, layer.mask)
        pattern = sparsifier.method.pattern
        matrix = mask.reshape(len(mask), -1)
        if pattern == "4x1":
            assert set(np.unique(matrix.reshape(-1, 4, matrix.shape[1]).sum(1))) <= {0, 4}
        elif pattern == "1x4":
            assert set(np.unique(matrix.reshape(len(mask), -1, 4).sum(2))) <= {0, 4}
        elif pattern == "filter":
            assert set(np.unique(matrix.mean(1))) <= {0, 1}
        elif pattern == "2:4":
            assert len(np.unique(np.moveaxis(mask, 1, -1).reshape(-1, 4).sum(1))) == 1
        else:
            assert len(np.unique(matrix.sum(1))) == 1
        assert not torch.count_nonzero(layer.weight[~layer.mask])
        assert layer.active > 0


@ALL
@pytest.mark.parametrize("method", ["granet", "gmp-uniform", "rigl-itop"])
def test_the_pattern_holds_after_every_step_and_the_asked_sparsity_is_reached(pattern: str, method: str) -> None:
    run = Run(method, pattern)
    check_pattern(run.sparsifier)
    run.train(0, STEPS, lambda: check_pattern(run.sparsifier))
    numel = sum(layer.numel for layer in run.sparsifier.layers.values())
    quantum = {"4x1": 4, "1x4": 4, "filter": 72, "2:4": 0, "fan-in": 12}[pattern]
    zeros = round(run.sparsifier.sparsity * numel)
    assert abs(zeros - PATTERNS[pattern] * numel) <= quantum  # within a block, a filter, or a weight of each neuron
    if method != "static":
        last = run.sparsifier.history[-1]
        assert last.achieved == run.sparsifier.sparsity
        assert last.active == tuple(layer.active for layer in run.sparsifier.layers.values())


@ALL
def test_weights_stay_sparse_after_removal(pattern: str) -> None:
    run = Run("granet", pattern)
    run.train(0, 13)
    run.sparsifier.remove()
    check_pattern(run.sparsifier)
    assert not run.optimizer._optimizer_step_pre_hooks


@ALL
def test_the_memory_layout_does_not_matter(pattern: str) -> None:
    masks = []
    for layout in (torch.contiguous_format, torch.channels_last):
        run = Run("rigl-itop", pattern, layout=layout)
        assert run.sparsifier.masks["0.weight"].is_contiguous(memory_format=layout)
        for layer in run.sparsifier.layers.values():
            layer.weight.grad = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(1))
        for _ in range(2):
            run.sparsifier.mask_gradients()
            steps_of(run.sparsifier).taken()
        masks.append({name: mask.contiguous() for name, mask in run.sparsifier.masks.items()})
    assert not differences(*masks)


@pytest.mark.parametrize(("there", "here"), [("1x4", "4x1"), ("fan-in", "filter"), ("4x1", "fan-in")])
def test_the_state_of_another_pattern_is_refused(there: str, here: str) -> None:
    state = Run("granet", there).sparsifier.state_dict()
    run = Run("granet", here)
    before = copy.deepcopy(run.state())
    with (
        refused("state['fields']['sparsity']", 0.75)
        if here == "filter"
        else refused("state['fields']['pattern']", there)
    ):
        run.sparsifier.load_state_dict(state)
    del state["fields"]  # as it was saved before there were any
    with refused("state['masks']['6.weight']", ..., f"pattern='{here}'"):
        run.sparsifier.load_state_dict(state)
    assert not differences(before, run.state())


# A dropped filter outputs zero.


def outputs(model: nn.Sequential, x: Tensor, place: int) -> Tensor:
    """What channels give at that place of the net: [channels, everything else]."""
    return model[: place + 1](x).detach().transpose(0, 1).flatten(1)


def dropped_filters(run: Run, name: str) -> Tensor:
    return torch.from_numpy(~neurons(name, run.sparsifier.masks[name]).any((1, 2, 3)))


def check_silence(run: Run) -> None:
    """Behind each norm exactly the dropped filters are silent, whether it trains or evaluates."""
    x = torch.randn(8, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    model = copy.deepcopy(run.model)
    for training in (True, False):
        model.train(training)
        for name, norm in (("0.weight", 1), ("3.weight", 4), ("6.weight", 7)):
            silent = outputs(model, x, norm).abs().amax(1) == 0
            assert silent.tolist() == dropped_filters(run, name).tolist()


@pytest.mark.parametrize("method", ["gmp", "gmp-uniform", "static"])
def test_a_filter_that_never_returns_is_silent_at_once(method: str) -> None:
    run = Run(method, "filter")
    run.train(0, STEPS, lambda: check_silence(run))
    assert sum(int(dropped_filters(run, name).sum()) for name in run.sparsifier.layers) > 8


@pytest.mark.parametrize("method", ["granet", "rigl", "rigl-itop", "set"])
def test_a_filter_that_may_return_is_silent_from_the_last_update_on(method: str) -> None:
    run = Run(method, "filter")
    for i in (1, 4, 7):
        run.model[i].bias.data.fill_(0.5)
    last = {"rigl": 10}.get(method, 14)
    run.train(0, last - 3)
    earlier = copy.deepcopy(run.state())
    run.train(last - 3, last - 1)
    assert all(run.model[i].bias.all() for i in (1, 4, 7))
    run.train(last - 1, STEPS, lambda: check_silence(run))
    assert run.sparsifier.history[-1].step == last
    state = run.optimizer.state[run.model[7].bias]
    assert not state["exp_avg"][dropped_filters(run, "6.weight")].any()
    run.load(earlier)  # and back to before it
    run.train(last - 3, last - 1)
    assert all(run.model[i].bias.all() for i in (1, 4, 7))


def test_filters_return_and_learn() -> None:
    run = Run("set", "filter")
    for norm in (1, 4, 7):
        nn.init.constant_(run.model[norm].bias, 0.1)  # at 0, ReLU lets no gradient through to a filter of zeros
    before = {name: dropped_filters(run, name) for name in run.sparsifier.layers}
    run.train(0, 9)
    returned = 0
    for name, dropped in before.items():
        back = dropped & ~dropped_filters(run, name)
        weight = torch.from_numpy(neurons(name, run.sparsifier.layers[name].weight.detach()))
        returned += int((weight[back].abs().amax((1, 2, 3)) > 0).sum())
    assert returned > 0


def test_other_patterns_leave_biases_and_norms_alone() -> None:
    run = Run("static", "4x1")
    run.train(0, 4)
    assert all(run.model[i].bias.all() for i in (0, 1, 3, 4))


class Block(nn.Module):
    """A residual block whose last norm follows a sum, as in pre-activation nets."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.second = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)
        self.outer, self.last = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.outer(x + self.second(self.inner(self.first(x)))).relu()).mean((2, 3))


class Stubborn(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


def biased(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        parameter.data += 1
    return model


def static(model: nn.Module, **options: Any) -> granet.Sparsifier:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return granet.sparsify(model, optimizer, granet.Static(sparsity=0.5, pattern="filter"), **options)


def test_a_norm_behind_a_sum_keeps_its_bias() -> None:
    model = biased(Block())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        static(model)
    assert not model.inner.bias.all()
    assert not model.second.bias.all()
    assert model.outer.bias.all()


def test_a_norm_behind_two_layers_keeps_its_bias() -> None:
    class Shared(Block):
        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.inner(self.first(x)) + self.inner(self.second(x))).mean((2, 3))

    model = biased(Shared())
    static(model)
    assert model.inner.bias.all()
    assert not model.first.bias.all()


def test_a_model_that_cannot_be_traced_is_warned_about_once() -> None:
    model = biased(Stubborn())
    with pytest.warns(
        UserWarning, match=r"pattern='filter': Stubborn cannot be traced: its forward decides by values of its inputs"
    ) as caught:
        static(model)
    assert len(caught) == 1
    assert model.inner.bias.all()
    assert not model.first.bias.all()  # the layer's own bias needs no tracing


def test_a_wrong_optimizer_is_refused_before_the_model_is_traced() -> None:
    with refused("optimizer", []):
        granet.sparsify(Block(), [], granet.Static(sparsity=0.5, pattern="filter"))  # type: ignore[arg-type]


def test_a_classifier_among_the_filters_is_warned_about() -> None:
    with pytest.warns(UserWarning, match=r"'2.weight' is an output of the model; exclude=\('2.weight',\) spares it"):
        static(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))


def test_a_compiled_model_is_traced_as_it_was_written() -> None:
    model = biased(Block())
    with warnings.catch_warnings(record=True) as caught:
        static(torch.compile(model))  # type: ignore[arg-type]
    assert not [warning for warning in caught if "granet" in str(warning.message)]
    assert not model.inner.bias.all()
