"""Dormant units and effective rank, of models whose activations are known."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from granet.observers import Observers
from granet.observers.effective_rank import effective_rank


class Known(nn.Module):
    """A convolution whose four channels output 1, 0, 0.01 and 3 times the image, then ReLU, as a module or not."""

    def __init__(self, module: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.relu = nn.ReLU(inplace=True) if module else functional.relu
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([1.0, -1.0, 0.01, 3.0]).view(4, 1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.relu(self.drop(self.norm(self.conv(images))))
        hidden *= 7  # what comes after an activation does not count
        return hidden.mean((2, 3))


@pytest.mark.parametrize("module", [True, False])
def test_dormant_units_by_hand(module: bool) -> None:
    model = Known(module).train()
    model.drop.eval()  # someone's own choice, to be left alone
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images = torch.rand(5, 1, 6, 6) + 0.5
    # Scores by the mean of 1, 0, 0.01 and 3, which is 1.0025: only the second and the third are at most 0.025.
    assert Observers(["dormant"], model, images=images).epoch() == {"dormant.share": 0.5, "dormant.silent": 0.25}
    assert model.training and model.norm.training and not model.drop.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_compiled_model_is_looked_at_as_it_was_written() -> None:
    """With ``fullgraph`` torch would refuse to compile what looks at its activations."""
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU())
    names, images = ["dormant", "effective_rank"], torch.randn(6, 3)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compiled(images)
    assert Observers(names, compiled, images=images).epoch() == Observers(names, model, images=images).epoch()


def test_the_threshold_is_that_of_the_layer() -> None:
    """Unit 3 has 0.02 of the largest but 0.04 of the mean."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [0.02]]))
    assert Observers(["dormant"], model, images=torch.ones(3, 1)).epoch()["dormant.share"] == 0.0


def test_a_layer_of_zeros_is_all_dormant() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    observers = Observers(["dormant", "effective_rank"], model, images=torch.ones(3, 2))
    assert observers.epoch() == {
        "dormant.share": 1.0,
        "dormant.silent": 1.0,
        "effective_rank.share": 0.0,
        "effective_rank.last": 0.0,
    }
    nn.init.constant_(model[0].weight, math.nan)
    assert observers.epoch() == {}


class ChannelsLast(nn.Module):
    """As in ConvNeXt: a convolution whose channels go last, and a linear layer on each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.hidden = nn.Conv2d(2, 5, 3, padding=1), nn.Linear(5, 6)

    def forward(self, images: Tensor) -> Tensor:
        return functional.gelu(self.hidden(self.conv(images).permute(0, 2, 3, 1)))


class Residual(nn.Module):
    """A sum of two convolutions, pooled and written over in place before the activation."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.other = nn.Conv1d(2, 6, 3, padding=1), nn.Conv1d(2, 6, 1)
        nn.init.zeros_(self.other.weight)
        nn.init.zeros_(self.other.bias)

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.max_pool1d(self.hidden(images), 2)
        hidden += functional.max_pool1d(self.other(images), 2)
        return functional.relu_(hidden)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6, affine=False), nn.ReLU()), (16, 2, 20)),
        (nn.Sequential(nn.Conv3d(2, 6, 3), nn.ReLU()), (3, 2, 5, 6, 7)),
        (nn.Sequential(nn.Linear(2, 6), nn.ReLU()), (4, 5, 7, 2)),
        (ChannelsLast(), (4, 2, 8, 9)),
        (Residual(), (4, 2, 20)),
    ],
    ids=["conv1d", "conv3d", "linear", "channels last", "residual"],
)
def test_units_are_those_of_the_layer_before(model: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    hidden = model.hidden if hasattr(model, "hidden") else model[0]
    nn.init.normal_(hidden.weight)
    with torch.no_grad():
        hidden.weight[:3] = 0
        hidden.bias[:3], hidden.bias[3:] = 0, 1
    figures = Observers(["dormant", "effective_rank"], model, images=torch.randn(shape)).epoch()
    assert figures["dormant.share"] == figures["dormant.silent"] == 0.5
    assert 1 < figures["effective_rank.last"] <= 3


def test_an_activation_behind_moved_dimensions() -> None:
    """What is known of the layer before it is forgotten: the last of three dimensions, and of two."""
    torch.manual_seed(0)
    for layer, shape, silent in ((nn.Conv1d(2, 6, 1), (4, 2, 9), 0.5), (nn.Linear(2, 6), (4, 2), 0.0)):
        with torch.no_grad():
            layer.weight[:3], layer.bias[:3], layer.bias[3:] = 0, 0, 1
        model = nn.Sequential(layer, Transposed(), nn.ReLU())
        assert Observers(["dormant"], model, images=torch.randn(shape)).epoch()["dormant.silent"] == silent


class Transposed(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.t() if images.ndim == 2 else images.mT


@pytest.mark.parametrize(
    "activation",
    [
        *(nn.PReLU(), nn.RReLU(), nn.RReLU(inplace=True), nn.SELU(), nn.CELU(inplace=True), nn.Softplus()),
        *(nn.Threshold(0.1, 0.0), nn.LeakyReLU(inplace=True), nn.ELU(inplace=True), nn.Hardtanh(inplace=True)),
        *(nn.ReLU6(), nn.GELU(), nn.SiLU(inplace=True), nn.Mish(), nn.Hardswish(), nn.Tanh(), nn.ReLU(inplace=True)),
    ],
    ids=str,
)
def test_relatives_of_relu_are_activations(activation: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(2, 3), activation)
    assert "dormant.share" in Observers(["dormant"], model, images=torch.randn(4, 2)).epoch()


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 10_000))
def test_effective_rank_is_that_of_the_singular_values(rows: int, columns: int, seed: int) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    values = torch.linalg.svdvals(matrix.double()).tolist()
    shares = [value / sum(values) for value in values]
    assert effective_rank(matrix) == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)), rel=1e-5)


def test_effective_rank_of_matrices_that_one_can_see_through() -> None:
    assert effective_rank(torch.eye(7)) == pytest.approx(7)
    assert effective_rank(torch.ones(70_000, 5)) == pytest.approx(1, abs=1e-6)  # in more than one part
    assert effective_rank(torch.diag(torch.tensor([3.0, 1.0]))) == pytest.approx(4 / 27**0.25)  # p = 3/4, 1/4
    assert math.isnan(effective_rank(torch.tensor([[math.inf, 1.0]])))


def test_rows_are_positions_and_columns_are_channels() -> None:
    """All channels are multiples of one image: the rank is 1 of 4, of which one is always 0."""
    images = torch.rand(5, 1, 6, 6)
    figures = Observers(["effective_rank"], Known(True), images=images).epoch()
    assert figures == pytest.approx({"effective_rank.share": 0.25, "effective_rank.last": 1.0}, abs=1e-5)
    sequence, tokens = nn.Sequential(nn.Linear(3, 6), nn.GELU()), torch.randn(2, 4, 3)
    values = torch.linalg.svdvals(sequence(tokens).detach().double().view(8, 6))
    entropy = torch.distributions.Categorical(values / values.sum()).entropy().item()
    figures = Observers(["effective_rank"], sequence, images=tokens).epoch()
    expected = {"effective_rank.share": math.exp(entropy) / 6, "effective_rank.last": math.exp(entropy)}
    assert figures == pytest.approx(expected, rel=1e-5)
