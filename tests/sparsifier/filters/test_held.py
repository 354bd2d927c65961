"""Where filters are dropped for good: what nobody hears is held at zero, and nothing else changes by it."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import granet
from granet.channels import find_followers
from granet.hidden import groups_of
from granet.models import create_model
from granet.patterns import FILTERS
from granet.sparsifier.zeros import Zeros
from granet.weights import find_layers

Kit = SimpleNamespace


@pytest.mark.parametrize("seed", range(4))
def test_outputs_are_the_same_before_and_after(kit: Kit, name: str, seed: int) -> None:
    model = kit.make(name, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    layers = find_layers(model, exclude=(kit.MODELS[name][1],))
    for layer in layers:
        units = torch.rand(FILTERS.units(layer, layer.mask).shape) < 0.4
        layer.mask.copy_(FILTERS.spread(layer, units))
    zeros = Zeros(find_followers(model, layers, groups_of(optimizer)), optimizer)
    zeros.followers.hold("outputs")  # dropped filters are silent from here on
    zeros.write()
    before, weights = outputs(model, kit.images()), count(model)
    zeros.followers.hold("readers")
    zeros.write()
    assert torch.equal(before, outputs(model, kit.images()))
    assert count(model) < weights


def outputs(model: nn.Module, x: Tensor) -> Tensor:
    """In eval and in train mode."""
    torch.manual_seed(0)
    return torch.stack([copy.deepcopy(model).train(training)(x) for training in (False, True)])


def count(model: nn.Module) -> int:
    return sum(int(parameter.count_nonzero()) for parameter in model.parameters())


def test_a_chain_keeps_what_is_between_live_filters(kit: Kit) -> None:
    model = kit.make("plain")
    sparsifier = kit.static(model, "plain")
    first, second = (sparsifier.masks[name].flatten(1).any(1) for name in ("0.weight", "2.weight"))
    weight = model[2].weight.detach().abs().sum((2, 3)) > 0
    assert torch.equal(weight, second[:, None] & first[None])
    assert torch.equal(model[4].weight.detach().abs().sum((0, 2, 3)) > 0, second)  # though it is left dense
    assert set(sparsifier.in_use) - set(sparsifier.masks) == {"0.bias", "2.bias", "4.weight"}


def test_a_block_of_columns_behind_a_flattened_image(kit: Kit) -> None:
    model = kit.make("vgg")
    sparsifier = kit.static(model, "vgg")
    alive = sparsifier.masks["4.weight"].flatten(1).any(1)
    columns = (model[9].weight != 0).any(0).view(12, 4)
    assert torch.equal(columns.any(1), alive)
    assert torch.equal(columns.all(1), alive)


@pytest.mark.parametrize("both", [True, False])
def test_a_sum_is_heard_if_one_of_its_terms_is(kit: Kit, both: bool) -> None:
    model = kit.make("residual")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    layers = {layer.name: layer for layer in find_layers(model, exclude=("fc.weight",))}
    layers["conv2.weight"].mask[:3] = False
    if both:
        layers["short.weight"].mask[1:5] = False
    zeros = Zeros(find_followers(model, list(layers.values()), groups_of(optimizer)), optimizer)
    zeros.followers.hold("readers")
    zeros.write()
    dead = (model.fc.weight == 0).all(0)
    assert dead.tolist() == [both and channel in (1, 2) for channel in range(8)]


def test_groups_are_masked_by_their_own_channels(kit: Kit) -> None:
    model = kit.make("separable")
    sparsifier = kit.static(model, "separable")
    stem = sparsifier.masks["stem.0.weight"].flatten(1).any(1)
    deep = sparsifier.masks["deep.0.weight"].flatten(1).any(1)
    paired = sparsifier.masks["paired.weight"].flatten(1).any(1)
    assert torch.equal((model.deep[0].weight != 0).flatten(1).any(1), deep & stem)
    halves = deep.view(2, 1, 4).expand(2, 4, 4).reshape(8, 4) & paired[:, None]
    assert torch.equal((model.paired.weight != 0).flatten(2).any(2), halves)
    assert torch.equal((model.up.weight != 0).flatten(1).any(1), torch.cat([deep, paired]))


def test_a_sigmoid_is_heard(kit: Kit) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sigmoid(), nn.Conv2d(8, 4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, granet.Static(sparsity=0.5, pattern="filter"), exclude=("2.weight",))
    assert model[2].weight.all()


def test_weights_with_other_uses_stay(kit: Kit) -> None:
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
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5, pattern="filter"), include=("a.weight",))
    dropped = ~sparsifier.masks["a.weight"].any(1)
    assert not model.c.weight[:, dropped].any()
    assert all(layer.weight.all() for layer in (model.b, model.d, model.frozen))


def test_a_model_that_cannot_be_traced_keeps_its_weights(kit: Kit) -> None:
    class Stubborn(kit.Residual):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    model = Stubborn()
    with pytest.warns(UserWarning, match="Stubborn cannot be traced: its forward decides by values .* later layers"):
        kit.static(model, "residual")
    assert model.fc.weight.all()


# What is counted.


def test_counts_are_those_of_filters(kit: Kit, name: str) -> None:
    model = kit.make(name)
    sparsifier = kit.static(model, name)
    masks = sparsifier.masks
    for layer in sparsifier.layers.values():
        assert FILTERS.holds(layer, layer.mask)
    zeros, numel = (sum(int(f(mask)) for mask in masks.values()) for f in (lambda m: (~m).sum(), torch.numel))
    assert sparsifier.sparsity == zeros / numel
    assert sparsifier.active == {layer: int(mask.sum()) for layer, mask in masks.items()}
    for parameter, mask in sparsifier.in_use.items():
        assert torch.equal(model.get_parameter(parameter) != 0, mask)
        assert parameter not in masks or not (mask & ~masks[parameter]).any()


def test_flops_reflect_it(kit: Kit, name: str) -> None:
    model = kit.make(name)
    sparsifier = kit.static(model, name)
    by_filter = granet.flops(model, kit.images(1), sparsifier)
    in_use = granet.flops(model, kit.images(1), masks=sparsifier.in_use)
    assert in_use.sparse == granet.flops(model, kit.images(1)).sparse < by_filter.sparse
    if name == "vgg":
        row = next(row for row in in_use.rows if row.name == "4")
        alive = [int(sparsifier.masks[layer].flatten(1).any(1).sum()) for layer in ("0.weight", "4.weight")]
        assert row.sparse == 2 * 16 * 9 * alive[0] * alive[1]


def test_files_are_smaller_and_come_back(kit: Kit, tmp_path: Path) -> None:
    model = create_model("digits_net", num_classes=10, in_channels=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.Static(sparsity=0.5, pattern="filter")
    sparsifier = granet.sparsify(model, optimizer, method, exclude=("classifier.weight",))
    sizes = []
    for number, masks in enumerate((sparsifier.masks, sparsifier.in_use, None)):
        path, twin = tmp_path / str(number), create_model("digits_net", num_classes=10, in_channels=1)
        granet.save(model, path, masks=masks)
        back = granet.load(twin, path)
        assert set(back) == set(masks or ()) and all(
            torch.equal(back[name], mask) for name, mask in (masks or {}).items()
        )
        assert all(torch.equal(a, b) for a, b in zip(twin.parameters(), model.parameters(), strict=True))
        sizes.append(path.stat().st_size)
    assert max(sizes[1:]) < 0.5 * sizes[0]


def test_names_are_those_of_the_model_as_given(kit: Kit) -> None:
    model = torch.compile(kit.make("vgg"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsifier = kit.static(model, "vgg")  # type: ignore[arg-type]
    assert granet.flops(model, kit.images(1), masks=sparsifier.in_use).ratio < 0.5  # type: ignore[arg-type]
    assert {"13.weight", "1.bias"} <= set(sparsifier.in_use)


def test_a_bias_of_another_optimizer_is_left_alone_and_so_are_those_who_read_it(kit: Kit) -> None:
    model = kit.make("vgg")
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    optimizer = torch.optim.SGD(matrices, lr=0.1)
    others = torch.optim.Adam(vectors, lr=0.1)
    method = granet.Static(sparsity=0.5, pattern="filter")
    with pytest.warns(UserWarning, match=r"0\.bias, 4\.bias, 9\.bias: trained by another optimizer") as said:
        sparsifier = granet.sparsify(model, optimizer, method, exclude=(kit.MODELS["vgg"][1],))
    assert len(said) == 1
    model(kit.images(4)).square().sum().backward()
    optimizer.step()
    others.step()
    held = {name: model.get_parameter(name)[~mask] for name, mask in sparsifier.in_use.items()}
    assert not any(zeros.any() for zeros in held.values())
    assert all(mask.all() for name, mask in sparsifier.in_use.items() if name not in sparsifier.masks)


def test_a_frozen_bias_of_a_dropped_filter_is_zero_too(kit: Kit) -> None:
    model = kit.make("plain")
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5, pattern="filter"), exclude=("4.weight",))
    alive = sparsifier.masks["0.weight"].flatten(1).any(1)
    assert torch.equal(model[0].bias != 0, alive)
    assert torch.equal((model[2].weight != 0).flatten(2).any(2).any(0), alive)


def test_a_frozen_bias_may_be_trained_later(kit: Kit) -> None:
    model = kit.make("plain")
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    method = granet.GMP(sparsity=0.5, every=1, pattern="filter")
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=8, exclude=("4.weight",))
    optimizer.add_param_group({"params": [model[0].bias.requires_grad_()]})
    for step in range(8):
        optimizer.zero_grad()
        kit.loss(model, kit.images(8, step)).backward()
        optimizer.step()
    dropped = ~sparsifier.masks["0.weight"].flatten(1).any(1)
    assert dropped.any()
    assert not model[0].bias[dropped].any()
    assert not optimizer.state[model[0].bias]["momentum_buffer"][dropped].any()


@pytest.mark.parametrize("inputs", [6, 8])
def test_a_weight_tied_to_a_transposed_one_has_the_filters_of_that_alone(inputs: int) -> None:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Conv2d(inputs, 8, 3), nn.ConvTranspose2d(8, inputs, 3)
            self.decoder.weight = self.encoder.weight
            self.reader = nn.Conv2d(inputs, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.reader(self.decoder(self.encoder(x).relu()))

    model = Autoencoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, granet.Static(sparsity=0.5, pattern="filter"), exclude=("reader.weight",))
    alive = model.decoder.weight.transpose(0, 1).flatten(1).any(1)
    assert int(alive.sum()) == inputs // 2
    assert torch.equal(model.decoder.bias != 0, alive)
    assert torch.equal(model.reader.weight[0, :, 0, 0] != 0, alive)
    assert model.encoder.bias.all()


def test_a_bias_of_another_length_belongs_to_no_filter() -> None:
    class InputsFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(6, 8)), nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight + self.bias

    model = nn.Sequential(InputsFirst(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.Static(sparsity=0.5, pattern="filter")
    sparsifier = granet.sparsify(model, optimizer, method, include=(), also="0.weight")
    assert sparsifier.active == {"0.weight": 24}
    assert model[0].bias.all() and model[1].weight.all()


@pytest.mark.parametrize("affine", [True, False])
def test_a_norm_over_places_has_nothing_to_do_with_filters(affine: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(5, affine=affine), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5, pattern="filter"), exclude=("3.weight",))
    model(torch.randn(3, 5, 6)).sum().backward()
    optimizer.step()
    assert torch.equal(model[0].bias != 0, sparsifier.masks["0.weight"].any(1))
    assert model[1].running_mean.all() and model[3].weight.all()


def test_other_patterns_have_nothing_besides_their_masks(kit: Kit) -> None:
    model = kit.make("vgg")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
    assert sparsifier.in_use.keys() == sparsifier.masks.keys()
    assert all(sparsifier.in_use[name] is mask for name, mask in sparsifier.masks.items())
