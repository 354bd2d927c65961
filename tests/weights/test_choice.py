"""Which weights are found: by type, by name, once, and under the names of the model as written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from granet.weights import SparseLayer, find_layers
from refusals import refused


def names(model: nn.Module, **options: object) -> list[str]:
    return [layer.name for layer in find_layers(model, **options)]  # type: ignore[arg-type]


def two_blocks() -> nn.Module:
    def block(width: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(width, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1, bias=False))

    return nn.ModuleDict({"stem": block(3), "body": block(8), "fc": nn.Linear(8, 5)})


ALL = ["stem.0.weight", "stem.2.weight", "body.0.weight", "body.2.weight", "fc.weight"]


def test_every_convolution_and_linear_weight_and_nothing_else() -> None:
    layers = find_layers(two_blocks(), seed=3)
    assert [layer.name for layer in layers] == ALL
    assert [layer.index for layer in layers] == list(range(5))
    assert {layer.seed for layer in layers} == {3}


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(3, 4), nn.Conv1d(3, 4, 2), nn.Conv2d(3, 4, 2), nn.Conv3d(3, 4, 2),
        nn.ConvTranspose1d(3, 4, 2), nn.ConvTranspose2d(3, 4, 2), nn.ConvTranspose3d(3, 4, 2),
        nn.Conv2d(4, 8, 3, groups=2), nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 4, 1),
    ],
    ids=lambda module: str(module),
)  # fmt: skip
def test_kinds_of_layers(module: nn.Module) -> None:
    (layer,) = find_layers(module)
    assert layer.name == "weight"
    assert layer.weight is module.weight
    assert layer.numel == module.weight.numel()


@pytest.mark.parametrize(
    "module",
    [nn.Embedding(5, 3), nn.BatchNorm2d(3), nn.LayerNorm([3, 4]), nn.GroupNorm(1, 4), nn.PReLU(4), nn.LSTM(3, 4),
     nn.Bilinear(2, 3, 4), nn.ReLU()],
    ids=lambda module: type(module).__name__,
)  # fmt: skip
def test_what_is_no_convolution_or_linear_layer_is_left_dense(module: nn.Module) -> None:
    with refused("model"):
        find_layers(nn.Sequential(module))


def test_a_subclass_of_a_layer_is_one() -> None:
    assert names(nn.MultiheadAttention(4, 2)) == ["in_proj_weight", "out_proj.weight"]


# Globs.


@pytest.mark.parametrize(
    ("include", "exclude", "found"),
    [
        (("*",), (), ALL),
        (("stem.*",), (), ALL[:2]),
        (("stem.*", "fc.weight"), (), [*ALL[:2], ALL[4]]),
        (("fc.*", "stem.*"), (), [*ALL[:2], ALL[4]]),  # in the order of the model
        (("*",), ("fc.*",), ALL[:4]),
        (("*",), ("stem.0.*", "fc.*"), ALL[1:4]),
        (("*.[02].weight",), ("stem.*",), ALL[2:4]),
        (("?ody.*",), (), ALL[2:4]),
        ("stem.*", "*.0.*", ALL[1:2]),  # one glob may stand alone
    ],
)
def test_globs_choose_by_name(include: tuple[str, ...], exclude: tuple[str, ...], found: list[str]) -> None:
    assert names(two_blocks(), include=include, exclude=exclude) == found


@pytest.mark.parametrize("option", ["include", "exclude"])
@pytest.mark.parametrize("glob", ["head.*", "FC.*", "stem", "stem.1.*", "*.bias", "fc.bias*", ""])
def test_a_glob_that_matches_nothing_is_refused(option: str, glob: str) -> None:
    with refused(option, glob, "stem.0.weight, stem.2.weight"):
        names(two_blocks(), **{option: ("*", glob) if option == "include" else (glob,)})


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_glob_that_is_no_text_is_refused(option: str) -> None:
    with refused(option, 3, "glob"):
        names(two_blocks(), **{option: (3,)})


def test_nothing_left_is_refused() -> None:
    with refused("include=('*',), exclude", ("*",), "stem.0.weight"):
        names(two_blocks(), exclude=("*",))
    with refused("include=(), exclude", ()):
        names(two_blocks(), include=())
    with refused("model", ..., "frozen"):
        names(two_blocks().requires_grad_(False))
    model = two_blocks()
    model["stem"].requires_grad_(False)
    with refused("include=('stem.*',), exclude", (), "frozen"):
        names(model, include=("stem.*",))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_weight_without_elements_is_left_out() -> None:
    assert names(nn.Sequential(nn.Linear(0, 3), nn.Linear(3, 2))) == ["1.weight"]


# Parameters of other modules.


def test_also_adds_any_parameter_by_glob() -> None:
    model = nn.ModuleDict({"words": nn.Embedding(7, 4), "read": nn.LSTM(4, 3), "fc": nn.Linear(4, 7)})
    assert names(model, also="read.weight_*") == ["read.weight_ih_l0", "read.weight_hh_l0", "fc.weight"]
    assert names(model, also=("words.*", "fc.weight")) == ["words.weight", "fc.weight"]
    assert names(model, include=(), also="words.*") == ["words.weight"]
    assert names(model, exclude="*_hh_*", also="read.weight_*") == ["read.weight_ih_l0", "fc.weight"]


def test_include_never_reaches_beyond_the_known_kinds() -> None:
    model = nn.ModuleDict({"words": nn.Embedding(7, 4), "fc": nn.Linear(4, 7)})
    with refused("include", "words.*", "also='words.*'"):
        names(model, include=("words.*",))


@pytest.mark.parametrize(
    ("also", "says"),
    [
        ("head.*", ("also", "head.*")),
        ("body.0", ("also", "body.0", "'body.0.*'?)")),
        ("fc.bias", ("also", "fc.bias", "'fc.bias'")),
        ("*.1.*", ("also", "*.1.*", "'stem.1.weight'")),
        (3, ("also", 3)),
    ],
)
def test_also_that_adds_nothing_is_refused(also: Any, says: tuple) -> None:
    with refused(*says):
        names(two_blocks(), also=also)


def test_what_may_be_left_out_is_whatever_could_be_sparse() -> None:
    model = nn.ModuleDict({"words": nn.Embedding(7, 4), "fc": nn.Linear(4, 7)})
    assert names(model, exclude="words.*") == ["fc.weight"]


@pytest.mark.parametrize("option", ["include", "exclude"])
@pytest.mark.parametrize("name", ["fc", "body.0", "b?dy"])
def test_the_name_of_a_module_is_told_from_that_of_a_parameter(option: str, name: str) -> None:
    with refused(option, name, f"did you mean '{name}.*'"):
        names(two_blocks(), **{option: name})


def test_a_layer_of_complex_numbers_has_to_be_excluded() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2, dtype=torch.complex64))
    with refused("model", ..., "'1.weight'", "exclude='1.weight'"):
        names(model)
    assert names(model, exclude="1.weight") == ["0.weight"]


def test_a_model_without_convolutions_and_linear_layers_says_how_others_are_named() -> None:
    with refused("model", ..., "LSTM", "also="):
        names(nn.LSTM(3, 2))
    assert names(nn.LSTM(3, 2), also="weight_hh_l0") == ["weight_hh_l0"]


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_an_embedding_of_sparse_gradients_is_refused_unless_it_is_tied(kind: Any) -> None:
    model = nn.ModuleDict({"words": kind(7, 4, sparse=True), "head": nn.Linear(4, 7, bias=False)})
    assert names(model) == ["head.weight"]
    with refused("also", "words.*", "'words.weight'"):
        names(model, also="words.*")
    model["head"].weight = model["words"].weight
    assert names(model, also="words.*") == ["words.weight"]


# Tied, frozen and unfinished weights.


def tied(first: nn.Module) -> nn.Module:
    model = nn.ModuleDict({"first": first, "body": nn.Linear(4, 4), "head": nn.Linear(4, 7, bias=False)})
    model["head"].weight = first.weight
    return model


def test_a_tied_weight_counts_once_under_its_first_name() -> None:
    layers = find_layers(tied(nn.Linear(4, 7)))
    assert [layer.name for layer in layers] == ["first.weight", "body.weight"]
    assert [layer.name for layer in layers] == [n for n, p in tied(nn.Linear(4, 7)).named_parameters() if p.ndim > 1]


@pytest.mark.parametrize("glob", ["first.*", "head.*"])
def test_any_name_of_a_tied_weight_matches(glob: str) -> None:
    assert names(tied(nn.Linear(4, 7)), include=(glob,)) == ["first.weight"]
    assert names(tied(nn.Linear(4, 7)), exclude=(glob,)) == ["body.weight"]


@pytest.mark.parametrize("glob", ["first.*", "head.*"])
def test_what_is_tied_to_an_embedding_is_sparse_only_if_it_is_asked_for(glob: str) -> None:
    model = tied(nn.Embedding(7, 4))
    assert names(model) == ["body.weight"]
    assert names(model, also=glob) == ["first.weight", "body.weight"]


def test_a_module_used_twice_counts_once() -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(4, 2))
    assert names(model) == ["0.weight", "3.weight"]
    assert names(model, include=("2.*",)) == ["0.weight"]


def test_a_frozen_weight_is_left_out() -> None:
    model = two_blocks()
    model["stem"].requires_grad_(False)
    assert names(model) == ALL[2:]


def test_a_lazy_layer_must_have_seen_data() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(3))
    with refused("model", ..., "'0.weight'"):
        find_layers(model)
    model(torch.zeros(1, 2, 5, 5))
    assert [tuple(layer.weight.shape) for layer in find_layers(model)] == [(4, 2, 3, 3), (3, 36)]


def test_an_excluded_lazy_layer_may_wait() -> None:
    assert names(nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2)), exclude=("0.*",)) == ["1.weight"]


def test_names_are_those_of_the_model_before_it_was_compiled() -> None:
    model = two_blocks()
    assert names(torch.compile(model)) == ALL
    assert names(torch.compile(model), include=("fc.*",)) == ["fc.weight"]
    model["stem"] = torch.compile(model["stem"])
    assert names(model) == ALL


def test_a_module_whose_own_name_ends_like_the_wrapper_keeps_it() -> None:
    assert names(nn.ModuleDict({"my_orig_mod": nn.Linear(2, 2)})) == ["my_orig_mod.weight"]


def test_a_weight_that_wraps_other_tensors_is_refused() -> None:
    """As those of `fully_shard` do, which need several ranks, and quantised ones."""
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].weight = nn.Parameter(TwoTensor(torch.ones(2, 3), torch.ones(2, 3)))
    with refused("model", ..., "'0.weight'"):
        find_layers(model)


# The view.


def test_a_layer_begins_dense_and_counts_its_mask() -> None:
    layer = SparseLayer.of("fc.weight", nn.Parameter(torch.randn(2, 5)), 0, 0)
    assert layer.mask.dtype == torch.bool
    assert layer.mask.all()
    assert (layer.active, layer.numel, layer.sparsity) == (10, 10, 0.0)
    layer.mask[0, 0] = False
    assert (layer.active, layer.numel, layer.sparsity) == (9, 10, 0.1)


@pytest.mark.parametrize("zeros", range(11))
def test_sparsity_is_zeros_over_all_exactly(zeros: int) -> None:
    """0.1 when one of ten is zero, not 1 - 0.9 = 0.09999999999999998."""
    layer = SparseLayer.of("fc.weight", nn.Parameter(torch.randn(10)), 0, 0)
    layer.mask[:zeros] = False
    assert layer.sparsity == zeros / 10


def test_a_mask_lies_in_memory_as_its_weight() -> None:
    model = nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)
    (layer,) = find_layers(model)
    assert layer.mask.stride() == model.weight.stride()
    assert not layer.mask.requires_grad
