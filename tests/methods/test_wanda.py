"""Wanda: the masks against its formula written out, on all kinds of layers, and the start from a finished model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import granet
from refusals import refused


def batches(*shape: int, count: int = 4, dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, None]]:
    """Inputs whose features differ much in size; there are no targets."""
    generator = torch.Generator().manual_seed(5)
    scale = torch.rand(shape[1:], generator=generator, dtype=torch.float64) * 3
    return [
        ((torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype), None) for _ in range(count)
    ]


def largest_in_each_row(scores: Tensor, keep: int) -> np.ndarray:
    order = np.argsort(-scores.numpy(), axis=1, kind="stable")[:, :keep]
    mask = np.zeros(scores.shape, bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5)).double()


def test_each_output_keeps_its_largest_scores() -> None:
    model, data = mlp(), batches(6, 12)
    weights = [model[0].weight.detach().clone(), model[2].weight.detach().clone()]
    inputs = torch.cat([x for x, _ in data])
    seen = [inputs, model[:2](inputs).detach()]
    masks = granet.prune(model, granet.Wanda(sparsity=0.75), batches=data)
    for name, layer, weight, x, keep in zip(masks, (model[0], model[2]), weights, seen, (3, 2), strict=True):
        scores = weight.abs() * torch.linalg.vector_norm(x, dim=0)
        expected = largest_in_each_row(scores, keep)
        assert np.array_equal(masks[name].numpy(), expected)
        assert not np.array_equal(expected, largest_in_each_row(weight.abs(), keep))
        assert torch.equal(layer.weight, weight * torch.from_numpy(expected))


def test_two_of_four() -> None:
    model, data = mlp(), batches(6, 12)
    scores = model[0].weight.detach().abs() * torch.linalg.vector_norm(torch.cat([x for x, _ in data]), dim=0)
    masks = granet.prune(model, granet.Wanda(sparsity=0.5, pattern="2:4"), batches=data)
    expected = largest_in_each_row(scores.reshape(-1, 4), 2).reshape(8, 12)
    assert np.array_equal(masks["0.weight"].numpy(), expected)


def test_single_weights_are_compared_within_a_layer() -> None:
    model, data = mlp(), batches(6, 12)
    scores = model[0].weight.detach().abs() * torch.linalg.vector_norm(torch.cat([x for x, _ in data]), dim=0)
    masks = granet.prune(model, granet.Wanda(sparsity=0.75, pattern="weight"), batches=data)
    assert np.array_equal(masks["0.weight"].numpy(), largest_in_each_row(scores.reshape(1, -1), 24).reshape(8, 12))
    assert int(masks["2.weight"].sum()) == 10


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False),
        nn.Conv2d(4, 6, (3, 2), padding="same", dilation=2, padding_mode="reflect"),
        nn.Conv2d(4, 6, 3, groups=2),
    ],
    ids=["stride", "same", "groups"],
)
def test_a_convolution_by_what_its_kernel_is_laid_upon(layer: nn.Conv2d) -> None:
    """The inputs by unfolding: one column for each input channel and place of the kernel."""
    layer, data = layer.double(), batches(3, 4, 7, 8)
    x = torch.cat([one for one, _ in data])
    if layer.padding_mode != "zeros" or layer.padding == "same":
        x = functional.pad(x, layer._reversed_padding_repeated_twice, "reflect")
        padding: Any = 0
    else:
        padding = layer.padding
    columns = functional.unfold(x, layer.kernel_size, layer.dilation, padding, layer.stride)
    norms = columns.square().sum((0, 2)).sqrt().reshape(layer.groups, -1)
    norms = norms.repeat_interleave(6 // layer.groups, 0).reshape(layer.weight.shape)
    scores = (layer.weight.detach().abs() * norms).flatten(1)
    masks = granet.prune(layer, granet.Wanda(sparsity=0.75), batches=data)
    keep = scores.shape[1] // 4
    assert int(masks["weight"].sum()) == 6 * keep
    assert np.array_equal(masks["weight"].flatten(1).numpy(), largest_in_each_row(scores, keep))


def test_a_transposed_convolution() -> None:
    """Of stride as wide as its kernel, so that each input meets each weight of its channel once."""
    torch.manual_seed(0)
    layer, data = nn.ConvTranspose2d(4, 3, 2, stride=2).double(), batches(3, 4, 5, 5)
    norms = torch.cat([x for x, _ in data]).square().sum((0, 2, 3)).sqrt().view(4, 1, 1, 1)
    scores = (layer.weight.detach().abs() * norms).transpose(0, 1).flatten(1)
    masks = granet.prune(layer, granet.Wanda(sparsity=0.75), batches=data)
    assert np.array_equal(masks["weight"].transpose(0, 1).flatten(1).numpy(), largest_in_each_row(scores, 4))


def test_all_calls_of_all_layers_of_a_weight_count() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)
            self.other.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.one(self.other(self.one(input=x)))
            return out

    torch.manual_seed(0)
    model, data = Shared().double(), batches(4, 6, count=1)
    x = data[0][0]
    between = [x, model.one(x), model.other(model.one(x))]
    scores = model.one.weight.detach().abs() * torch.linalg.vector_norm(torch.cat(between).detach(), dim=0)
    masks = granet.prune(model, granet.Wanda(sparsity=0.5, batch_count=1), batches=data)
    assert np.array_equal(masks["one.weight"].numpy(), largest_in_each_row(scores, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_adds_up_in_single(dtype: torch.dtype) -> None:
    """300 squares are 90,000, more than float16 holds."""
    layer = nn.Linear(4, 2, bias=False).to(dtype)
    nn.init.ones_(layer.weight)
    x = torch.tensor([[300.0, 1.0, 200.0, 2.0]]).to(dtype)
    masks = granet.prune(layer, granet.Wanda(sparsity=0.5, batch_count=1), batches=[(x, None)])
    assert masks["weight"].tolist() == [[True, False, True, False]] * 2
    assert layer.weight.dtype == dtype


def test_the_model_is_watched_in_evaluation_mode_and_left_as_it_was() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Dropout(0.9), nn.Linear(8, 4)).double()
    heard: list[Tensor] = []
    model[3].register_forward_hook(lambda module, given, output: heard.append(given[0]))
    data, state = batches(6, 12), torch.random.get_rng_state()
    expected = [model.eval()[:3](x).detach() for x, _ in data]
    model.train()
    granet.prune(model, granet.Wanda(sparsity=0.5), batches=iter(data))
    assert len(heard) == len(data), "a user's hook hears the batches and nothing else"
    assert all(torch.equal(one, other) for one, other in zip(heard, expected, strict=True))
    assert all(module.training for module in model.modules())
    assert not model[0]._forward_hooks
    assert int(model[1].num_batches_tracked) == 0
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_finished_run_may_be_given() -> None:
    """Its weights are scored, on its own activations, and the model takes them over."""
    finished, model, other, data = mlp(), mlp(), mlp(), batches(6, 12)
    nn.init.normal_(finished[0].weight, std=2.0)
    state = {name: value.clone() for name, value in finished.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Wanda(sparsity=0.75), batches=data, trained=state)
    masks = granet.prune(finished, granet.Wanda(sparsity=0.75), batches=data)
    assert all(torch.equal(mask, sparsifier.masks[name]) for name, mask in masks.items())
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in finished.state_dict().items())
    own = granet.prune(other, granet.Wanda(sparsity=0.75), batches=data)
    assert not torch.equal(own["0.weight"], masks["0.weight"])


# Weights whose inputs are not seen.


def test_an_attention_is_pruned_by_magnitude_where_its_inputs_are_not_seen() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).double()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    with pytest.warns(UserWarning, match=r"self_attn\.in_proj_weight and 1 more: wanda does not see") as said:
        masks = granet.prune(model, granet.Wanda(sparsity=0.5), batches=batches(3, 5, 8))
    assert len(said) == 1
    for name in ("self_attn.in_proj_weight", "self_attn.out_proj.weight"):
        assert np.array_equal(masks[name].numpy(), largest_in_each_row(before[name].abs(), 4)), name
    assert {name: int(mask.sum()) for name, mask in masks.items()} == {
        name: mask.numel() // 2 for name, mask in masks.items()
    }
    assert not np.array_equal(masks["linear1.weight"].numpy(), largest_in_each_row(before["linear1.weight"].abs(), 4))


def test_a_layer_that_is_given_nothing_but_zeros() -> None:
    model = nn.Linear(4, 2, bias=False)
    scores = model.weight.detach().abs()
    with pytest.warns(UserWarning, match="weight: wanda does not see"):
        masks = granet.prune(model, granet.Wanda(sparsity=0.5, batch_count=1), batches=[(torch.zeros(3, 4), None)])
    assert np.array_equal(masks["weight"].numpy(), largest_in_each_row(scores, 2))


# Real transformers.


def test_gpt2_whose_weights_lie_the_other_way() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.arange(24).view(2, 12)
    heard: list[Tensor] = []
    layer = model.transformer.h[0].mlp.c_fc
    handle = layer.register_forward_hook(lambda module, given, output: heard.append(given[0].detach()))
    model(ids)
    handle.remove()
    scores = layer.weight.detach().abs().T * heard[0].flatten(0, 1).double().square().sum(0).sqrt()
    method = granet.Wanda(sparsity=0.5, batch_count=1)
    masks = granet.prune(model, method, batches=[({"input_ids": ids}, None)], include=("*.h.*",))
    assert len(masks) == 4
    assert np.array_equal(masks["transformer.h.0.mlp.c_fc.weight"].T.numpy(), largest_in_each_row(scores, 8))
    assert all(int(mask.sum()) * 2 == mask.numel() for mask in masks.values())


def test_bert() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
    )
    model = transformers.BertModel(config)
    ids = torch.arange(24).view(2, 12)
    masks = granet.prune(model, granet.Wanda(sparsity=0.75, batch_count=1), batches=[({"input_ids": ids}, None)])
    weights = dict(model.named_parameters())
    for name, mask in masks.items():
        assert torch.equal(weights[name] != 0, mask)
        assert (mask.sum(1) * 4 == mask.shape[1]).all(), name
    assert len(masks) == 7


# Bad values.


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, ("batches", None, "4")),
        (batches(6, 12, count=3), ("batches", ..., "4", "3")),
        (
            [(torch.full((2, 12), torch.inf, dtype=torch.float64), None)] * 4,
            ("batches", ..., "'0.weight'"),
        ),
    ],
    ids=["none", "too few", "infinite"],
)
def test_batches_that_cannot_be_used_are_refused_and_nothing_has_changed(given: Any, message: tuple) -> None:
    model = mlp()
    with refused(*message, unchanged=(model,)):
        granet.prune(model, granet.Wanda(sparsity=0.5), batches=given)
