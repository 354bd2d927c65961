"""Weights that something changes on their way into a product, and models in another form."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from granet.flop_counting import flops

Kit = SimpleNamespace


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(8, 4)


def test_parametrized_weight(kit: Kit) -> None:
    class Twice(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    model = nn.Sequential(linear())
    parametrize.register_parametrization(model[0], "weight", Twice())
    (row,) = flops(model, torch.zeros(3, 8), masks={"0.parametrizations.weight.original": kit.half(4, 8)}).rows
    assert (row.name, row.dense, row.sparse) == ("0", 2 * 3 * 32, 2 * 3 * 16)


def test_weight_norm(kit: Kit) -> None:
    model = nn.Sequential(parametrizations.weight_norm(linear()))
    report = flops(model, torch.zeros(3, 8), masks={"0.parametrizations.weight.original1": kit.half(4, 8)})
    assert (report.rows[0].name, report.sparse, report.unknown) == ("0", 2 * 3 * 16, ())


def test_pruned_by_torch() -> None:
    model = nn.Sequential(prune.random_unstructured(linear(), "weight", amount=10))
    (row,) = flops(model, torch.zeros(3, 8)).rows
    assert (row.parameter, row.active, row.sparse) == ("0.weight_orig", 22, 2 * 3 * 22)


def test_autocast_finds_the_weights(kit: Kit) -> None:
    model = nn.Sequential(linear(), nn.Linear(4, 2))
    masks = {"0.weight": kit.half(4, 8)}
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.zeros(3, 8))  # autocast may remember its casts
        rows = flops(model, torch.zeros(3, 8), masks=masks).rows
    assert [(row.name, row.sparse) for row in rows] == [("0", 2 * 3 * 16), ("1", 2 * 3 * 8)]


def test_inference_mode_inside(kit: Kit) -> None:
    model = kit.Apply(torch.inference_mode()(lambda m, x: F.linear(x, m.a)), torch.ones(4, 8))
    assert flops(model, torch.zeros(3, 8), masks={"a": kit.half(4, 8)}).sparse == 2 * 3 * 16


def test_a_compiled_part(kit: Kit) -> None:
    model = nn.Sequential(torch.compile(linear()), nn.ReLU(), nn.Linear(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = flops(model, torch.zeros(3, 8), masks={"0.weight": kit.half(4, 8)}).rows
    assert [(row.name, row.parameter, row.sparse) for row in rows] == [("0", "0.weight", 96), ("2", "2.weight", 48)]


def test_modules_inside_a_compiled_part_have_their_names(kit: Kit) -> None:
    attention = nn.Sequential(kit.Apply(lambda m, x: x @ x.T, torch.ones(1)), nn.ReLU())
    report = flops(nn.Sequential(torch.compile(attention), nn.Linear(3, 2)), torch.zeros(3, 8))
    assert [row.name for row in report.rows] == ["0.0", "1"]
    assert [fixed.name for fixed in report.fixed] == ["0.1", "1"]


def test_a_name_that_ends_as_that_of_a_compiled_part(kit: Kit) -> None:
    model = nn.Module()
    model.my_orig_mod, model.forward = linear(), lambda x: model.my_orig_mod(x)
    (row,) = flops(model, torch.zeros(3, 8), masks={"my_orig_mod.weight": kit.half(4, 8)}).rows
    assert (row.name, row.parameter, row.sparse) == ("my_orig_mod", "my_orig_mod.weight", 2 * 3 * 16)


@pytest.mark.filterwarnings("ignore:.torch.jit.trace.* is deprecated")
def test_traced_model() -> None:
    model = torch.jit.trace(nn.Sequential(linear(), nn.ReLU()), torch.zeros(3, 8))
    assert [(row.name, row.dense) for row in flops(model, torch.zeros(3, 8)).rows] == [("0", 192)]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_layout(kit: Kit) -> None:
    weight = torch.eye(8)[:, :4].contiguous().to_sparse_csr()
    model = kit.Apply(lambda m, x: m.weight @ x, torch.ones(1))
    model.weight = weight
    (row,) = flops(model, torch.zeros(4, 3)).rows
    assert (row.weights, row.active, row.dense, row.sparse) == (32, 4, 2 * 32 * 3, 2 * 4 * 3)


def test_complex_numbers_cost_four_times(kit: Kit) -> None:
    model = kit.Apply(lambda m, x: x @ m.a, torch.ones(3, 4, dtype=torch.complex64))
    assert flops(model, torch.zeros(2, 3, dtype=torch.complex64)).dense == 4 * 2 * 24


def test_real_weights_read_as_complex_ones_have_no_part_of_the_mask(kit: Kit) -> None:
    model = kit.Apply(lambda m, x: x @ torch.view_as_complex(m.a), torch.ones(3, 4, 2))
    report = flops(model, torch.zeros(2, 3, dtype=torch.complex64), masks={"a": ~kit.half(3, 4, 2)})
    assert report.sparse == report.dense == 4 * 2 * 24


@pytest.mark.parametrize("masked", [True, False])
def test_a_complex_convolution_is_three_real_ones_and_counts_by_its_values(kit: Kit, masked: bool) -> None:
    mask = kit.half(6, 4, 3)
    masks, x = {"a": mask} if masked else None, torch.zeros(2, 4, 9, dtype=torch.complex64)
    for weight, share in ((torch.ones(6, 4, 3), 1), (mask.float(), 2)):
        report = flops(kit.Apply(lambda m, x: F.conv1d(x, m.a), weight * (1 + 1j)), x, masks=masks)
        assert (report.dense, report.sparse) == (3 * 2 * 14 * 72, 3 * 2 * 14 * 72 // share)


def test_weights_gathered_by_data_are_data(kit: Kit) -> None:
    """The experts that a router chooses, and the rows of an embedding, are the same operator on a parameter."""
    experts, rows = torch.zeros(3, 4, 5), torch.zeros(2, 4)
    model = kit.Apply(lambda m, x: torch.bmm(x[:, None], m.a[x.argmax(1) % 3]), experts)
    (row,) = flops(model, rows, masks={"a": kit.half(3, 4, 5)}).rows
    assert (row.parameter, row.dense, row.sparse) == (None, 2 * 2 * 20, 2 * 2 * 20)
    model = kit.Apply(lambda m, x: m.a @ m.b[x.argmax(1)].T, torch.ones(5, 4), torch.ones(7, 4))
    (row,) = flops(model, rows).rows
    assert (row.parameter, row.dense) == ("a", 2 * 2 * 20)
