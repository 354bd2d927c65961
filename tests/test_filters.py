"""Where filters are dropped for good: what nobody hears is held at zero, and nothing else changes by it."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import granet
from granet.filters import find_followers
from granet.layers import find_layers
from granet.models import create_model
from granet.patterns import FILTERS
from granet.zeros import Zeros

STEPS = 16
LAST = 10


def plain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(inplace=True), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(48, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 4),
    )  # fmt: skip


class Residual(nn.Module):
    """A block with a shortcut that has filters too; what is behind reads the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.short, self.bn3 = nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        out += self.bn3(self.short(x))
        return self.fc(F.relu(out).mean((2, 3)))


class Separable(nn.Module):
    """Depthwise and grouped convolutions, a gate, and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.SiLU())
        self.gate = nn.Conv2d(8, 8, 1)
        self.paired = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(16, 6, 2, groups=2)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.deep(self.stem(x))
        x = x * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(x, 1)))
        x = torch.cat([x, torch.tanh(self.paired(x))], dim=1)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.up(x), 1), 1))


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "plain": (plain, "4.weight"),
    "vgg": (vgg, "13.weight"),
    "residual": (Residual, "fc.weight"),
    "separable": (Separable, "fc.weight"),
}
ALL = pytest.mark.parametrize("name", MODELS)


def make(name: str, seed: int = 0) -> nn.Module:
    """A model whose norms have shifts and statistics."""
    torch.manual_seed(seed)
    model = MODELS[name][0]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        model(images(32))
    return model


def images(count: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def loss(model: nn.Module, x: Tensor) -> Tensor:
    logits = model(x)
    logits = logits.flatten(2).mean(2) if logits.ndim > 2 else logits
    return F.cross_entropy(logits, x[:, :, 0, 0].argmax(1))


def static(model: nn.Module, name: str, **options: Any) -> granet.Sparsifier:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    method = granet.Static(sparsity=0.5, pattern="filter")
    return granet.sparsify(model, optimizer, method, exclude=(MODELS[name][1],), **options)


# What is held, and that it changes nothing.


@ALL
@pytest.mark.parametrize("seed", range(4))
def test_outputs_are_the_same_before_and_after(name: str, seed: int) -> None:
    model = make(name, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    layers = find_layers(model, exclude=(MODELS[name][1],))
    for layer in layers:
        units = torch.rand(FILTERS.units(layer, layer.mask).shape) < 0.4
        layer.mask.copy_(FILTERS.spread(layer, units))
    zeros = Zeros(layers, find_followers(model, layers, optimizer), optimizer)
    zeros.apply_masks(may_be_sparse=True, may_change=True, may_regrow=False)  # dropped filters are silent from here on
    before, weights = outputs(model), count(model)
    zeros.apply_masks(may_be_sparse=True, may_change=False, may_regrow=False)
    assert torch.equal(before, outputs(model))
    assert count(model) < weights


def outputs(model: nn.Module) -> Tensor:
    """In eval and in train mode."""
    torch.manual_seed(0)
    return torch.stack([copy.deepcopy(model).train(training)(images()) for training in (False, True)])


def count(model: nn.Module) -> int:
    return sum(int(parameter.count_nonzero()) for parameter in model.parameters())


def test_a_chain_keeps_what_is_between_live_filters() -> None:
    model = make("plain")
    sparsifier = static(model, "plain")
    first, second = (sparsifier.masks[name].flatten(1).any(1) for name in ("0.weight", "2.weight"))
    weight = model[2].weight.detach().abs().sum((2, 3)) > 0
    assert torch.equal(weight, second[:, None] & first[None])
    assert torch.equal(model[4].weight.detach().abs().sum((0, 2, 3)) > 0, second)  # though it is left dense
    assert set(sparsifier.in_use) - set(sparsifier.masks) == {"0.bias", "2.bias", "4.weight"}


def test_a_block_of_columns_behind_a_flattened_image() -> None:
    model = make("vgg")
    sparsifier = static(model, "vgg")
    alive = sparsifier.masks["4.weight"].flatten(1).any(1)
    columns = (model[9].weight != 0).any(0).view(12, 4)
    assert torch.equal(columns.any(1), alive)
    assert torch.equal(columns.all(1), alive)


@pytest.mark.parametrize("both", [True, False])
def test_a_sum_is_heard_if_one_of_its_terms_is(both: bool) -> None:
    model = make("residual")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    layers = {layer.name: layer for layer in find_layers(model, exclude=("fc.weight",))}
    layers["conv2.weight"].mask[:3] = False
    if both:
        layers["short.weight"].mask[1:5] = False
    zeros = Zeros(list(layers.values()), find_followers(model, list(layers.values()), optimizer), optimizer)
    zeros.apply_masks(may_be_sparse=True, may_change=False, may_regrow=False)
    dead = (model.fc.weight == 0).all(0)
    assert dead.tolist() == [both and channel in (1, 2) for channel in range(8)]


def test_groups_are_masked_by_their_own_channels() -> None:
    model = make("separable")
    sparsifier = static(model, "separable")
    stem = sparsifier.masks["stem.0.weight"].flatten(1).any(1)
    deep = sparsifier.masks["deep.0.weight"].flatten(1).any(1)
    paired = sparsifier.masks["paired.weight"].flatten(1).any(1)
    assert torch.equal((model.deep[0].weight != 0).flatten(1).any(1), deep & stem)
    halves = deep.view(2, 1, 4).expand(2, 4, 4).reshape(8, 4) & paired[:, None]
    assert torch.equal((model.paired.weight != 0).flatten(2).any(2), halves)
    assert torch.equal((model.up.weight != 0).flatten(1).any(1), torch.cat([deep, paired]))


def test_a_sigmoid_is_heard() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sigmoid(), nn.Conv2d(8, 4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, granet.Static(sparsity=0.5, pattern="filter"), exclude=("2.weight",))
    assert model[2].weight.all()


def test_weights_with_other_uses_stay() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d, self.e = (nn.Linear(8, 8) for _ in range(5))
            self.e.weight = self.d.weight  # tied
            self.frozen = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            return self.b(x) + self.c(x) + self.d(x) + self.frozen(x) + F.linear(x, self.b.weight)

    model = Odd()
    trained = [p for name, p in model.named_parameters() if "frozen" not in name]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(0.5, pattern="filter"), include=("a.weight",))
    dropped = ~sparsifier.masks["a.weight"].any(1)
    assert not model.c.weight[:, dropped].any()
    assert all(layer.weight.all() for layer in (model.b, model.d, model.frozen))


def test_a_model_that_cannot_be_traced_keeps_its_weights() -> None:
    class Stubborn(Residual):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    model = Stubborn()
    with pytest.warns(UserWarning, match="cannot be traced .* later layers keep their weights"):
        static(model, "residual")
    assert model.fc.weight.all()


# What is counted.


@ALL
def test_counts_are_those_of_filters(name: str) -> None:
    model = make(name)
    sparsifier = static(model, name)
    masks = sparsifier.masks
    for layer in sparsifier.layers.values():
        assert FILTERS.holds(layer, layer.mask)
    zeros, numel = (sum(int(f(mask)) for mask in masks.values()) for f in (lambda m: (~m).sum(), torch.numel))
    assert sparsifier.sparsity == zeros / numel
    assert sparsifier.active == {layer: int(mask.sum()) for layer, mask in masks.items()}
    for parameter, mask in sparsifier.in_use.items():
        assert torch.equal(model.get_parameter(parameter) != 0, mask)
        assert parameter not in masks or not (mask & ~masks[parameter]).any()


@ALL
def test_flops_reflect_it(name: str) -> None:
    model = make(name)
    sparsifier = static(model, name)
    by_filter, in_use = (granet.flops(model, images(1), masks) for masks in (sparsifier.masks, sparsifier.in_use))
    assert in_use.sparse == granet.flops(model, images(1)).sparse < by_filter.sparse
    if name == "vgg":
        row = next(row for row in in_use.rows if row.name == "4")
        alive = [int(sparsifier.masks[layer].flatten(1).any(1).sum()) for layer in ("0.weight", "4.weight")]
        assert row.sparse == 2 * 16 * 9 * alive[0] * alive[1]


def test_files_are_smaller_and_come_back(tmp_path: Path) -> None:
    model = create_model("digits_net", num_classes=10, in_channels=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.Static(sparsity=0.5, pattern="filter")
    sparsifier = granet.sparsify(model, optimizer, method, exclude=("classifier.weight",))
    sizes = []
    for number, masks in enumerate((sparsifier.masks, sparsifier.in_use, None)):
        path, twin = tmp_path / str(number), create_model("digits_net", num_classes=10, in_channels=1)
        granet.save(path, model, masks=masks)
        back = granet.load(path, twin)
        assert set(back) == set(masks or ()) and all(
            torch.equal(back[name], mask) for name, mask in (masks or {}).items()
        )
        assert all(torch.equal(a, b) for a, b in zip(twin.parameters(), model.parameters(), strict=True))
        sizes.append(path.stat().st_size)
    assert max(sizes[1:]) < 0.5 * sizes[0]


def test_names_are_those_of_the_model_as_given() -> None:
    model = torch.compile(make("vgg"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsifier = static(model, "vgg")  # type: ignore[arg-type]
    assert granet.flops(model, images(1), sparsifier.in_use).ratio < 0.5  # type: ignore[arg-type]
    assert {"13.weight", "1.bias"} <= set(sparsifier.in_use)


def test_a_bias_of_another_optimizer_is_left_alone_and_so_are_those_who_read_it() -> None:
    model = make("vgg")
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    optimizer = torch.optim.SGD(matrices, lr=0.1)
    others = torch.optim.Adam(vectors, lr=0.1)
    method = granet.Static(sparsity=0.5, pattern="filter")
    with pytest.warns(UserWarning, match=r"0\.bias, 4\.bias, 9\.bias: trained by another optimizer") as said:
        sparsifier = granet.sparsify(model, optimizer, method, exclude=(MODELS["vgg"][1],))
    assert len(said) == 1
    model(images(4)).square().sum().backward()
    optimizer.step()
    others.step()
    held = {name: model.get_parameter(name)[~mask] for name, mask in sparsifier.in_use.items()}
    assert not any(zeros.any() for zeros in held.values())
    assert all(mask.all() for name, mask in sparsifier.in_use.items() if name not in sparsifier.masks)


def test_other_patterns_have_nothing_besides_their_masks() -> None:
    model = make("vgg")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
    assert sparsifier.in_use.keys() == sparsifier.masks.keys()
    assert all(sparsifier.in_use[name] is mask for name, mask in sparsifier.masks.items())


# Training.

METHODS: dict[str, Callable[[], granet.Method]] = {
    "granet": lambda: granet.GraNet(
        sparsity=0.6, initial_sparsity=0.3, every=2, end=LAST, regrow=0.5, pattern="filter"
    ),
    "gmp": lambda: granet.GMP(sparsity=0.6, every=2, end=LAST, pattern="filter"),
    "static": lambda: granet.Static(sparsity=0.6, pattern="filter"),
}
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.1),
}


class Run:
    def __init__(self, name: str, method: str, optimizer: str = "sgd", seed: int = 0) -> None:
        self.model = make(name, seed)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.sparsifier = granet.sparsify(
            self.model, self.optimizer, METHODS[method](), total_steps=STEPS, seed=seed, exclude=(MODELS[name][1],)
        )

    def train(self, first: int, last: int, check: Callable[[], None] = lambda: None) -> None:
        for step in range(first, last):
            torch.manual_seed(step)
            self.optimizer.zero_grad()
            loss(self.model, images(8, step)).backward()
            self.optimizer.step()
            check()

    def state(self) -> dict[str, Any]:
        return {key: getattr(self, key).state_dict() for key in ("model", "optimizer", "sparsifier")}

    def load(self, state: dict[str, Any]) -> None:
        for key in ("model", "optimizer", "sparsifier"):
            getattr(self, key).load_state_dict(copy.deepcopy(state[key]))

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


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@EVERY_METHOD
@ALL
def test_zeros_stay_while_training_goes_on(name: str, method: str, optimizer: str) -> None:
    run = Run(name, method, optimizer)
    run.train(0, STEPS, run.check_zeros)
    assert run.cut > 0


@ALL
@pytest.mark.parametrize("method", ["granet", "gmp"])
def test_nothing_is_cut_before_the_last_update(name: str, method: str) -> None:
    run = Run(name, method)
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


@EVERY_METHOD
@pytest.mark.parametrize("at", [LAST - 3, LAST + 2])
def test_a_resumed_run_equals_an_uninterrupted_one(method: str, at: int) -> None:
    whole, resumed = Run("separable", method), Run("separable", method, seed=5)
    whole.train(0, at)
    half = copy.deepcopy(whole.state())
    whole.train(at, STEPS)
    resumed.train(0, 2)  # another run, so that nothing is right by luck
    resumed.load(half)
    resumed.train(at, STEPS)
    assert same(whole.state(), resumed.state())
    assert all(torch.equal(mask, resumed.sparsifier.in_use[name]) for name, mask in whole.sparsifier.in_use.items())


@pytest.mark.parametrize("how", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))], ids=["copied", "pickled"])
@ALL
def test_a_copied_training_goes_the_same_way(name: str, how: Callable[[Run], Run]) -> None:
    run = Run(name, "granet")
    run.train(0, LAST - 3)
    twin = how(run)
    before = copy.deepcopy(run.state())
    twin.train(LAST - 3, STEPS, twin.check_zeros)
    assert same(before, run.state())
    assert run.cut == 0 < twin.cut
    run.train(LAST - 3, STEPS)
    assert same(twin.state(), run.state())


def test_pruning_does_not_look_at_what_will_be_cut() -> None:
    """The masks of a run are those of one in which nothing is cut: a net behind a thinned layer is no smaller."""
    runs = [Run("vgg", "gmp") for _ in range(2)]
    runs[1].sparsifier._zeros._followers.readers.clear()
    for run in runs:
        run.train(0, STEPS)
    assert same(runs[0].sparsifier.masks, runs[1].sparsifier.masks)
    assert runs[0].cut > 0


def test_pruning_once_more_counts_a_filter_that_hears_nothing_as_gone() -> None:
    model = make("separable")
    first = static(model, "separable")
    alive = {name: mask.flatten(1).any(1) for name, mask in first.masks.items()}
    first.remove()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.PruneOnce(rate=0.01, pattern="filter")
    second = granet.sparsify(model, optimizer, method, exclude=("fc.weight",))
    heard = alive["deep.0.weight"] & alive["stem.0.weight"]
    assert torch.equal(second.masks["deep.0.weight"].flatten(1).any(1), heard)
    assert heard.sum() < alive["deep.0.weight"].sum()
