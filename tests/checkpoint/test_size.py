"""Files are near the information bound."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import granet
from granet.models import create_model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sparsity", [0.9, 0.95, 0.98])
def test_size_is_within_five_percent_of_the_bound(tmp_path: Path, sparsity: float, dtype: torch.dtype) -> None:
    """ResNet-20 is small and of many tensors: at 98 % its active weights take 11 kB as bfloat16, 130 names 3 kB."""
    torch.manual_seed(0)
    model = create_model("resnet20", num_classes=10)
    for tensor in model.state_dict().values():
        if tensor.ndim == 1:
            tensor.normal_()
    sparsifier = granet.sparsify(
        model, torch.optim.SGD(model.parameters(), lr=0.1), granet.Static(sparsity=sparsity, distribution="erk")
    )
    granet.save(model, tmp_path / "file", sparsifier, dtype=None if dtype == torch.float32 else dtype)
    bound = 0.0
    for name, tensor in model.state_dict().items():
        if name in sparsifier.masks:
            active = sparsifier.layers[name].active
            bound += active * dtype.itemsize + math.log2(math.comb(tensor.numel(), active)) / 8
        else:
            bound += tensor.nbytes
    assert 1 <= (tmp_path / "file").stat().st_size / bound < 1.05


def test_a_tensor_more_costs_little_beside_its_elements(tmp_path: Path) -> None:
    sizes = []
    for layers in (100, 200):
        model = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(layers)))
        granet.save(model, tmp_path / "file")
        sizes.append((tmp_path / "file").stat().st_size - 16 * layers)
    assert sizes[1] - sizes[0] < 100 * 8


def test_packing_never_costs_more_than_it_saves(tmp_path: Path) -> None:
    """Few zeros, or a small tensor: dense is smaller, and the file no larger than the elements and their names."""
    model = nn.Linear(100, 100)
    with torch.no_grad():
        model.weight[0, :50] = 0
        model.bias.zero_()
    granet.save(model, tmp_path / "file")
    assert (tmp_path / "file").stat().st_size < 4 * 10_100 + 500


def test_all_zeros_take_hardly_any_room(tmp_path: Path) -> None:
    model = nn.Linear(1000, 1000, bias=False)
    nn.init.zeros_(model.weight)
    granet.save(model, tmp_path / "file")
    assert (tmp_path / "file").stat().st_size < 1000
