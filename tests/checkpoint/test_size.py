"""Files are near the information bound."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import granet


def network() -> nn.Module:
    """A small VGG: under ERK its first layers stay dense and its last ones are thinner than the average."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 64), (64, 128), (128, 256), (256, 512), (512, 512)):
        layers += [nn.Conv2d(inputs, outputs, 3, bias=False), nn.BatchNorm2d(outputs)]
    model = nn.Sequential(*layers, nn.Linear(512, 10))
    for tensor in model.state_dict().values():
        if tensor.ndim == 1:
            tensor.normal_()
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sparsity", [0.9, 0.95, 0.98])
def test_size_is_within_five_percent_of_the_bound(tmp_path: Path, sparsity: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = network()
    sparsifier = granet.sparsify(
        model, torch.optim.SGD(model.parameters(), lr=0.1), granet.Static(sparsity=sparsity, distribution="erk")
    )
    granet.save(tmp_path / "file", model, sparsifier, dtype=None if dtype == torch.float32 else dtype)
    bound = 0.0
    for name, tensor in model.state_dict().items():
        if name in sparsifier.masks:
            size, active = tensor.numel(), sparsifier.layers[name].active
            shares = [share for share in (active / size, 1 - active / size) if share > 0]
            bound += active * dtype.itemsize - size * sum(share * math.log2(share) for share in shares) / 8
        else:
            bound += tensor.nbytes
    assert 1 <= (tmp_path / "file").stat().st_size / bound < 1.03


def test_packing_never_costs_more_than_it_saves(tmp_path: Path) -> None:
    """Few zeros, or a small tensor: dense is smaller, and the file no larger than the elements and their names."""
    model = nn.Linear(100, 100)
    with torch.no_grad():
        model.weight[0, :50] = 0
        model.bias.zero_()
    granet.save(tmp_path / "file", model)
    assert (tmp_path / "file").stat().st_size < 4 * 10_100 + 500


def test_all_zeros_take_hardly_any_room(tmp_path: Path) -> None:
    model = nn.Linear(1000, 1000, bias=False)
    nn.init.zeros_(model.weight)
    granet.save(tmp_path / "file", model)
    assert (tmp_path / "file").stat().st_size < 1000
