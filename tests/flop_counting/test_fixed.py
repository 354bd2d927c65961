"""Work that no mask shrinks: norms, pooling, activations and sums, each at its price."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from granet.flop_counting import flops

FIXED = {
    "activation": (nn.ReLU(), 2 * 4 * 36),
    "average pooling": (nn.AvgPool2d(3), 2 * (2 * 4 * 4) * 9),
    "max pooling": (nn.MaxPool2d(2), (2 * 4 * 9) * 4),
    "normalisation": (nn.BatchNorm2d(4), 2 * (2 * 4 * 36)),
    "softmax": (nn.Softmax(1), 5 * (2 * 4 * 36)),
    "interpolation": (nn.Upsample(scale_factor=2, mode="bilinear"), 8 * (2 * 4 * 144)),
}


@pytest.mark.parametrize("kind", FIXED)
def test_what_no_mask_shrinks(kind: str) -> None:
    module, expected = FIXED[kind]
    model = nn.Sequential(nn.Conv2d(3, 4, 1), module)
    report = flops(model, torch.zeros(2, 3, 6, 6), masks={"0.weight": (torch.arange(12) < 6).view(4, 3, 1, 1)})
    fixed = {(fixed.name, fixed.kind): fixed.flops for fixed in report.fixed}
    assert fixed == {("0", "bias"): 2 * 4 * 36, ("1", kind): expected}
    products = 2 * 72 * 12
    assert (report.dense, report.sparse) == (products, products // 2)
    assert (report.including(kind).dense, report.including(kind).sparse) == (
        products + expected,
        products // 2 + expected,
    )
    assert report.including().dense == products + expected + 2 * 4 * 36


@pytest.mark.parametrize(
    ("module", "price"), [(nn.LayerNorm(6), 7), (nn.GroupNorm(2, 4), 7), (nn.InstanceNorm2d(4), 7)]
)
def test_norms_with_statistics_of_the_input(module: nn.Module, price: int) -> None:
    report = flops(nn.Sequential(nn.Conv2d(3, 4, 1), module), torch.zeros(2, 3, 6, 6))
    assert report.fixed_by_kind["normalisation"] == price * 2 * 4 * 36


def test_what_a_hook_computes_for_a_layer_is_the_layers() -> None:
    model = nn.Sequential(nn.Linear(2, 4, bias=False))
    model[0].register_forward_pre_hook(lambda _module, given: (given[0].relu(),))
    (fixed,) = flops(model, torch.zeros(3, 2)).fixed
    assert (fixed.name, fixed.kind, fixed.flops) == ("0", "activation", 6)


def test_weight_norm_costs_four_for_each_element_of_the_weight() -> None:
    """Square, sum, quotient and scale, once for any number of inputs."""
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 4, bias=False))
    assert flops(normed, torch.ones(5, 2)).fixed_by_kind == {"normalisation": 4 * 8}


@pytest.mark.parametrize(
    ("function", "products", "bias"),
    [
        (lambda x: torch.addmm(torch.zeros(4), x[0], torch.ones(2, 4)), 3 * 2 * 4, 3 * 4),
        (lambda x: torch.addmv(torch.zeros(3), x[0], torch.ones(2)), 3 * 2, 3),
        (lambda x: torch.baddbmm(torch.zeros(5, 1, 4), x, torch.ones(5, 2, 4)), 5 * 3 * 2 * 4, 5 * 3 * 4),
        (lambda x: torch.addbmm(torch.zeros(3, 4), x, torch.ones(5, 2, 4)), 5 * 3 * 2 * 4, 3 * 4),
    ],
)
def test_what_a_product_adds_costs_one_for_each_output(
    function: Callable[[Tensor], Tensor], products: int, bias: int
) -> None:
    report = flops(Function(function), torch.ones(5, 3, 2))
    assert (report.dense, report.fixed_by_kind) == (2 * products, {"bias": bias})


def test_global_average_pooling_in_any_spelling() -> None:
    for pool in (nn.AdaptiveAvgPool2d(1), nn.AvgPool2d(6), nn.AdaptiveAvgPool2d(2)):
        report = flops(nn.Sequential(nn.Conv2d(3, 4, 1), pool), torch.zeros(2, 3, 6, 6))
        assert report.fixed_by_kind["average pooling"] == 2 * (2 * 4 * 36)


@pytest.mark.parametrize("kind", ["Avg", "Max"])
@pytest.mark.parametrize(
    ("sizes", "counts"), [((8, 8), (16, 16)), ((7, 5), (3, 4)), ((6, 6), (1, 6)), ((7,), (3,)), ((5, 4, 3), (2, 3, 7))]
)
def test_adaptive_pooling_counts_the_elements_of_its_windows(
    kind: str, sizes: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    x = torch.zeros(2, 4, *sizes)
    pool = getattr(nn, f"Adaptive{kind}Pool{len(sizes)}d")(counts)
    report = flops(nn.Sequential(pool, nn.Flatten(), nn.Linear(4 * math.prod(counts), 1, bias=False)), x)
    taps = 2 * 4 * math.prod(map(windows, sizes, counts))
    assert report.fixed_by_kind == ({"average pooling": 2 * taps} if kind == "Avg" else {"max pooling": taps})


def windows(size: int, count: int) -> int:
    """Elements of the windows along one dimension, read off PyTorch: the inputs that each output depends on."""
    x = torch.zeros(1, size, requires_grad=True)
    outputs = F.adaptive_avg_pool1d(x, count).view(-1)
    return sum(int(torch.autograd.grad(out, x, retain_graph=True)[0].count_nonzero()) for out in outputs)


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.forward = function


ROWS = torch.tensor([0, 2, 2])
ADDITIONS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "put": (lambda x: x.index_put((ROWS,), torch.ones(3, 4)), 0),
    "put in place": (lambda x: x.clone().index_put_((x > 0,), torch.tensor(1.0)), 0),
    "put and add": (lambda x: x.index_put((ROWS,), torch.ones(3, 4), accumulate=True), 12),
    "index add": (lambda x: x.index_add(0, ROWS, torch.ones(3, 4)), 12),
    "index add in place": (lambda x: x.clone().index_add_(0, ROWS, torch.ones(3, 4)), 12),
    "scatter add": (lambda x: x.scatter_add(0, ROWS.expand(2, 3), torch.ones(3, 4)), 6),
    "scatter reduce": (lambda x: x.scatter_reduce(0, ROWS.expand(2, 3), torch.ones(3, 4), "amax"), 6),
}


@pytest.mark.parametrize("name", ADDITIONS)
def test_what_is_added_at_an_index_counts_and_what_is_put_there_does_not(name: str) -> None:
    function, expected = ADDITIONS[name]
    report = flops(nn.Sequential(Function(function), nn.Linear(4, 2, bias=False)), torch.ones(5, 4))
    assert report.fixed_by_kind.get("reduction", 0) == expected
    assert (report.dense, report.unknown) == (2 * 5 * 8, ())


REDUCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "sum": (lambda x: x.sum(0), 1),
    "largest": (lambda x: x.amax(0), 1),
    "running sum": (lambda x: x.cumsum(0), 1),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=0), 2),
    "logsumexp": (lambda x: x.logsumexp(0), 2),
    "variance": (lambda x: x.var(0), 3),
    "deviation": (lambda x: x.std(0), 3),
    "variance and mean": (lambda x: torch.var_mean(x, 0)[0], 3),
    "deviation and mean": (lambda x: torch.std_mean(x, 0)[0], 3),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_has_a_price_for_each_element_it_reads(name: str) -> None:
    function, price = REDUCTIONS[name]
    report = flops(nn.Sequential(Function(function), nn.Linear(4, 2, bias=False)), torch.ones(5, 4))
    assert report.fixed_by_kind == {"reduction": 20 * price}


def test_a_bag_of_embeddings_costs_what_is_gathered_into_it() -> None:
    model = nn.Sequential(nn.EmbeddingBag(9, 4, mode="sum"), nn.Linear(4, 2, bias=False))
    assert flops(model, torch.zeros(3, 7, dtype=torch.long)).fixed_by_kind == {"reduction": 3 * 7 * 4}


def test_overlapping_patches_cost_what_is_added() -> None:
    model = nn.Sequential(Function(lambda x: F.fold(F.unfold(x, 3), (6, 6), 3)), nn.Linear(6, 1, bias=False))
    assert flops(model, torch.zeros(2, 1, 6, 6)).fixed_by_kind == {"reduction": 2 * 9 * 16}


@pytest.mark.parametrize(("mode", "dimensions", "price"), [("linear", 1, 4), ("bilinear", 2, 8), ("trilinear", 3, 16)])
def test_interpolation_has_a_price_for_each_element_it_makes(mode: str, dimensions: int, price: int) -> None:
    model = nn.Sequential(nn.Upsample(scale_factor=2, mode=mode), nn.Flatten(), nn.LazyLinear(1, bias=False))
    x = torch.zeros(2, 3, *[2] * dimensions)
    model(x)
    assert flops(model, x).fixed_by_kind == {"interpolation": price * 2 * 3 * 4**dimensions}


def test_interpolation_by_cubes_and_at_a_grid_costs_two_for_each_neighbour() -> None:
    grids = {2: torch.zeros(2, 5, 7, 2), 3: torch.zeros(2, 5, 7, 4, 3)}
    made = {2: 2 * 3 * 5 * 7, 3: 2 * 3 * 5 * 7 * 4}
    for function, dimensions, neighbours in (
        (lambda x: F.interpolate(x, (5, 7), mode="bicubic", align_corners=False), 2, 16),
        (lambda x: F.grid_sample(x, grids[2], align_corners=False), 2, 4),
        (lambda x: F.grid_sample(x, grids[3], align_corners=False), 3, 8),
    ):
        model = nn.Sequential(Function(function), nn.Flatten(), nn.LazyLinear(1, bias=False))
        x = torch.zeros(2, 3, *[4] * dimensions)
        model(x)
        assert flops(model, x).fixed_by_kind == {"interpolation": 2 * neighbours * made[dimensions]}


@pytest.mark.parametrize("batch", [(), (2,)], ids=["one image", "a batch"])
@pytest.mark.parametrize(("pool", "dimensions"), [(F.max_pool2d, 2), (F.avg_pool2d, 2), (F.avg_pool3d, 3)])
def test_one_size_of_a_pooling_window_stands_for_all(pool: Any, dimensions: int, batch: tuple[int, ...]) -> None:
    x = torch.zeros(*batch, 4, *[6] * dimensions)
    model = nn.Sequential(Function(lambda x: pool(x, [3])), nn.Linear(2, 1, bias=False))
    price = 1 if pool is F.max_pool2d else 2
    assert sum(flops(model, x).fixed_by_kind.values()) == price * x.numel()


def test_a_pooling_window_may_be_oblong() -> None:
    report = flops(nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.AvgPool2d((3, 2))), torch.zeros(2, 3, 6, 6))
    assert report.fixed_by_kind == {"average pooling": 2 * (2 * 4 * 36)}
