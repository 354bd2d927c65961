"""FLOPs against counts that a convolution cannot argue with: multiply-adds of its own definition."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from granet.flop_counting import flops
from refusals import refused


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


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """A convolution without padding, of any kind, and an input."""
    dimensions = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["Conv", "ConvTranspose"]))
    groups = draw(st.integers(1, 3))
    channels = [groups * draw(st.integers(1, 3)) for _ in range(2)]
    kernel = [draw(st.integers(1, 3)) for _ in range(dimensions)]
    stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    options = {"stride": stride, "dilation": dilation, "groups": groups, "bias": draw(st.booleans())}
    layer = getattr(nn, f"{kind}{dimensions}d")(*channels, kernel, **options)
    sides = [dilation * (size - 1) + 1 + draw(st.integers(0, 3)) for size in kernel]
    return layer, torch.zeros(draw(st.integers(1, 2)), channels[0], *sides)


@given(convolutions(), st.integers(0, 2**32 - 1))
def test_masked_convolutions_cost_their_nonzero_products(case: tuple[nn.Module, Tensor], seed: int) -> None:
    """By linearity: with the mask as weight and ones as input, the outputs add up to the products that are left."""
    layer, x = case
    mask = torch.rand(layer.weight.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    dense = 2 * multiply_adds(layer, x)
    report = flops(layer, x, masks={"weight": mask})
    with torch.no_grad():
        layer.weight.copy_(mask)
        left = round(layer(torch.ones_like(x)).double().sum().item())
    assert (report.dense, report.sparse) == (dense, 2 * left)
    assert flops(layer, x).sparse == 2 * left  # by value


def test_padding_counts_as_positions() -> None:
    assert flops(nn.Conv2d(3, 8, 3, padding=1), torch.zeros(1, 3, 4, 4)).dense == 2 * 16 * 8 * 3 * 9


def test_masks_scale_each_layer_by_its_own_density() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 4 * 4, 10))
    mask = torch.zeros(2, 1, 3, 3, dtype=torch.bool)
    mask[0, 0, 0] = True  # 3 of 18
    report = flops(model, torch.zeros(1, 1, 6, 6), masks={"0.weight": mask})
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
    assert flops(layer, torch.zeros(1, 4), masks={}).sparse == 16  # no mask: dense, whatever the values


def test_tied_and_repeated_layers() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(self.first(x)))

    mask = torch.eye(4, dtype=torch.bool)
    report = flops(Tied(), torch.zeros(1, 4), masks={"first.weight": mask})
    assert [(row.name, row.dense, row.sparse) for row in report.rows] == [("first", 64, 16), ("second", 32, 8)]
    assert "total   16 weights   0.2500" in str(report)  # there is one tensor


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
        assert flops(compiled, torch.zeros(1, 4), masks=masks).sparse == 8


COMPILES_ITSELF = """
import torch
from torch import nn
from granet.flop_counting import flops

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.compiled = nn.Linear(4, 2), None

    def forward(self, x):
        self.compiled = self.compiled or torch.compile(lambda x: self.linear(x).relu(), backend="eager")
        return self.compiled(x)

print(flops(Net(), torch.zeros(1, 4)).dense)
"""


@pytest.mark.slow
def test_a_model_that_compiles_itself_when_it_first_runs() -> None:
    """In a fresh process, where nothing has loaded the compiler yet, it must not compile the counter either."""
    done = subprocess.run([sys.executable, "-c", COMPILES_ITSELF], capture_output=True, text=True, timeout=300)
    assert done.stdout == "16\n", done.stderr
    assert "_dynamo" not in done.stderr


class Restless(nn.Module):
    """Writes to a buffer, puts another in its place, draws random numbers; some of its modules are in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.last = nn.Buffer(torch.zeros(())), nn.Buffer(torch.ones(2))
        self.frozen, self.norm, self.linear = nn.Dropout(), nn.BatchNorm1d(4), nn.Linear(4, 2)
        self.frozen.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = torch.rand(2)
        return self.linear(self.norm(x))

    def train(self, mode: bool = True) -> Restless:
        """As networks do that merge weights when they are told to evaluate."""
        with torch.no_grad():
            self.linear.weight.mul_(2)
        return super().train(mode)


@pytest.mark.parametrize("width", [4, 5])
def test_model_is_left_as_it_was(width: int) -> None:
    model = Restless()
    model.linear(torch.ones(1, 4)).sum().backward()
    before = {name: (value, value.clone()) for name, value in model.state_dict(keep_vars=True).items()}
    gradient, random_state = model.linear.weight.grad, torch.get_rng_state()
    assert gradient is not None
    kept = gradient.clone()
    if width == 4:
        flops(model, torch.randn(8, 4, generator=torch.Generator()))
    else:
        with refused("example_input of shape (8, 5)", ..., "Restless", "running_mean"):
            flops(model, torch.zeros(8, 5))
    assert [module.training for module in (model, model.norm, model.frozen)] == [True, True, False]
    after = model.state_dict(keep_vars=True)
    assert list(after) == list(before)
    assert all(after[name] is tensor and torch.equal(tensor, value) for name, (tensor, value) in before.items())
    assert model.linear.weight.grad is gradient and torch.equal(gradient, kept)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.backends.mha.get_fastpath_enabled() and torch.is_grad_enabled()


