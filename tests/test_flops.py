"""FLOPs against counts that a convolution cannot argue with: multiply-adds of its own definition."""

import pytest
import torch
from torch import Tensor, nn

from granet.flops import flops


def multiply_adds(module: nn.Module, x: Tensor) -> int:
    """Multiply-adds of a layer without padding, by linearity: feed ones, set weights and biases to 1 and 0, and every
    product of an input with a weight contributes exactly 1 to the sum of all outputs."""
    with torch.no_grad():
        module.weight.fill_(1)
        if module.bias is not None:
            module.bias.zero_()
        return round(module(torch.ones_like(x)).double().sum().item())


LAYERS = [
    (nn.Linear(5, 7), (3, 5)),
    (nn.Linear(5, 7, bias=False), (2, 4, 5)),
    (nn.Conv1d(4, 6, 3, stride=2), (2, 4, 11)),
    (nn.Conv2d(4, 6, 3), (2, 4, 8, 9)),
    (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), dilation=2), (1, 4, 9, 8)),
    (nn.Conv2d(4, 8, 3, groups=2), (2, 4, 6, 6)),
    (nn.Conv2d(4, 4, 3, groups=4), (1, 4, 6, 6)),
    (nn.Conv2d(4, 6, 3), (4, 8, 9)),  # no batch dimension
    (nn.Conv3d(2, 3, 2), (1, 2, 4, 5, 6)),
    (nn.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 5)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (1, 4, 5, 4)),
    (nn.ConvTranspose3d(2, 3, 2), (1, 2, 3, 3, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=[f"{layer} {shape}" for layer, shape in LAYERS])
def test_two_flops_per_multiply_add(layer: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    expected = 2 * multiply_adds(layer, x)
    report = flops(layer, x)
    assert report.dense == report.sparse == expected
    assert report.ratio == 1.0


def test_padding_counts_as_positions() -> None:
    assert flops(nn.Conv2d(3, 8, 3, padding=1), torch.zeros(1, 3, 4, 4)).dense == 2 * 16 * 8 * 3 * 9


def test_masks_scale_each_layer_by_its_own_density() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 4 * 4, 10))
    mask = torch.zeros(2, 1, 3, 3, dtype=torch.bool)
    mask[0, 0, 0] = True  # 3 of 18
    report = flops(model, torch.zeros(1, 1, 6, 6), {"0.weight": mask})
    conv, linear = report.rows
    assert (conv.name, conv.weights, conv.active, conv.dense, conv.sparse) == ("0", 18, 3, 2 * 16 * 18, 2 * 16 * 3)
    assert (linear.name, linear.weights, linear.active, linear.dense, linear.sparse) == ("3", 320, 320, 640, 640)
    assert report.ratio == pytest.approx((96 + 640) / (576 + 640))


def test_without_masks_zero_weights_do_not_count() -> None:
    layer = nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.fill_(1)[0].zero_()
    report = flops(layer, torch.zeros(1, 4))
    assert (report.dense, report.sparse) == (16, 8)
    assert flops(layer, torch.zeros(1, 4), {}).sparse == 16  # no mask: dense, whatever the values


def test_tied_and_repeated_layers() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(self.first(x)))

    mask = torch.eye(4, dtype=torch.bool)
    rows = flops(Tied(), torch.zeros(1, 4), {"first.weight": mask}).rows
    assert [(row.name, row.dense, row.sparse) for row in rows] == [("first", 64, 16), ("second", 32, 8)]


def test_a_layer_that_is_not_called_costs_nothing_and_keywords_work() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.used(input=x) + y

    assert [row.name for row in flops(Net(), (torch.zeros(1, 3), torch.zeros(1, 2))).rows] == ["used"]


def test_compiled_model() -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    compiled = torch.compile(model, backend="eager")
    mask = torch.tensor([[True] * 4, [False] * 4])
    for masks in ({"0.weight": mask}, {"_orig_mod.0.weight": mask}):
        assert flops(compiled, torch.zeros(1, 4), masks).sparse == 8


def test_model_is_left_as_it_was() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = nn.Buffer(torch.zeros(()))
            self.frozen, self.norm, self.linear = nn.Dropout(), nn.BatchNorm1d(4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.linear(self.norm(x))

    model = Counter()
    model.frozen.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flops(model, torch.randn(8, 4))
    assert [module.training for module in (model, model.norm, model.frozen)] == [True, True, False]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.linear._forward_hooks

    with pytest.raises(RuntimeError):
        flops(model, torch.randn(8, 5))
    assert model.training and not model.linear._forward_hooks


def test_bad_masks_and_models() -> None:
    layer = nn.Linear(4, 2)
    with pytest.raises(ValueError, match="'wieght'"):
        flops(layer, torch.zeros(1, 4), {"wieght": torch.ones(2, 4, dtype=torch.bool)})
    with pytest.raises(ValueError, match=r"'weight'.*\(4, 2\).*\(2, 4\)"):
        flops(layer, torch.zeros(1, 4), {"weight": torch.ones(4, 2, dtype=torch.bool)})
    with pytest.raises(ValueError, match="Identity"):
        flops(nn.Identity(), torch.zeros(1, 4))
