"""Which input channels of a layer are known to be silent, in models of many shapes, against what goes in there."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Kit = SimpleNamespace


class Model(nn.Module):
    """Layers and a forward, written in one place."""

    def __init__(self, forward: Callable[[Model, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


IMAGES = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1)) + 0.1


def two(between: Callable[[Model, Tensor], Tensor], after: nn.Module | None = None, **layers: nn.Module) -> Model:
    """A convolution of 4 filters, something, and the layer ``b`` that reads it."""
    layers = {"a": nn.Conv2d(3, 4, 3, padding=1), "b": after or nn.Conv2d(4, 5, 3), **layers}
    return Model(lambda self, x: self.b(between(self, self.a(x))), **layers)


DROPPED = {"a": {1, 3}}
SILENT = {1, 3}

KEPT: dict[str, Callable[[Model, Tensor], Tensor]] = {
    "nothing": lambda self, x: x,
    "relu": lambda self, x: F.relu(x, inplace=True),
    "method": lambda self, x: x.relu(),
    "torch.relu": lambda self, x: torch.relu(x),
    "gelu and silu": lambda self, x: F.silu(F.gelu(x)),
    "elu": lambda self, x: F.elu(x),
    "tanh": lambda self, x: x.tanh(),
    "dropout": lambda self, x: F.dropout(x, 0.5, self.training),
    "max pool": lambda self, x: F.max_pool2d(x, 2, padding=1),
    "average pool": lambda self, x: F.avg_pool2d(x, 2),
    "upsampled": lambda self, x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "scaled": lambda self, x: 2 * x * 0.5,
    "doubled": lambda self, x: x + x,
    "sum": lambda self, x: sum([x, x]),
    "gated": lambda self, x: x.mean((2, 3), keepdim=True).sigmoid() * x,
    "gated in place": lambda self, x: x.mul_(torch.sigmoid(x.clone())),
}


@pytest.mark.parametrize("name", KEPT)
def test_silence_stays(kit: Kit, name: str) -> None:
    known, seen = kit.look(two(KEPT[name]), IMAGES, DROPPED)
    assert known["b"] == seen["b"] == SILENT


@pytest.mark.parametrize(
    "module",
    [nn.ReLU(inplace=True), nn.LeakyReLU(), nn.PReLU(4), nn.ELU(), nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.Tanh(),
     nn.Dropout2d(), nn.Identity(), nn.MaxPool2d(3, padding=1), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(4),
     nn.AdaptiveMaxPool2d(4), nn.Upsample(scale_factor=2), nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.ReLU6())],
    ids=str,
)  # fmt: skip
def test_silence_stays_in_modules(kit: Kit, module: nn.Module) -> None:
    known, seen = kit.look(two(lambda self, x: self.m(x), m=module), IMAGES, DROPPED)
    assert known["b"] == seen["b"] == SILENT


LOST: dict[str, Callable[[Model, Tensor], Tensor]] = {
    "sigmoid": lambda self, x: x.sigmoid(),
    "softplus": lambda self, x: F.softplus(x),
    "a constant": lambda self, x: x + 1,
    "a constant behind": lambda self, x: torch.add(x, other=1),
    "the mean of all": lambda self, x: x + x.mean(dim=()),
    "the input": lambda self, x: x + self.c(x),
    "one channel for all": lambda self, x: x + self.one(x),
    "exp": lambda self, x: torch.exp(x),
    "shuffled": lambda self, x: x.flip(1),
    "halves": lambda self, x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "spread": lambda self, x: x.transpose(1, 2)[:, :4],
    "regrouped": lambda self, x: x.view(-1, 4, 4, 16),
    "normalised": lambda self, x: F.layer_norm(x, x.shape[1:]) + 1,
    "subclass": lambda self, x: self.odd(x),
}


class OddReLU(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


@pytest.mark.parametrize("name", list(LOST))
def test_silence_is_lost(kit: Kit, name: str) -> None:
    model = two(LOST[name], c=nn.Conv2d(4, 4, 1), one=nn.Conv2d(4, 1, 1), odd=OddReLU())
    known, _ = kit.look(model, IMAGES, DROPPED)
    assert not known.get("b")


def test_a_tensor_that_was_written_to_is_not_silent_any_more(kit: Kit) -> None:
    def add_one(self: Model, x: Tensor) -> Tensor:
        x.add_(1)
        return x

    def add_through_a_view(self: Model, x: Tensor) -> Tensor:
        x.view(5, -1).sigmoid_()
        return x

    def augmented(self: Model, x: Tensor) -> Tensor:
        y = F.relu(x, inplace=True)
        y += 1
        return x

    def of_a_name(self: Model, x: Tensor) -> Tensor:
        y = x
        y += self.c(x)
        return x

    for between in (add_one, add_through_a_view, augmented, of_a_name):
        known, seen = kit.look(two(between, c=nn.Conv2d(4, 4, 1)), IMAGES, DROPPED)
        assert not known.get("b")
        assert not seen["b"]


# Into a linear layer.

FLAT: dict[str, Callable[[Model, Tensor], Tensor]] = {
    "flatten": lambda self, x: torch.flatten(x, 1),
    "method": lambda self, x: x.flatten(start_dim=1),
    "module": lambda self, x: self.flatten(x),
    "view": lambda self, x: x.view(x.size(0), -1),
    "reshape": lambda self, x: x.reshape(x.shape[0], 64),
    "torch.reshape": lambda self, x: torch.reshape(x, (x.size()[0], -1)),
    "twice": lambda self, x: x.flatten(1).tanh().flatten(1),
}


@pytest.mark.parametrize("name", list(FLAT))
def test_a_channel_becomes_a_block_of_columns(kit: Kit, name: str) -> None:
    model = two(lambda self, x: FLAT[name](self, F.max_pool2d(x, 2)), nn.Linear(64, 3), flatten=nn.Flatten())
    known, seen = kit.look(model, IMAGES, DROPPED)
    assert known["b"] == seen["b"] == {*range(16, 32), *range(48, 64)}


@pytest.mark.parametrize(
    "pool",
    [lambda x: x.mean((2, 3)), lambda x: x.mean([-1, -2]), lambda x: torch.mean(x, (2, 3)), lambda x: x.amax((2, 3)),
     lambda x: x.sum(3).sum(2), lambda x: x.mean(dim=(2, 3), keepdim=True).flatten(1)],
)  # fmt: skip
def test_a_mean_over_the_image_keeps_the_channels(kit: Kit, pool: Callable[[Tensor], Tensor]) -> None:
    known, seen = kit.look(two(lambda self, x: pool(x), nn.Linear(4, 3)), IMAGES, DROPPED)
    assert known["b"] == seen["b"] == SILENT


@pytest.mark.parametrize(
    ("between", "inputs"),
    [
        (lambda self, x: x, 8),  # rows of images
        (lambda self, x: x.view(-1, 64), 64),  # an image of one channel
        (lambda self, x: x.flatten(2), 64),
        (lambda self, x: x.flatten(0, 1), 8),
        (lambda self, x: x.transpose(1, 2).flatten(1), 256),
        (lambda self, x: x.mean((1, 2)), 8),
        (lambda self, x: x.permute(0, 2, 3, 1), 4),
        (lambda self, x: x.view(4, -1), 320),
        (lambda self, x: x.view(x.size(1), -1), 320),
        (lambda self, x: torch.cat([x.flatten(1), F.avg_pool2d(self.c(x), 4).flatten(1)], 1), 256 + 4 * 6),
    ],
)
def test_other_ways_into_a_linear_layer_are_not_taken_for_known(
    kit: Kit, between: Callable[[Model, Tensor], Tensor], inputs: int
) -> None:
    known, _ = kit.look(two(between, nn.Linear(inputs, 3), c=nn.Conv2d(4, 6, 1)), IMAGES, DROPPED)
    assert not known.get("b")


def test_linear_layers_in_a_row_whatever_the_rank(kit: Kit) -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4, bias=False), nn.GELU(), nn.Linear(4, 2))
    for x in (IMAGES[:, 0, 0], IMAGES):
        known, seen = kit.look(model, x, {"0": {2, 5}, "2": {0}})
        assert (known["2"], known["4"]) == (seen["2"], seen["4"]) == ({2, 5}, {0})
    normed = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    known, seen = kit.look(normed, IMAGES[:, 0, 0], {"0": {2, 5}, "1": {1, 2, 5}})
    assert known["2"] == seen["2"] == {2, 5}
    pooled = Model(lambda self, x: self.b(F.max_pool1d(self.a(x), 3, 1, 1)), a=nn.Linear(8, 6), b=nn.Linear(6, 2))
    assert not kit.look(pooled, IMAGES[:, 0], {"a": {0, 1}})[0].get("b")  # features are pooled with each other there


# Sums and concatenations.


def branches(join: Callable[[Model, Tensor, Tensor], Tensor], after: nn.Module | None = None) -> Model:
    return Model(
        lambda self, x: self.b(torch.tanh(join(self, self.norm(self.a(x)), self.c(x)))),
        a=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4), c=nn.Conv2d(3, 4, 3), b=after or nn.Conv2d(4, 5, 1),
    )  # fmt: skip


def in_place(self: Model, x: Tensor, y: Tensor) -> Tensor:
    x += y
    return x


@pytest.mark.parametrize("add", [lambda self, x, y: x + y, lambda self, x, y: torch.sub(x, y), in_place])
def test_a_sum_is_silent_where_all_terms_are(kit: Kit, add: Callable[[Model, Tensor, Tensor], Tensor]) -> None:
    norm = {"norm": {0, 1, 2}}
    both, seen = kit.look(branches(add), IMAGES, {"a": {0, 1, 2}, "c": {1, 2, 3}, **norm})
    assert both["b"] == seen["b"] == {1, 2}
    one, seen = kit.look(branches(add), IMAGES, {"a": {0, 1, 2}, **norm})
    assert one["b"] == seen["b"] == set()
    loud, seen = kit.look(branches(add), IMAGES, {"a": {0, 1, 2}, "c": {1, 2, 3}})  # the norm adds to what it is given
    assert loud["b"] == seen["b"] == set()


def test_a_product_is_silent_where_a_factor_is(kit: Kit) -> None:
    known, seen = kit.look(branches(lambda self, x, y: x * y), IMAGES, {"a": {0}, "norm": {0}, "c": {3}})
    assert known["b"] == seen["b"] == {0, 3}


def test_a_gate_has_channels_of_its_own(kit: Kit) -> None:
    def gate(self: Model, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x * torch.sigmoid(y), y.sigmoid()], 1)

    known, seen = kit.look(branches(gate, nn.Conv2d(8, 5, 1)), IMAGES, {"a": {0, 2}, "norm": {0, 2}, "c": {3}})
    assert known["b"] == seen["b"] == {0, 2}


@pytest.mark.parametrize("dim", [1, -3])
def test_concatenated_channels(kit: Kit, dim: int) -> None:
    model = branches(lambda self, x, y: torch.cat([x, y, x], dim=dim), nn.Conv2d(12, 5, 1))
    known, seen = kit.look(model, IMAGES, {"a": {0}, "norm": {0}, "c": {3}})
    assert known["b"] == seen["b"] == {0, 7, 8}


def test_other_concatenations_are_not_taken_for_known(kit: Kit) -> None:
    for join, after in (
        (lambda self, x, y: torch.cat([x, y], 2), nn.Conv2d(4, 5, 1)),
        (lambda self, x, y: torch.cat([x, y.exp()], 1), nn.Conv2d(8, 5, 1)),
        (lambda self, x, y: torch.cat([x, y]), nn.Conv2d(4, 5, 1)),
    ):
        known, _ = kit.look(branches(join, after), IMAGES, {"a": {0}, "norm": {0}, "c": {0}})
        assert not known.get("b")


# Groups.


def test_a_depthwise_filter_without_a_bias_passes_silence_on(kit: Kit) -> None:
    for bias in (False, True):
        model = two(lambda self, x: self.deep(x), deep=nn.Conv2d(4, 4, 3, groups=4, bias=bias))
        known, seen = kit.look(model, IMAGES, DROPPED)
        assert known["deep"] == seen["deep"] == SILENT
        assert known["b"] == seen["b"] == (set() if bias else SILENT)
        known, seen = kit.look(model, IMAGES, {"a": {1}, "deep": {2}})
        assert known["b"] == seen["b"] == ({2} if bias else {1, 2})


def test_a_group_is_silent_if_all_its_channels_are(kit: Kit) -> None:
    model = two(lambda self, x: self.deep(x), nn.Conv2d(6, 2, 1), deep=nn.Conv2d(4, 6, 3, groups=2, bias=False))
    known, seen = kit.look(model, IMAGES, {"a": {1, 3}})
    assert known["b"] == seen["b"] == set()
    known, seen = kit.look(model, IMAGES, {"a": {1, 2, 3}})
    assert known["b"] == seen["b"] == {3, 4, 5}


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Conv1d(3, 4, 3), nn.Conv1d(4, 2, 1)),
        (nn.ConvTranspose1d(3, 4, 3), nn.Conv1d(4, 2, 1)),
        (nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 2, 1)),
        (nn.Conv3d(3, 4, 2), nn.Conv3d(4, 2, 1)),
    ],
)
def test_other_convolutions(kit: Kit, layers: tuple[nn.Module, nn.Module]) -> None:
    first, second = layers
    dimensions = len(first.kernel_size)
    model = Model(lambda self, x: self.b(self.a(x).tanh()), a=first, b=second)
    known, seen = kit.look(model, torch.rand(2, 3, *[5] * dimensions), DROPPED)
    assert known["b"] == seen["b"] == SILENT


def test_a_layer_that_is_called_twice_reads_what_both_calls_read(kit: Kit) -> None:
    model = Model(
        lambda self, x: self.b(self.a(x)) + self.b(self.c(x)),
        a=nn.Conv2d(3, 4, 1), c=nn.Conv2d(3, 4, 1), b=nn.Conv2d(4, 2, 1),
    )  # fmt: skip
    known, seen = kit.look(model, IMAGES, {"a": {0, 1}, "c": {1, 2}})
    assert known["b"] == seen["b"] == {1}
    model._forward = lambda self, x: self.b(self.a(x)) + self.b(self.c(x).exp())
    assert "b" not in kit.look(model, IMAGES, {"a": {0, 1}, "c": {1, 2}})[0]
