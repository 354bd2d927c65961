"""A training in which filters are dropped: what is held stays zero, and nothing is cut before the last update."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import granet
from bits import Parts, differences
from quick import slow_but_for

Kit = SimpleNamespace
STEPS = 16
LAST = 10

METHODS: dict[str, Callable[[], granet.Method]] = {
    "granet": lambda: granet.GraNet(
        sparsity=0.6, initial_sparsity=0.3, every=2, prune_end=LAST, regrow=0.5, pattern="filter"
    ),
    "gmp": lambda: granet.GMP(sparsity=0.6, every=2, prune_end=LAST, pattern="filter"),
    "static": lambda: granet.Static(sparsity=0.6, pattern="filter"),
}
pytestmark = pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")  # of tiny layers
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.1),
}


class Run(Parts):
    def __init__(self, kit: Kit, name: str, method: str, optimizer: str = "sgd", seed: int = 0) -> None:
        self.kit = kit
        self.model = kit.make(name, seed)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.sparsifier = granet.sparsify(
            self.model, self.optimizer, METHODS[method](), total_steps=STEPS, seed=seed, exclude=(kit.MODELS[name][1],)
        )

    def train(self, first: int, last: int, check: Callable[[], None] = lambda: None) -> None:
        for step in range(first, last):
            torch.manual_seed(step)
            self.optimizer.zero_grad()
            self.kit.loss(self.model, self.kit.images(8, step)).backward()
            self.optimizer.step()
            check()

    def check_zeros(self) -> None:
        for name, mask in self.sparsifier.in_use.items():
            parameter = self.model.get_parameter(name)
            assert not parameter[~mask].any()
            for value in self.optimizer.state[parameter].values():
                if value.shape == parameter.shape:
                    assert value[~mask].unique().numel() <= 1  # as it is for a weight that was never trained

    @property
    def cut(self) -> int:
        """Weights that are held at zero though they are active, or have no mask."""
        masks = self.sparsifier.masks
        return sum(
            int((~mask & masks.get(name, torch.tensor(True))).sum())
            for name, mask in self.sparsifier.in_use.items()
            if mask.ndim > 1
        )


@pytest.mark.parametrize("optimizer", slow_but_for(["adamw"], OPTIMIZERS))
@EVERY_METHOD
def test_zeros_stay_while_training_goes_on(kit: Kit, name: str, method: str, optimizer: str) -> None:
    run = Run(kit, name, method, optimizer)
    run.train(0, STEPS, run.check_zeros)
    assert run.cut > 0


def test_norms_have_not_seen_what_dropped_filters_output_within_a_step(kit: Kit) -> None:
    """L-BFGS evaluates the model at weights that it has moved against the masks."""
    model = kit.make("vgg")
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    sparsifier = granet.sparsify(model, optimizer, METHODS["gmp"](), total_steps=STEPS, exclude=("13.weight",))
    for step in range(STEPS):
        images = kit.images(8, step)

        def closure(images: Tensor = images) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = kit.loss(model, images)
            loss.backward()
            return loss

        optimizer.step(closure)
        for layer, norm in (("0.weight", model[1]), ("4.weight", model[5]), ("9.weight", model[10])):
            assert not norm.running_mean[~sparsifier.masks[layer].flatten(1).any(1)].any(), f"step {step}: {layer}"


@pytest.mark.parametrize("method", ["granet", "gmp"])
def test_nothing_is_cut_before_the_last_update(kit: Kit, name: str, method: str) -> None:
    run = Run(kit, name, method)
    last = run.sparsifier.updates[-1]
    cuts: list[int] = []
    run.train(0, last - 1, lambda: cuts.append(run.cut))
    assert set(cuts) == {0}
    earlier = copy.deepcopy(run.state())
    before = {name: run.model.get_parameter(name) != 0 for name in run.sparsifier.in_use}
    run.train(last - 1, last)
    assert run.cut > 0
    run.load(earlier)  # and back to before it
    assert run.cut == 0
    assert all(torch.equal(run.model.get_parameter(name) != 0, mask) for name, mask in before.items())


@pytest.mark.parametrize(("method", "for_good"), [("granet", False), ("gmp", True)])
def test_a_filter_that_may_return_keeps_its_bias(kit: Kit, name: str, method: str, for_good: bool) -> None:
    run = Run(kit, name, method)
    last = run.sparsifier.updates[-1]

    def biases_are_held() -> bool:
        return not all(mask.all() for mask in run.sparsifier.in_use.values() if mask.ndim == 1)

    run.train(0, last - 1)
    assert biases_are_held() == for_good
    run.train(last - 1, last)
    assert biases_are_held()


@pytest.mark.parametrize(
    "method",
    [granet.STR(s_init=-0.9, pattern="filter"), granet.DPF(sparsity=0.5, every=2, prune_end=6, pattern="filter")],
    ids=["learned", "updated"],
)
def test_what_is_in_use_follows_the_masks_where_weights_are_hidden(kit: Kit, method: granet.Method) -> None:
    model = kit.make("vgg")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=6, exclude=(kit.MODELS["vgg"][1],))
    states = [sparsifier.state_dict()]
    sparsities = set()

    def check() -> None:
        assert all(torch.equal(sparsifier.in_use[layer], mask) for layer, mask in sparsifier.masks.items())
        sparsities.add(sparsifier.sparsity)

    for step in range(6):
        optimizer.zero_grad()
        kit.loss(model, kit.images(8, step)).backward()
        optimizer.step()
        states.append(sparsifier.state_dict())
        check()
    assert len(sparsities) > 1
    for state in states:
        sparsifier.load_state_dict(state)
        check()


def test_pruning_does_not_look_at_what_will_be_cut(kit: Kit) -> None:
    """The masks of a run are those of one in which nothing is cut: a net behind a thinned layer is no smaller."""
    runs = [Run(kit, "vgg", "gmp") for _ in range(2)]
    runs[1].sparsifier._zeros.followers.readers.clear()
    for run in runs:
        run.train(0, STEPS)
    assert not differences(runs[0].sparsifier.masks, runs[1].sparsifier.masks)
    assert runs[0].cut > 0


def test_pruning_once_more_counts_a_filter_that_hears_nothing_as_gone(kit: Kit) -> None:
    model = kit.make("separable")
    first = kit.static(model, "separable")
    alive = {name: mask.flatten(1).any(1) for name, mask in first.masks.items()}
    first.remove()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.PruneOnce(rate=0.01, pattern="filter")
    second = granet.sparsify(model, optimizer, method, exclude=("fc.weight",))
    heard = alive["deep.0.weight"] & alive["stem.0.weight"]
    assert torch.equal(second.masks["deep.0.weight"].flatten(1).any(1), heard)
    assert heard.sum() < alive["deep.0.weight"].sum()
