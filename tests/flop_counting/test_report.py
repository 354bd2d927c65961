"""Reports: other masks without another pass, and what is printed and written of them."""

from __future__ import annotations

import csv
import io
import json

import pytest
import torch
from torch import nn

from granet.flop_counting import FlopsReport, LayerFlops, flops
from refusals import refused


@pytest.fixture
def report() -> FlopsReport:
    """A convolution with 54 weights at 16 positions, a linear layer with 24 at one."""
    model = nn.Sequential(
        nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 12)
    )
    return flops(model, torch.zeros(1, 3, 6, 6), masks={"0.weight": torch.arange(54).view(2, 3, 3, 3) < 9})


def test_other_active_counts(report: FlopsReport) -> None:
    assert (report.dense, report.sparse) == (2 * 16 * 54 + 48, 2 * 16 * 9 + 48)
    other = report.with_active({"0.weight": 27, "4.weight": 6, "not.used": 3})
    assert [(row.active, row.density, row.sparse) for row in other.rows] == [(27, 0.5, 2 * 16 * 27), (6, 0.25, 12)]
    assert other.dense == report.dense and other.ratio == (864 + 12) / (1728 + 48)
    assert report.with_active({}) == report
    emptied = report.with_active({"0.weight": 0}).rows[0]
    assert (emptied.active, emptied.density, emptied.sparse) == (0, 0.0, 0)


@pytest.mark.parametrize("count", [-1, 55])
def test_impossible_active_counts(report: FlopsReport, count: int) -> None:
    with pytest.raises(ValueError, match=rf"active\['0\.weight'\]={count}: must be from 0 to its 54 weights"):
        report.with_active({"0.weight": count})


def test_what_has_no_weight_is_dense() -> None:
    assert LayerFlops("scores", weights=0, active=0, dense=18, sparse=18).density == 1.0


def test_unknown_kinds(report: FlopsReport) -> None:
    with refused("kinds", "pooling"):
        report.including("pooling")


def test_text(report: FlopsReport) -> None:
    assert str(report).splitlines() == [
        "layer  shape       density  FLOPs dense  FLOPs sparse",
        "-----------------------------------------------------",
        "0      2x3x3x3      0.1667        1,728           288",
        "4      12x2         1.0000           48            48",
        "-----------------------------------------------------",
        "total  78 weights   0.4231        1,776           336",
        "0.1892 of the dense FLOPs",
        "not in the total, the same at any sparsity: average pooling 64, bias 44, normalisation 64",
    ]
    lines = str(report.including("bias")).splitlines()
    assert [line.split() for line in lines if "bias" in line] == [["(bias)", "44", "44"]]
    assert any(line.split()[-2:] == ["1,820", "380"] for line in lines)


def test_text_of_a_model_without_names_and_weights() -> None:
    class Square(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.fft(x @ x + 0j)

    with pytest.warns(UserWarning, match="as zero"):
        text = str(flops(Square(), torch.zeros(3, 3)))
    assert "(model)" in text and "(matrix product)" in text
    assert text.splitlines()[-1] == "not counted, no formula: aten::_fft_c2c"


def test_json(report: FlopsReport) -> None:
    content = json.loads(report.to_json())
    assert (content["dense"], content["sparse"], content["ratio"]) == (report.dense, report.sparse, report.ratio)
    assert content["rows"][0] == {
        "name": "0",
        "weights": 54,
        "active": 9,
        "dense": 1728,
        "sparse": 288,
        "kind": "convolution",
        "parameter": "0.weight",
        "shape": [2, 3, 3, 3],
        "density": 9 / 54,
    }
    assert {"name": "1", "kind": "normalisation", "flops": 64} in content["fixed"]
    assert content["unknown"] == []


def test_csv(report: FlopsReport) -> None:
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert [(row["name"], row["shape"], int(row["dense"]), int(row["sparse"])) for row in rows] == [
        ("0", "2x3x3x3", 1728, 288),
        ("4", "12x2", 48, 48),
    ]
