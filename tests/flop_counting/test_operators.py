"""Products that no convolution or linear module makes: functions, attention, recurrence."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from granet.flop_counting import FlopsReport, flops

Kit = SimpleNamespace

FUNCTIONS = {
    "linear": (lambda m, x: F.linear(x, m.a), (7, 5), (2, 3, 5), 2 * 3 * 5 * 7),
    "conv": (lambda m, x: F.conv1d(x, m.a), (6, 4, 3), (2, 4, 9), 2 * 7 * 6 * 4 * 3),
    "matmul": (lambda m, x: x @ m.a, (5, 7), (2, 3, 5), 2 * 3 * 5 * 7),
    "weight first": (lambda m, x: m.a @ x, (7, 5), (5, 4), 7 * 5 * 4),
    "vector": (lambda m, x: m.a @ x, (7, 5), (5,), 7 * 5),
    "batched": (lambda m, x: torch.bmm(x, m.a), (3, 5, 7), (3, 4, 5), 3 * 4 * 5 * 7),
    "expanded": (lambda m, x: torch.bmm(x, m.a.expand(3, 5, 7)), (5, 7), (3, 4, 5), 3 * 4 * 5 * 7),
    "expanded and copied": (lambda m, x: x @ m.a.expand(3, 5, 7).clone(), (5, 7), (3, 4, 5), 3 * 4 * 5 * 7),
    "einsum": (lambda m, x: torch.einsum("bnd,hde->bhne", x, m.a), (2, 5, 7), (3, 4, 5), 3 * 4 * 2 * 5 * 7),
    "addmm": (lambda m, x: torch.addmm(x[:, :1], x, m.a), (5, 7), (4, 5), 4 * 5 * 7),
    "baddbmm": (lambda m, x: torch.baddbmm(x[:, :, :1], x, m.a), (3, 5, 7), (3, 4, 5), 3 * 4 * 5 * 7),
    "tensordot": (lambda m, x: torch.tensordot(x, m.a, dims=([1], [0])), (5, 7), (4, 5, 2), 4 * 2 * 5 * 7),
    "reordered": (lambda m, x: F.linear(x, m.a.T.contiguous()), (5, 7), (4, 5), 4 * 5 * 7),
    "scaled": (lambda m, x: F.linear(x, m.a * 2 + 1), (7, 5), (4, 5), 4 * 5 * 7),
    "cast": (lambda m, x: F.linear(x.double(), m.a.double()), (7, 5), (4, 5), 4 * 5 * 7),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_functions_with_parameters(kit: Kit, name: str, device: str) -> None:
    function, shape, given, macs = FUNCTIONS[name]
    model, mask = kit.Apply(function, torch.ones(shape)), kit.half(*shape)
    report = flops(model.to(device), torch.zeros(given, device=device), masks={"a": mask})
    assert (report.dense, len(report.rows), report.unknown) == (2 * macs, 1, ())
    row = report.rows[0]
    assert (row.name, row.parameter, row.shape, row.weights, row.active) == (
        "a",
        "a",
        shape,
        mask.numel(),
        int(mask.sum()),
    )
    assert row.sparse * mask.numel() == row.dense * int(mask.sum())


def test_a_part_of_a_weight_counts_its_own_part_of_the_mask(kit: Kit) -> None:
    mask = torch.zeros(6, 4, dtype=torch.bool)
    mask[0], mask[2, 0], mask[3:] = True, True, True  # 4, 0, 1 and 12 in rows 0, 1, 2 and 3 to 5
    model = kit.Apply(lambda m, x: F.linear(x, m.a[:3]), torch.ones(6, 4))
    assert flops(model, torch.zeros(5, 4), masks={"a": mask}).sparse == 2 * 5 * 5
    model = kit.Apply(lambda m, x: F.linear(x, (m.a * 2)[1:3]), torch.ones(6, 4))
    assert flops(model, torch.zeros(5, 4), masks={"a": mask}).sparse == 2 * 5 * 1
    model = kit.Apply(lambda m, x: F.linear(x[:, :3], m.a.T.contiguous()[:, :3]), torch.ones(6, 4))
    assert flops(model, torch.zeros(5, 4), masks={"a": mask}).sparse == 2 * 5 * 5


def test_a_mask_in_another_memory_layout(kit: Kit) -> None:
    weight = torch.ones(4, 3, 2, 2).to(memory_format=torch.channels_last)
    mask = torch.zeros(4, 3, 2, 2, dtype=torch.bool)
    mask[:, 0] = True
    model = kit.Apply(lambda m, x: F.conv2d(x[:, :1], m.a[:, :1]), weight)
    assert flops(model, torch.zeros(1, 3, 2, 2), masks={"a": mask}).sparse == 2 * 16


def test_one_weight_both_ways(kit: Kit) -> None:
    """A tied autoencoder."""
    model = kit.Apply(lambda m, x: F.linear(F.linear(x, m.a), m.a.T), torch.ones(3, 4))
    (row,) = flops(model, torch.zeros(5, 4), masks={"a": kit.half(3, 4)}).rows
    assert (row.weights, row.active, row.dense, row.sparse) == (12, 6, 2 * 5 * 24, 2 * 5 * 12)


def test_weights_put_together_count_by_their_values(kit: Kit) -> None:
    a, b = torch.ones(3, 4), torch.ones(2, 4)
    a[0] = 0
    model = kit.Apply(lambda m, x: F.linear(x, torch.cat([m.a, m.b])), a, b)
    for masks in (None, {"a": a != 0}):
        (row,) = flops(model, torch.zeros(5, 4), masks=masks).rows
        assert (row.weights, row.active, row.dense, row.sparse) == (20, 16, 200, 160)


def test_put_together_weights_and_activations_are_rows_apart(kit: Kit) -> None:
    model = kit.Apply(
        lambda m, x: F.linear(x, torch.cat([m.a, m.b])) @ x.mT.new_ones(5, 3) @ x, torch.ones(3, 4), torch.ones(2, 4)
    )
    rows = flops(model, torch.ones(6, 3, 4)).rows
    assert [(row.weights, row.dense) for row in rows] == [(20, 2 * 18 * 20), (0, 2 * 6 * (3 * 5 * 3 + 3 * 3 * 4))]


def test_put_together_weights_of_different_sizes_are_rows_apart(kit: Kit) -> None:
    a, b = torch.ones(3, 4), torch.zeros(2, 4)
    model = kit.Apply(
        lambda m, x: F.linear(x, torch.cat([m.a, m.b])) + F.linear(x, torch.cat([m.b, m.b, m.a]))[:, 2:], a, b
    )
    rows = flops(model, torch.ones(6, 4)).rows
    assert [(row.weights, row.active, row.dense, row.sparse) for row in rows] == [
        (20, 12, 240, 144),
        (28, 12, 336, 144),
    ]
    both_ways = kit.Apply(lambda m, x: F.linear(x, w := torch.cat([m.a, m.b])) @ w, a, b)
    (row,) = flops(both_ways, torch.ones(6, 4)).rows
    assert (row.weights, row.active, row.dense, row.sparse) == (20, 12, 480, 288)


def test_products_of_activations_have_no_weight(kit: Kit) -> None:
    model = kit.Apply(lambda m, x: (x * m.a) @ (x * m.a).mT, torch.zeros(1, 1, 4))
    (row,) = flops(model, torch.zeros(2, 3, 4)).rows
    assert (row.name, row.weights, row.parameter, row.dense, row.sparse) == ("", 0, None, 144, 144)


def test_a_learned_input_is_not_the_weight(kit: Kit) -> None:
    """Both operands are parameters, and the query is all zeros."""
    model = kit.Apply(lambda m, x: x + F.linear(m.b.expand(2, -1, -1), m.a).sum(), torch.ones(5, 4), torch.zeros(3, 4))
    (row,) = flops(model, torch.zeros(2)).rows
    assert (row.parameter, row.dense, row.sparse) == ("a", 2 * 2 * 3 * 20, 2 * 2 * 3 * 20)


def test_a_buffer_is_not_the_weight_where_a_parameter_is_multiplied() -> None:
    """The norm of the matrix is its product with two buffers: u W v."""
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5, bias=False)).requires_grad_(False)
    name = "parametrizations.weight.original"
    mask = torch.zeros(5, 4, dtype=torch.bool)
    mask[:, 0] = True
    model.get_parameter(name).mul_(mask)
    x = torch.ones(3, 4)
    reports = flops(model, x), flops(model, x, masks={name: mask}), flops(model, x, masks={}).with_active({name: 5})
    assert [report.sparse for report in reports] == [2 * (5 + 3 * 5 + 5)] * 3


def write_all(to: Tensor, x: Tensor) -> None:
    torch._foreach_copy_([to], [x])  # returns nothing


@pytest.mark.parametrize("write", [Tensor.copy_, write_all])
@pytest.mark.filterwarnings("ignore:granet. flops counts these operators as zero")
def test_a_buffer_that_the_input_was_written_to_is_no_weight(write: Callable[[Tensor, Tensor], object]) -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = nn.Buffer(torch.zeros(3, 4))

        def forward(self, x: Tensor) -> Tensor:
            write(self.seen[:2], x)
            return x @ self.seen.T

    (row,) = flops(Cache(), torch.ones(2, 4)).rows
    assert (row.weights, row.sparse) == (0, 2 * 2 * 3 * 4)


ATTENTION = 2 * (2 * 2) * (5 * 5) * (4 + 4)  # batch 2, heads 2, 5 queries and keys of width 4


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_scaled_dot_product_attention(kit: Kit, device: str) -> None:
    model = kit.Apply(lambda m, x: F.scaled_dot_product_attention(x, x, x) + m.a, torch.zeros(1))
    x = torch.zeros(2, 2, 5, 4, device=device)
    report = flops(model.to(device), x)
    assert (report.dense, report.sparse, report.unknown) == (ATTENTION, ATTENTION, ())
    assert report.fixed_by_kind["softmax"] == 5 * (2 * 2 * 5 * 5)


FUSED = torch.ops.aten._scaled_dot_product_efficient_attention


@pytest.mark.parametrize(
    ("attend", "device"),
    [
        (F.scaled_dot_product_attention, "cpu"),
        (F.scaled_dot_product_attention, "meta"),
        (lambda q, k, v: FUSED(q, k, v, None, False)[0], "meta"),
    ],
)
def test_attention_to_other_keys_with_values_of_another_width(
    kit: Kit, attend: Callable[[Tensor, Tensor, Tensor], Tensor], device: str
) -> None:
    """5 queries and 3 keys of width 4, values of width 6: Q K^T and the sums of values."""
    model = kit.Apply(lambda m, x: attend(x[..., :4], x[..., :3, :4], x[..., :3, :]), torch.zeros(1)).to(device)
    report = flops(model, torch.zeros(2, 2, 5, 6, device=device))
    assert report.dense == 2 * (2 * 2) * (5 * 3) * (4 + 6)
    assert report.fixed_by_kind["softmax"] == 5 * (2 * 2) * (5 * 3)


def attention(device: str, need_weights: bool, cross: bool) -> FlopsReport:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            other = x + 1 if cross else x
            out: Tensor = self.attend(x, other, x + 2 if cross else x, need_weights=need_weights)[0]
            return out

    mask = torch.zeros(24, 8, dtype=torch.bool)
    mask[:8], mask[8] = True, True  # all of the queries' projection, an eighth of the keys', none of the values'
    x = torch.zeros(2, 5, 8, device=device)
    return flops(Net().to(device), x, masks={"attend.in_proj_weight": mask})


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("cross", [True, False])
def test_multihead_attention(device: str, need_weights: bool, cross: bool) -> None:
    rows = {row.name: row for row in attention(device, need_weights, cross).rows}
    assert {name: (row.dense, row.sparse) for name, row in rows.items()} == {
        "attend.in_proj_weight": (2 * 10 * 192, 2 * 10 * 72),
        "attend": (ATTENTION, ATTENTION),
        "attend.out_proj": (2 * 10 * 64, 2 * 10 * 64),
    }


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_transformer_layer(device: str) -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, device=device)
    report = flops(model, torch.zeros(2, 5, 8, device=device))
    assert report.dense == ATTENTION + 2 * 10 * (192 + 64 + 2 * 8 * 16)
    assert report.unknown == ()


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("kind", "gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
def test_recurrent_layers(kit: Kit, kind: type[nn.RNNBase], gates: int, device: str) -> None:
    model = kind(8, 6, num_layers=2, bidirectional=True, batch_first=True, device=device)
    x = torch.zeros(3, 5, 8, device=device)
    mask = kit.half(gates * 6, 6)
    report = flops(model, x, masks={"weight_hh_l0": mask})
    weights = 2 * gates * 6 * (8 + 6) + 2 * gates * 6 * (12 + 6)
    assert report.dense == 2 * 15 * weights
    assert report.sparse == report.dense - 2 * 15 * mask.numel() // 2
    assert {row.name for row in report.rows} == {name for name, p in model.named_parameters() if p.ndim == 2}


def test_packed_sequences_are_one_input_of_as_many_steps_as_they_have() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.zeros(5, 8), torch.zeros(3, 8)])
    assert flops(nn.LSTM(8, 6), packed).dense == 2 * (5 + 3) * 4 * 6 * (8 + 6)


def test_bilinear(kit: Kit) -> None:
    model, mask = nn.Bilinear(3, 4, 5), kit.half(5, 3, 4)
    report = flops(model, (torch.zeros(2, 3), torch.zeros(2, 4)), masks={"weight": mask})
    assert report.dense == 2 * 2 * (5 * 3 * 4 + 5 * 4)  # x W, then its product with y
    assert report.sparse == 2 * 2 * (5 * 3 * 4 // 2 + 5 * 4)


# Operators that other devices run, called by their names: shapes are enough.


@pytest.mark.parametrize(
    "operator",
    [
        lambda q: torch.ops.aten._scaled_dot_product_flash_attention(q, q, q),
        lambda q: torch.ops.aten._scaled_dot_product_efficient_attention(q, q, q, None, False),
        lambda q: torch.ops.aten._scaled_dot_product_cudnn_attention(q, q, q, None, False),
    ],
)
def test_attention_of_other_devices(kit: Kit, operator: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
    model = kit.Apply(lambda m, x: operator(x)[0], torch.zeros(1)).to("meta")
    report = flops(model, torch.zeros(2, 2, 5, 4, device="meta"))
    assert (report.dense, report.unknown) == (ATTENTION, ())


def test_a_linear_layer_fused_with_its_activation(kit: Kit) -> None:
    model = kit.Apply(lambda m, x: torch.ops.aten._addmm_activation(m.b, x, m.a.T), torch.ones(4, 8), torch.ones(4))
    report = flops(model, torch.zeros(3, 8), masks={"a": kit.half(4, 8)})
    assert (report.dense, report.sparse, report.fixed_by_kind["bias"]) == (2 * 3 * 32, 2 * 3 * 16, 3 * 4)


def test_recurrence_of_cudnn(kit: Kit) -> None:
    """A layer of an LSTM, 8 to 6, over 5 steps of 3 sequences; the biases are no products."""
    shapes = {"ih": (24, 8), "hh": (24, 6), "bias_ih": (24,), "bias_hh": (24,)}

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterDict({name: torch.empty(shape) for name, shape in shapes.items()})

        def forward(self, x: Tensor) -> Tensor:
            hidden = x.new_zeros(1, 3, 6)
            weights = [self.weights[name] for name in shapes]
            lstm, layers, batch_first, dropout, train, bidirectional = 2, 1, False, 0.0, False, False
            sizes = (lstm, 6, 0, layers)
            flags = (batch_first, dropout, train, bidirectional, [], None)
            out: Tensor = torch.ops.aten._cudnn_rnn(x, weights, 4, None, hidden, hidden, *sizes, *flags)[0]
            return out

    report = flops(Layer().to("meta"), torch.zeros(5, 3, 8, device="meta"), masks={"weights.hh": kit.half(24, 6)})
    assert [(row.name, row.dense, row.sparse) for row in report.rows] == [
        ("weights.ih", 2 * 15 * 192, 2 * 15 * 192),
        ("weights.hh", 2 * 15 * 144, 2 * 15 * 72),
    ]