def test_a_model_of_inference_tensors_is_left_as_it_was_too() -> None:
    """Those do not tell whether they were written to."""
    with torch.inference_mode():
        model = Restless()
        x = torch.zeros(8, 4)
    model.forward = torch.inference_mode()(model.forward)  # type: ignore[method-assign]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flops(model, x)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_pass_that_is_counted_keeps_nothing_for_gradients() -> None:
    class Net(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            assert not torch.is_grad_enabled()
            return super().forward(x)

    assert flops(Net(4, 2), torch.zeros(1, 4)).dense == 16


def test_a_graph_under_way_is_not_disturbed() -> None:
    """Buffers that nothing wrote to are not written to: a backward pass may still need them."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    loss = model(torch.ones(3, 4)).sum()
    flops(model, torch.ones(1, 4))
    loss.backward()


@pytest.mark.parametrize(
    ("example", "subject"),
    [
        (torch.zeros(2, 5), "example_input of shape (2, 5)"),
        ((torch.zeros(2, 4), torch.zeros(1)), "example_input of shape (2, 4), (1,)"),
        ({"inputs": torch.zeros(2, 4)}, "example_input of shape (2, 4)"),
        (torch.zeros(0, 4), "model=Linear"),
    ],
)
def test_an_input_that_does_not_fit(example: object, subject: str) -> None:
    with refused(subject):
        flops(nn.Linear(4, 2), example)  # type: ignore[arg-type]


def test_a_module_that_fails_and_is_done_without_is_no_longer_running() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError

    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.risky = Failing()

        def forward(self, x: Tensor) -> Tensor:
            with suppress(RuntimeError):
                return cast(Tensor, self.risky(x))
            return x @ x

    assert [row.name for row in flops(Careful(), torch.zeros(3, 3)).rows] == [""]


def test_a_mapping_is_keyword_arguments() -> None:
    assert flops(nn.Linear(4, 2), {"input": torch.zeros(3, 4)}).dense == 2 * 3 * 8


def test_a_lazy_model_is_not_made_up() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with refused("model", ..., "'0.weight'"):
        flops(model, torch.zeros(1, 4))
    assert isinstance(model[0], nn.LazyLinear)


def test_meta_model_with_real_masks() -> None:
    mask = torch.tensor([[True] * 4, [False] * 4])
    model, x = nn.Linear(4, 2, device="meta"), torch.zeros(3, 4, device="meta")
    assert flops(model, x).sparse == 2 * 3 * 8  # no values: all active
    assert flops(model, x, masks={"weight": mask}).sparse == 2 * 3 * 4
    with refused("masks['weight']"):
        flops(model, x, masks={"weight": mask.to("meta")})


def test_bad_masks_and_models() -> None:
    layer, mask, x = nn.Linear(4, 2), torch.ones(2, 4, dtype=torch.bool), torch.zeros(1, 4)
    wrong: list[tuple[Any, dict[str, Any], str, Any]] = [
        (layer, {"masks": {"wieght": mask}}, "masks['wieght']", ...),
        (layer, {"masks": {"weight": mask.T}}, "masks['weight']=torch.bool (4, 2)", ...),
        (layer, {"masks": {"weight": 1}}, "masks['weight']=int", ...),
        (layer, {"masks": {"weight": layer.weight}}, "masks['weight']=torch.float32 (2, 4)", ...),  # scores, say
        (layer, {"masks": {"weight": mask, "_orig_mod.weight": ~mask}}, "masks['_orig_mod.weight']", ...),
        (layer, {"masks": layer}, "masks", layer),
        (layer, {"sparsifier": {"weight": mask}}, "sparsifier=dict", ...),
        (nn.Identity(), {}, "model=Identity", ...),
        ("resnet20", {}, "model=str", ...),
    ]
    for model, options, subject, value in wrong:
        with refused(subject, value):
            flops(model, x, **options)


def test_weights_that_lie_in_one_buffer_have_masks_of_their_own() -> None:
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
    buffer = torch.randn(40)
    model[0].weight = nn.Parameter(buffer[10:22].view(3, 4))
    model[1].weight = nn.Parameter(buffer[22:28].view(2, 3))
    masks = {"0.weight": (torch.arange(12) >= 5).view(3, 4), "1.weight": (torch.arange(6) >= 2).view(2, 3)}
    assert [row.sparse for row in flops(model, torch.zeros(1, 4), masks=masks).rows] == [2 * 7, 2 * 4]
    row = torch.cat([torch.ones(5, dtype=torch.bool), *(mask.flatten() for mask in masks.values())])
    parts = {"0.weight": row[5:17].view(3, 4), "1.weight": row[17:].view(2, 3)}  # and masks in one row
    assert flops(model, torch.zeros(1, 4), masks=parts) == flops(model, torch.zeros(1, 4), masks=masks)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_tensors_are_refused(layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(5, 4)], layout=layout)
    for example in (nested, {"input": nested}):
        with refused("example_input"):
            flops(nn.Linear(4, 2), example)
