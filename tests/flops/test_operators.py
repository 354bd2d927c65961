"""Products that no convolution or linear module makes: functions, attention, recurrence, changed weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from granet.flops import FlopsReport, flops


class Apply(nn.Module):
    """A function of the input and of parameters `a` and `b`."""

    def __init__(self, function: Callable[[Apply, Tensor], Tensor], a: Tensor, b: Tensor | None = None) -> None:
        super().__init__()
        self.function = function
        self.a = nn.Parameter(a)
        self.b = nn.Parameter(b) if b is not None else None

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def half(*shape: int) -> Tensor:
    """A mask of the first half of the elements, row by row."""
    size = math.prod(shape)
    return (torch.arange(size) < size // 2).view(shape)


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
def test_functions_with_parameters(name: str, device: str) -> None:
    function, shape, given, macs = FUNCTIONS[name]
    model, mask = Apply(function, torch.ones(shape)), half(*shape)
    report = flops(model.to(device), torch.zeros(given, device=device), {"a": mask})
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


def test_a_part_of_a_weight_counts_its_own_part_of_the_mask() -> None:
    mask = torch.zeros(6, 4, dtype=torch.bool)
    mask[0], mask[2, 0], mask[3:] = True, True, True  # 4, 0, 1 and 12 in rows 0, 1, 2 and 3 to 5
    model = Apply(lambda m, x: F.linear(x, m.a[:3]), torch.ones(6, 4))
    assert flops(model, torch.zeros(5, 4), {"a": mask}).sparse == 2 * 5 * 5
    model = Apply(lambda m, x: F.linear(x, (m.a * 2)[1:3]), torch.ones(6, 4))
    assert flops(model, torch.zeros(5, 4), {"a": mask}).sparse == 2 * 5 * 1
    model = Apply(lambda m, x: F.linear(x[:, :3], m.a.T.contiguous()[:, :3]), torch.ones(6, 4))
    assert flops(model, torch.zeros(5, 4), {"a": mask}).sparse == 2 * 5 * 5


def test_a_mask_in_another_memory_layout() -> None:
    weight = torch.ones(4, 3, 2, 2).to(memory_format=torch.channels_last)
    mask = torch.zeros(4, 3, 2, 2, dtype=torch.bool)
    mask[:, 0] = True
    model = Apply(lambda m, x: F.conv2d(x[:, :1], m.a[:, :1]), weight)
    assert flops(model, torch.zeros(1, 3, 2, 2), {"a": mask}).sparse == 2 * 16


def test_one_weight_both_ways() -> None:
    """A tied autoencoder."""
    model = Apply(lambda m, x: F.linear(F.linear(x, m.a), m.a.T), torch.ones(3, 4))
    (row,) = flops(model, torch.zeros(5, 4), {"a": half(3, 4)}).rows
    assert (row.weights, row.active, row.dense, row.sparse) == (12, 6, 2 * 5 * 24, 2 * 5 * 12)


def test_weights_put_together_count_by_their_values() -> None:
    a, b = torch.ones(3, 4), torch.ones(2, 4)
    a[0] = 0
    model = Apply(lambda m, x: F.linear(x, torch.cat([m.a, m.b])), a, b)
    for masks in (None, {"a": a != 0}):
        (row,) = flops(model, torch.zeros(5, 4), masks).rows
        assert (row.weights, row.active, row.dense, row.sparse) == (20, 16, 200, 160)


def test_put_together_weights_and_activations_are_rows_apart() -> None:
    model = Apply(
        lambda m, x: F.linear(x, torch.cat([m.a, m.b])) @ x.mT.new_ones(5, 3) @ x, torch.ones(3, 4), torch.ones(2, 4)
    )
    rows = flops(model, torch.ones(6, 3, 4)).rows
    assert [(row.weights, row.dense) for row in rows] == [(20, 2 * 18 * 20), (0, 2 * 6 * (3 * 5 * 3 + 3 * 3 * 4))]


def test_products_of_activations_have_no_weight() -> None:
    model = Apply(lambda m, x: (x * m.a) @ (x * m.a).mT, torch.zeros(1, 1, 4))
    (row,) = flops(model, torch.zeros(2, 3, 4)).rows
    assert (row.name, row.weights, row.parameter, row.dense, row.sparse) == ("", 0, None, 144, 144)


def test_a_learned_input_is_not_the_weight() -> None:
    """Both operands are parameters, and the query is all zeros."""
    model = Apply(lambda m, x: x + F.linear(m.b.expand(2, -1, -1), m.a).sum(), torch.ones(5, 4), torch.zeros(3, 4))
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
    reports = flops(model, x), flops(model, x, {name: mask}), flops(model, x, {}).with_active({name: 5})
    assert [report.sparse for report in reports] == [2 * (5 + 3 * 5 + 5)] * 3


def test_a_buffer_that_the_input_was_written_to_is_no_weight() -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = nn.Buffer(torch.zeros(3, 4))

        def forward(self, x: Tensor) -> Tensor:
            self.seen[:2] = x
            return x @ self.seen.T

    (row,) = flops(Cache(), torch.ones(2, 4)).rows
    assert (row.weights, row.sparse) == (0, 2 * 2 * 3 * 4)


ATTENTION = 2 * (2 * 2) * (5 * 5) * (4 + 4)  # batch 2, heads 2, 5 queries and keys of width 4


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_scaled_dot_product_attention(device: str) -> None:
    model = Apply(lambda m, x: F.scaled_dot_product_attention(x, x, x) + m.a, torch.zeros(1))
    x = torch.zeros(2, 2, 5, 4, device=device)
    report = flops(model.to(device), x)
    assert (report.dense, report.sparse, report.unknown) == (ATTENTION, ATTENTION, ())
    assert report.fixed_by_kind["softmax"] == 5 * (2 * 2 * 5 * 5)


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
    return flops(Net().to(device), x, {"attend.in_proj_weight": mask})


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
def test_recurrent_layers(kind: type[nn.RNNBase], gates: int, device: str) -> None:
    model = kind(8, 6, num_layers=2, bidirectional=True, batch_first=True, device=device)
    x = torch.zeros(3, 5, 8, device=device)
    mask = half(gates * 6, 6)
    report = flops(model, x, {"weight_hh_l0": mask})
    weights = 2 * gates * 6 * (8 + 6) + 2 * gates * 6 * (12 + 6)
    assert report.dense == 2 * 15 * weights
    assert report.sparse == report.dense - 2 * 15 * mask.numel() // 2
    assert {row.name for row in report.rows} == {name for name, p in model.named_parameters() if p.ndim == 2}


def test_packed_sequences_are_one_input_of_as_many_steps_as_they_have() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.zeros(5, 8), torch.zeros(3, 8)])
    assert flops(nn.LSTM(8, 6), packed).dense == 2 * (5 + 3) * 4 * 6 * (8 + 6)


def test_bilinear() -> None:
    model, mask = nn.Bilinear(3, 4, 5), half(5, 3, 4)
    report = flops(model, (torch.zeros(2, 3), torch.zeros(2, 4)), {"weight": mask})
    assert report.dense == 2 * 2 * (5 * 3 * 4 + 5 * 4)  # x W, then its product with y
    assert report.sparse == 2 * 2 * (5 * 3 * 4 // 2 + 5 * 4)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(8, 4)


def test_parametrized_weight() -> None:
    class Twice(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    model = nn.Sequential(linear())
    parametrize.register_parametrization(model[0], "weight", Twice())
    (row,) = flops(model, torch.zeros(3, 8), {"0.parametrizations.weight.original": half(4, 8)}).rows
    assert (row.name, row.dense, row.sparse) == ("0", 2 * 3 * 32, 2 * 3 * 16)


def test_weight_norm() -> None:
    model = nn.Sequential(parametrizations.weight_norm(linear()))
    report = flops(model, torch.zeros(3, 8), {"0.parametrizations.weight.original1": half(4, 8)})
    assert (report.rows[0].name, report.sparse, report.unknown) == ("0", 2 * 3 * 16, ())


def test_pruned_by_torch() -> None:
    model = nn.Sequential(prune.random_unstructured(linear(), "weight", amount=10))
    (row,) = flops(model, torch.zeros(3, 8)).rows
    assert (row.parameter, row.active, row.sparse) == ("0.weight_orig", 22, 2 * 3 * 22)


def test_autocast_finds_the_weights() -> None:
    model = nn.Sequential(linear(), nn.Linear(4, 2))
    masks = {"0.weight": half(4, 8)}
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.zeros(3, 8))  # autocast may remember its casts
        rows = flops(model, torch.zeros(3, 8), masks).rows
    assert [(row.name, row.sparse) for row in rows] == [("0", 2 * 3 * 16), ("1", 2 * 3 * 8)]


def test_inference_mode_inside() -> None:
    model = Apply(torch.inference_mode()(lambda m, x: F.linear(x, m.a)), torch.ones(4, 8))
    assert flops(model, torch.zeros(3, 8), {"a": half(4, 8)}).sparse == 2 * 3 * 16


def test_a_compiled_part() -> None:
    model = nn.Sequential(torch.compile(linear()), nn.ReLU(), nn.Linear(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = flops(model, torch.zeros(3, 8), {"0.weight": half(4, 8)}).rows
    assert [(row.name, row.parameter, row.sparse) for row in rows] == [("0", "0.weight", 96), ("2", "2.weight", 48)]


def test_modules_inside_a_compiled_part_have_their_names() -> None:
    attention = nn.Sequential(Apply(lambda m, x: x @ x.T, torch.ones(1)), nn.ReLU())
    report = flops(nn.Sequential(torch.compile(attention), nn.Linear(3, 2)), torch.zeros(3, 8))
    assert [row.name for row in report.rows] == ["0.0", "1"]
    assert [fixed.name for fixed in report.fixed] == ["0.1", "1"]


def test_a_name_that_ends_as_that_of_a_compiled_part() -> None:
    model = nn.Module()
    model.my_orig_mod, model.forward = linear(), lambda x: model.my_orig_mod(x)
    (row,) = flops(model, torch.zeros(3, 8), {"my_orig_mod.weight": half(4, 8)}).rows
    assert (row.name, row.parameter, row.sparse) == ("my_orig_mod", "my_orig_mod.weight", 2 * 3 * 16)


def test_traced_model() -> None:
    model = torch.jit.trace(nn.Sequential(linear(), nn.ReLU()), torch.zeros(3, 8))
    assert [(row.name, row.dense) for row in flops(model, torch.zeros(3, 8)).rows] == [("0", 192)]


def test_sparse_layout() -> None:
    weight = torch.eye(8)[:, :4].contiguous().to_sparse_csr()
    model = Apply(lambda m, x: m.weight @ x, torch.ones(1))
    model.weight = weight
    (row,) = flops(model, torch.zeros(4, 3)).rows
    assert (row.weights, row.active, row.dense, row.sparse) == (32, 4, 2 * 32 * 3, 2 * 4 * 3)


def test_complex_numbers_cost_four_times() -> None:
    model = Apply(lambda m, x: x @ m.a, torch.ones(3, 4, dtype=torch.complex64))
    assert flops(model, torch.zeros(2, 3, dtype=torch.complex64)).dense == 4 * 2 * 24


@pytest.mark.parametrize("masked", [True, False])
def test_a_complex_convolution_is_three_real_ones_and_counts_by_its_values(masked: bool) -> None:
    mask = half(6, 4, 3)
    masks, x = {"a": mask} if masked else None, torch.zeros(2, 4, 9, dtype=torch.complex64)
    for weight, share in ((torch.ones(6, 4, 3), 1), (mask.float(), 2)):
        report = flops(Apply(lambda m, x: F.conv1d(x, m.a), weight * (1 + 1j)), x, masks)
        assert (report.dense, report.sparse) == (3 * 2 * 14 * 72, 3 * 2 * 14 * 72 // share)


def test_weights_gathered_by_data_are_data() -> None:
    """The experts that a router chooses, and the rows of an embedding, are the same operator on a parameter."""
    experts, rows = torch.zeros(3, 4, 5), torch.zeros(2, 4)
    model = Apply(lambda m, x: torch.bmm(x[:, None], m.a[x.argmax(1) % 3]), experts)
    (row,) = flops(model, rows, {"a": half(3, 4, 5)}).rows
    assert (row.parameter, row.dense, row.sparse) == (None, 2 * 2 * 20, 2 * 2 * 20)
    model = Apply(lambda m, x: m.a @ m.b[x.argmax(1)].T, torch.ones(5, 4), torch.ones(7, 4))
    (row,) = flops(model, rows).rows
    assert (row.parameter, row.dense) == ("a", 2 * 2 * 20)


# What the counter does not know.


def test_unknown_arithmetic_is_named_once_and_warned_of_in_one_line() -> None:
    model = Apply(lambda m, x: F.linear(torch.fft.fft(torch.fft.fft(x + 0j)).real, m.a), torch.ones(4, 8))
    with pytest.warns(UserWarning, match=r"^granet: flops counts these operators as zero: aten::_fft_c2c$") as said:
        report = flops(model, torch.zeros(3, 8))
    assert len(said) == 1
    assert report.unknown == ("aten::_fft_c2c",)
    assert report.dense == 2 * 3 * 32


def test_nothing_but_unknown_arithmetic() -> None:
    with pytest.raises(ValueError, match=r"products to count \(operators without a formula: aten::_fft_c2c\)"):
        flops(Apply(lambda m, x: torch.fft.fft(x + 0j), torch.ones(1)), torch.zeros(3, 8))


def test_a_custom_operator_is_unknown() -> None:
    @torch.library.custom_op("granet_tests::mystery", mutates_args=())
    def mystery(x: Tensor) -> Tensor:
        return x.sin()

    with pytest.warns(UserWarning, match="granet_tests::mystery"):
        report = flops(Apply(lambda m, x: F.linear(mystery(x), m.a), torch.ones(4, 8)), torch.zeros(3, 8))
    assert report.unknown == ("granet_tests::mystery",)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(-1, 4).T.reshape(2, 3, 4).permute(0, 2, 1).flatten(1).unsqueeze(0).squeeze().expand(2, 12),
        lambda x: torch.cat([x, x[:, 1:].flip(0).roll(1)], 1).repeat(2, 1, 1)[torch.tensor([0, 1])],
        lambda x: F.pad(x, (1, 1)).masked_fill(x.new_zeros(()) > 0, 1).tril().clone().contiguous().to(torch.float64),
        lambda x: F.interpolate(x, scale_factor=2).split(2, 1)[0].gather(2, torch.zeros(2, 2, 1, dtype=torch.long)),
        lambda x: x.sort(1).values.topk(2).values.max(1).values + x.argmax() + torch.rand(1).bernoulli_().item(),
        lambda x: F.dropout(F.embedding(torch.zeros(2, 3, dtype=torch.long), x[0]), training=False).unbind()[0],
        lambda x: F.unfold(x[None], 1) if x.any() else x,
        lambda x: torch.where(x > 0, x, 2 * x).clamp(0, 1).exp().sum(1).cumsum(0).norm() + x.var() + x.std(0).mean(),
    ],
)
def test_shape_and_elementwise_operators_are_known(function: Callable[[Tensor], Tensor]) -> None:
    model = Apply(lambda m, x: function(x).sum() + (x @ m.a).sum(), torch.ones(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = flops(model, torch.zeros(2, 3, 4))
    assert (report.dense, report.unknown) == (2 * 6 * 8, ())


# Operators that other devices run, called by their names: shapes are enough.


@pytest.mark.parametrize(
    "operator",
    [
        lambda q: torch.ops.aten._scaled_dot_product_flash_attention(q, q, q),
        lambda q: torch.ops.aten._scaled_dot_product_efficient_attention(q, q, q, None, False),
        lambda q: torch.ops.aten._scaled_dot_product_cudnn_attention(q, q, q, None, False),
    ],
)
def test_attention_of_other_devices(operator: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
    model = Apply(lambda m, x: operator(x)[0], torch.zeros(1)).to("meta")
    report = flops(model, torch.zeros(2, 2, 5, 4, device="meta"))
    assert (report.dense, report.unknown) == (ATTENTION, ())


def test_recurrence_of_cudnn() -> None:
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

    report = flops(Layer().to("meta"), torch.zeros(5, 3, 8, device="meta"), {"weights.hh": half(24, 6)})
    assert [(row.name, row.dense, row.sparse) for row in report.rows] == [
        ("weights.ih", 2 * 15 * 192, 2 * 15 * 192),
        ("weights.hh", 2 * 15 * 144, 2 * 15 * 72),
    ]
