"""Dead filters in networks of awkward shapes: what goes is told by hand, and the outputs stay."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import granet
from quick import slow_but_for
from smaller import Model, compacted, kill, run, shaken, shapes

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
MORE = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def conv(inputs: int, outputs: int, kernel: int = 3, **options: object) -> nn.Conv2d:
    options.setdefault("padding", kernel // 2)
    return nn.Conv2d(inputs, outputs, kernel, **options)  # type: ignore[arg-type]


def silent(model: nn.Module, filters: dict[str, list[int]], *norms: str) -> None:
    """Kill filters, and with them what their bias and the norms behind them add."""
    kill(model, filters)
    (dead,) = {tuple(rows) for rows in filters.values()}
    vectors = [name.replace("weight", "bias") for name in filters]
    names = dict(model.named_parameters()) | dict(model.named_buffers())
    for name in (*vectors, *(f"{norm}.bias" for norm in norms), *(f"{norm}.running_mean" for norm in norms)):
        if name in names:
            names[name].data[list(dead)] = 0


# Chains


def chain(**options: object) -> nn.Sequential:
    return shaken(
        nn.Sequential(conv(3, 8), nn.BatchNorm2d(8, **options), nn.ReLU(), conv(8, 6), nn.ReLU(), conv(6, 4, 1))  # type: ignore[arg-type]
    )


@pytest.mark.slow
def test_a_filter_of_zeros_goes_with_what_reads_it() -> None:
    model = chain()
    silent(model, {"0.weight": [1, 2, 5]}, "1")
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "0.weight", "0.bias", "1.weight", "3.weight") == [(5, 3, 3, 3), (5,), (5,), (6, 5, 3, 3)]
    assert (small[0].out_channels, small[1].num_features, small[3].in_channels) == (5, 5, 5)
    assert len(small[1].running_mean) == len(small[1].running_var) == 5


def test_constants_go_into_one_channel_where_zeros_are_padded() -> None:
    model = chain()
    kill(model, {"0.weight": [1, 2, 5]})
    model[1].bias.data[[1, 2, 5]] = torch.tensor([3.0, 4.0, -20.0])  # the last is silent behind the ReLU
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "0.weight", "3.weight") == [(6, 3, 3, 3), (6, 6, 3, 3)]


def test_constants_go_into_the_bias_where_nothing_is_padded() -> None:
    model = shaken(nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 6, padding=0, bias=False), nn.ReLU(), conv(6, 4, 1)))
    kill(model, {"0.weight": [1, 2, 5]})
    model[0].bias.data[[1, 2]] = 1
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "0.weight", "2.weight", "4.weight") == [(5, 3, 3, 3), (6, 5, 3, 3), (4, 6, 1, 1)]
    assert small[2].bias.shape == (6,)


def test_a_layer_without_inputs_is_a_constant_itself() -> None:
    model = shaken(nn.Sequential(conv(3, 8, 1), nn.ReLU(), conv(8, 6, 1), nn.ReLU(), conv(6, 4, 1)))
    kill(model, {"0.weight": range(8)})  # so is all behind it: a filter of each layer is left
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "0.weight", "2.weight", "4.weight") == [(1, 3, 1, 1), (1, 1, 1, 1), (4, 1, 1, 1)]


def test_what_is_read_by_zeros_alone_goes_too_and_so_on_backwards() -> None:
    model = shaken(nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 6), nn.ReLU(), conv(6, 4)))
    kill(model, {"4.weight": [0, 3]}, dim=1)
    with torch.no_grad():
        model[2].weight[[1, 2, 4, 5], 6] = 0  # so filter 6 of the first is read only by filters that go
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "0.weight", "2.weight", "4.weight") == [(7, 3, 3, 3), (4, 7, 3, 3), (4, 4, 3, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["0.weight", "3.weight", "5.weight"])
def test_a_layer_is_never_emptied(layer: str) -> None:
    model = chain()
    kill(model, {layer: range(len(model.get_parameter(layer)))})
    small = compacted(model, IMAGES, MORE)
    assert all(parameter.numel() for parameter in small.parameters())
    assert len(small.get_parameter(layer)) == (4 if layer == "5.weight" else 1)


@pytest.mark.slow
def test_nothing_is_dead() -> None:
    model = chain()
    small = compacted(model, IMAGES)
    assert small is not model
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in small.state_dict().items())


@pytest.mark.slow
def test_a_norm_without_parameters() -> None:
    model = chain(affine=False)
    kill(model, {"0.weight": [1, 2]})
    model[0].bias.data[[1, 2]] = model[1].running_mean[[1, 2]]  # the norm makes zero of it
    assert shapes(compacted(model, IMAGES, MORE), "0.weight") == [(6, 3, 3, 3)]


@pytest.mark.slow
def test_a_norm_without_statistics_uses_those_of_the_batch_and_stays() -> None:
    model = chain(track_running_stats=False)
    silent(model, {"0.weight": [1, 2]}, "1")
    compacted(model, IMAGES, MORE)


@pytest.mark.slow
def test_a_model_in_training_is_compared_in_eval_mode_and_stays_in_training() -> None:
    model = chain().train()
    model[1].eval()
    silent(model, {"0.weight": [1]}, "1")
    assert shapes(compacted(model, IMAGES), "0.weight") == [(7, 3, 3, 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 0.05)])
def test_other_types(dtype: torch.dtype, tolerance: float) -> None:
    model = chain().to(dtype)
    silent(model, {"0.weight": [1, 2]}, "1")
    small = compacted(model, IMAGES.to(dtype), tolerance=tolerance)
    assert shapes(small, "0.weight") == [(6, 3, 3, 3)]
    assert {parameter.dtype for parameter in small.parameters()} == {dtype}


@pytest.mark.slow
def test_the_layout_in_memory_stays() -> None:
    model = chain().to(memory_format=torch.channels_last)
    silent(model, {"0.weight": [1, 2]}, "1")
    small = compacted(model, IMAGES.to(memory_format=torch.channels_last))
    assert small[3].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.slow
def test_it_can_be_saved_and_needs_no_gradients_that_were_not_asked_for() -> None:
    model = chain()
    model[0].weight.requires_grad = False
    silent(model, {"0.weight": [1]}, "1")
    small = compacted(model, IMAGES)
    assert not small[0].weight.requires_grad and small[3].weight.requires_grad
    file = io.BytesIO()
    torch.save(small, file)
    assert b"granet" not in file.getvalue()
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(run(again, IMAGES)[0], run(small, IMAGES)[0])


# Branches


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.one, self.norm = conv(inputs, outputs, bias=False), nn.BatchNorm2d(outputs)
        self.two, self.last = conv(outputs, outputs, bias=False), nn.BatchNorm2d(outputs)
        self.project = conv(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(self.two(F.relu(self.norm(self.one(x)), inplace=True)))
        y += self.project(x)
        return F.relu(y)


def residual() -> nn.Sequential:
    return shaken(
        nn.Sequential(conv(3, 8), Block(8, 8), Block(8, 12), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))
    )


@pytest.mark.slow
def test_inside_a_block() -> None:
    model = residual()
    silent(model, {"1.one.weight": [0, 1], "2.one.weight": [0, 1]}, "1.norm", "2.norm")
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "1.one.weight", "1.two.weight", "2.one.weight") == [(6, 8, 3, 3), (8, 6, 3, 3), (10, 8, 3, 3)]


@pytest.mark.slow
def test_a_sum_is_dead_where_all_its_terms_are() -> None:
    model = residual()
    silent(model, {"0.weight": [2, 3], "1.two.weight": [2, 3]}, "1.last")
    kill(model, {"2.two.weight": [4], "2.project.weight": [4]})  # a constant into a linear layer
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "0.weight", "1.one.weight", "1.two.weight") == [(6, 3, 3, 3), (8, 6, 3, 3), (6, 8, 3, 3)]
    assert shapes(small, "2.two.weight", "2.project.weight", "5.weight") == [(11, 12, 3, 3), (11, 6, 1, 1), (5, 11)]


def test_one_dead_term_of_a_sum_stays() -> None:
    model = residual()
    silent(model, {"1.two.weight": [2, 3]}, "1.last")
    assert shapes(compacted(model, IMAGES, MORE), "1.two.weight") == [(8, 8, 3, 3)]


def test_concatenation() -> None:
    def dense(self: Model, x: Tensor) -> Tensor:
        a = F.relu(self.a(x))
        b = F.relu(self.b(torch.cat([x, a], 1)))
        return self.c(torch.cat([x, a, b], 1))

    model = shaken(Model(dense, a=conv(3, 4), b=conv(7, 4), c=conv(11, 5)))
    silent(model, {"a.weight": [1], "b.weight": [1]})
    kill(model, {"c.weight": [10]}, dim=1)
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "a.weight", "b.weight", "c.weight") == [(3, 3, 3, 3), (2, 6, 3, 3), (5, 8, 3, 3)]


def test_a_gate_goes_with_what_it_gates() -> None:
    def gated(self: Model, x: Tensor) -> Tensor:
        x = self.a(x)
        gate = torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))
        return self.b(x * gate)

    model = shaken(Model(gated, a=conv(3, 8), down=conv(8, 4, 1), up=conv(4, 8, 1), b=conv(8, 5)))
    silent(model, {"a.weight": [1, 2]})
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "a.weight", "down.weight", "up.weight") == [(6, 3, 3, 3), (4, 6, 1, 1), (6, 4, 1, 1)]


@pytest.mark.slow
def test_two_inputs_and_several_outputs() -> None:
    def both(self: Model, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        x, y = F.relu(self.a(x)), F.relu(self.b(y))
        return {"sum": self.c(x + y), "first": self.d(x), "bare": y}

    model = shaken(Model(both, a=conv(3, 6), b=conv(3, 6), c=conv(6, 2), d=conv(6, 2)))
    silent(model, {"a.weight": [1, 2], "b.weight": [1, 2]})
    small = compacted(model, (IMAGES, IMAGES * 2), (MORE, MORE))
    assert shapes(small, "a.weight", "b.weight") == [(6, 3, 3, 3), (6, 3, 3, 3)]  # they are returned


def test_shared_layers_and_shared_weights() -> None:
    def twice(self: Model, x: Tensor) -> Tensor:
        x = F.relu(self.a(x))
        return self.out(F.relu(self.b(F.relu(self.b(x)))) + self.tied(x))

    model = Model(twice, a=conv(3, 6), b=conv(6, 6), tied=conv(6, 6), out=conv(6, 2, 1))
    model.tied.weight = model.b.weight  # type: ignore[union-attr]
    shaken(model)
    silent(model, {"a.weight": [1, 2], "b.weight": [1, 2]})
    model.tied.bias.data[[1, 2]] = 0  # type: ignore[union-attr, index, operator]
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "a.weight", "b.weight", "out.weight") == [(4, 3, 3, 3), (4, 4, 3, 3), (2, 4, 1, 1)]
    assert small.tied.weight is small.b.weight  # type: ignore[union-attr]


# Groups


def test_depthwise_separable() -> None:
    model = shaken(nn.Sequential(conv(3, 8, 1), nn.ReLU(), conv(8, 16, groups=8), nn.ReLU(), conv(16, 4, 1)))
    silent(model, {"0.weight": [1, 2]})
    kill(model, {"2.weight": [0, 1]})  # both filters of channel 0: a constant
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "0.weight", "2.weight", "4.weight") == [(5, 3, 1, 1), (10, 1, 3, 3), (4, 10, 1, 1)]
    assert small[2].groups == small[2].in_channels == small[0].out_channels


@pytest.mark.slow
def test_whole_groups() -> None:
    model = shaken(nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 12, groups=4), nn.ReLU(), conv(12, 4, 1)))
    silent(model, {"0.weight": [2, 3]})
    kill(model, {"2.weight": [3, 4, 5, 9]})
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "0.weight", "2.weight", "4.weight") == [(6, 3, 3, 3), (9, 2, 3, 3), (4, 9, 1, 1)]
    assert (small[2].groups, small[2].in_channels, small[2].out_channels) == (3, 6, 9)


@pytest.mark.slow
def test_a_shuffle_of_channels_stays_right() -> None:
    def shuffled(self: Model, x: Tensor) -> Tensor:
        left, right = F.relu(self.a(x)).chunk(2, 1)
        y = torch.cat([left, F.relu(self.b(right))], 1)
        y = y.view(y.size(0), 2, 4, *y.shape[2:]).transpose(1, 2).reshape(y.shape)
        return self.c(y)

    model = shaken(Model(shuffled, a=conv(3, 8), b=conv(4, 4), c=conv(8, 2)))
    silent(model, {"a.weight": [1, 2, 6]})
    kill(model, {"b.weight": [0]})
    compacted(model, IMAGES, MORE)


@pytest.mark.slow
def test_halves_that_are_multiplied_go_in_pairs() -> None:
    def gated(self: Model, x: Tensor) -> Tensor:
        value, gate = self.a(x).chunk(2, 1)
        return self.b(value * F.silu(gate))

    model = shaken(Model(gated, a=conv(3, 8), b=conv(4, 2)))
    silent(model, {"a.weight": [1, 6]})  # of the second pair the value, of the third the gate
    assert shapes(compacted(model, IMAGES, MORE), "a.weight", "b.weight") == [(4, 3, 3, 3), (2, 2, 3, 3)]


@pytest.mark.slow
def test_a_split_into_sizes_that_are_written_stays() -> None:
    def cut(self: Model, x: Tensor) -> Tensor:
        one, other = self.a(x).split([3, 5], 1)
        return self.b(one) + self.c(other)

    model = shaken(Model(cut, a=conv(3, 8), b=conv(3, 2), c=conv(5, 2)))
    silent(model, {"a.weight": [1, 6]})
    assert shapes(compacted(model, IMAGES, MORE), "a.weight") == [(8, 3, 3, 3)]


# Norms


def test_layer_norm_needs_all() -> None:
    model = shaken(nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 2)))
    silent(model, {"0.weight": [1, 2]})
    kill(model, {"2.weight": [3]})
    x = torch.randn(3, 6)
    assert shapes(compacted(model, x, torch.randn(2, 7, 6)), "0.weight", "2.weight") == [(8, 6), (4, 8)]


@pytest.mark.slow
def test_group_norm_needs_its_group() -> None:
    model = shaken(nn.Sequential(conv(3, 8), nn.GroupNorm(4, 8), nn.ReLU(), conv(8, 2, 1)))
    silent(model, {"0.weight": [0, 2, 3]})
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "0.weight", "1.weight", "3.weight") == [(6, 3, 3, 3), (6,), (2, 6, 1, 1)]
    assert (small[1].num_groups, small[1].num_channels) == (3, 6)


# Dimensions


@pytest.mark.parametrize("n", slow_but_for([2], [1, 2, 3]))
def test_one_two_and_three_dimensions_and_transposed(n: int) -> None:
    plain, transposed = (
        (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n - 1],
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[n - 1],
    )
    norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[n - 1]
    model = shaken(nn.Sequential(plain(3, 6, 3), norm(6), nn.ReLU(), transposed(6, 8, 2, 2), nn.ReLU(), plain(8, 2, 1)))
    silent(model, {"0.weight": [1, 2]}, "1")
    with torch.no_grad():
        model[3].weight[:, [0, 7]] = 0
    small = compacted(model, torch.randn(2, 3, *[6] * n), torch.randn(3, 3, *[7] * n))
    kernel = [2] * n
    assert shapes(small, "0.weight", "3.weight") == [(4, 3, *[3] * n), (4, 6, *kernel)]
    assert (small[3].in_channels, small[3].out_channels) == (4, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flat", [lambda x: x.flatten(1), lambda x: x.view(x.size(0), -1), lambda x: x.mean((2, 3)).flatten(1)]
)
def test_into_a_linear_layer(flat) -> None:  # type: ignore[no-untyped-def]
    width = len(flat(torch.zeros(1, 6, 4, 4))[0])
    model = shaken(
        Model(lambda self, x: self.b(flat(F.max_pool2d(F.relu(self.a(x)), 2))), a=conv(3, 6), b=nn.Linear(width, 4))
    )
    kill(model, {"a.weight": [1, 2]})  # constants, one of them a positive one
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "a.weight", "b.weight") == [(4, 3, 3, 3), (4, width * 4 // 6)]


@pytest.mark.slow
def test_a_size_that_is_written_in_the_forward_stays() -> None:
    model = shaken(Model(lambda self, x: self.b(self.a(x).reshape(-1, 6 * 64)), a=conv(3, 6), b=nn.Linear(384, 4)))
    kill(model, {"a.weight": [1, 2]})
    assert shapes(compacted(model, IMAGES, MORE), "a.weight", "b.weight") == [(6, 3, 3, 3), (4, 384)]


def test_a_size_that_a_module_keeps_changes() -> None:
    model = shaken(Model(lambda self, x: self.b(self.a(x).reshape(-1, self.flat)), a=conv(3, 6), b=nn.Linear(384, 4)))
    model.flat = 384  # type: ignore[assignment]
    kill(model, {"a.weight": [1, 2]})
    small = compacted(model, IMAGES, MORE)
    assert (small.flat, *shapes(small, "a.weight", "b.weight")) == (256, (4, 3, 3, 3), (4, 256))


def test_an_operator_without_a_rule_keeps_what_it_reads() -> None:
    model = shaken(Model(lambda self, x: self.b(torch.cumsum(self.a(x), 1)), a=conv(3, 6), b=conv(6, 4)))
    silent(model, {"a.weight": [1, 2]})
    assert shapes(compacted(model, IMAGES, MORE), "a.weight") == [(6, 3, 3, 3)]


@pytest.mark.slow
def test_a_parameter_that_is_added_or_multiplied_is_cut_too() -> None:
    model = shaken(Model(lambda self, x: self.b(self.a(x) * self.scale[:, None, None]), a=conv(3, 6), b=conv(6, 4)))
    model.scale = nn.Parameter(torch.randn(6))
    silent(model, {"a.weight": [1, 2]})
    model.scale.data[4] = 0
    assert shapes(compacted(model, IMAGES, MORE), "a.weight", "scale") == [(3, 3, 3, 3), (3,)]


@pytest.mark.slow
def test_widths_that_are_multiples() -> None:
    """Filters that do nothing stay until widths are round, and the outputs are the same."""
    model = shaken(nn.Sequential(conv(3, 16), nn.BatchNorm2d(16), nn.ReLU(), conv(16, 12), nn.ReLU(), conv(12, 2, 1)))
    kill(model, {"0.weight": range(10), "3.weight": [0]})
    small = granet.compact(model, IMAGES, multiple_of=4, tell=None)
    assert shapes(small, "0.weight", "3.weight", "5.weight") == [(8, 3, 3, 3), (12, 8, 3, 3), (2, 12, 1, 1)]
    torch.testing.assert_close(run(small, MORE), run(model, MORE))


def test_padding_beside_channels_and_beside_images() -> None:
    def padded(self: Model, x: Tensor) -> Tensor:
        x = F.relu(self.a(F.pad(x, (1, 1, 1, 1))))
        return self.b(F.pad(x, (1, 1, 1, 1), mode="reflect")) + self.c(F.pad(self.d(x), (0, 0, 0, 0, 1, 1)))

    model = shaken(Model(padded, a=conv(3, 6), b=conv(6, 2, 3, padding=0), c=conv(6, 2, 3, padding=1), d=conv(6, 4)))
    silent(model, {"a.weight": [1, 2]})
    kill(model, {"d.weight": [0]})
    small = compacted(model, IMAGES, MORE)
    assert shapes(small, "a.weight", "b.weight", "d.weight") == [(4, 3, 3, 3), (2, 4, 3, 3), (4, 4, 3, 3)]
