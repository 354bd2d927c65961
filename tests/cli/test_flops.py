"""`granet flops`."""

from __future__ import annotations

import csv
import json
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from granet.cli import main
from granet.flop_counting import FlopsReport, flops
from refusals import Commands


def lines(arguments: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    main(["flops", *arguments.split()])
    return capsys.readouterr().out.splitlines()


def test_budget_of_resnet50(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = f"--csv {tmp_path}/budget.csv --json {tmp_path}/budget.json"
    shown = lines(f"resnet50 --input 3x224x224 --sparsity 0.9 {files}", capsys)
    assert any(
        line.split() == ["total", "25,502,912", "weights", "0.1000", "8,178,368,512", "1,977,821,760"] for line in shown
    )
    assert any(line.split()[:3] == ["conv1", "64x3x7x7", "0.4201"] for line in shown)  # 58.00 % in the paper
    assert "0.2418 of the dense FLOPs" in shown
    rows = list(csv.DictReader((tmp_path / "budget.csv").read_text().splitlines()))
    assert len(rows) == 54
    assert sum(int(row["weights"]) - int(row["active"]) for row in rows) == round(0.9 * 25_502_912)
    content = json.loads((tmp_path / "budget.json").read_text())
    assert content["dense"] == 8_178_368_512 and content["sparse"] == sum(int(row["sparse"]) for row in rows)


@pytest.mark.parametrize(
    ("options", "densities"),
    [
        ("", [1.0, 1.0]),
        ("--sparsity 0.5 --distribution uniform", [0.5, 0.5]),
        ("--sparsity 0.5 --distribution uniform --exclude conv1.* layer*", [1.0, 0.5]),
    ],
)
def test_first_and_last_layer(options: str, densities: list[float], tmp_path: Path) -> None:
    main(["flops", "resnet20", "--input", "3x32x32", "--csv", str(tmp_path / "b.csv"), *options.split()])
    rows = list(csv.DictReader((tmp_path / "b.csv").read_text().splitlines()))
    assert [float(rows[i]["density"]) for i in (0, -1)] == densities
    assert rows[-1]["shape"] == "10x64"


@pytest.mark.parametrize(
    ("options", "shape"),
    [("--input 3x64x64", "1000x64"), ("--input 3x63x63", "10x64"), ("--input 3x32x32 --width 2", "10x128")],
)
def test_the_last_layer_has_the_classes_and_the_width(options: str, shape: str, tmp_path: Path) -> None:
    main(["flops", "resnet20", *options.split(), "--csv", str(tmp_path / "b.csv")])
    assert list(csv.DictReader((tmp_path / "b.csv").read_text().splitlines()))[-1]["shape"] == shape


class LooksAtValues(nn.Module):
    """Cannot run without values; its classifier starts at zero, which does not make it sparse."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(in_channels, 4, 3), nn.Linear(4, num_classes)
        nn.init.zeros_(self.fc.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).mean((2, 3))
        return self.fc(x if x.sum() > torch.inf else 2 * x)


class LooksWhenMade(LooksAtValues):
    """Cannot even be made without values, as networks whose depth at random is a row of numbers."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__(num_classes, in_channels)
        self.rates = torch.linspace(0, 1, 3).tolist()


class PlainProduct(nn.Module):
    """Has a weight, but no convolution or linear layer that it belongs to."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(in_channels, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


@pytest.fixture
def own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of that name, with the models above."""
    module = types.ModuleType("own_models")
    module.looks, module.looks_when_made = LooksAtValues, LooksWhenMade  # type: ignore[attr-defined]
    module.plain = PlainProduct  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_models", module)


@pytest.mark.parametrize("name", ["looks", "looks_when_made"])
@pytest.mark.usefixtures("own_models")
def test_a_model_of_ones_own_that_looks_at_values(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(f"own_models:{name} --input 2x6x6 --classes 5", capsys)
    dense = 2 * (16 * 4 * 2 * 9 + 4 * 5)
    assert any(line.split()[-2:] == [f"{dense:,}", f"{dense:,}"] for line in shown)


def test_other_models_are_counted_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the image and the network may be larger than the memory."""
    devices: list[torch.device] = []

    def count(model: nn.Module, image: Tensor, masks: dict[str, Tensor]) -> FlopsReport:
        devices.extend([image.device, *(weight.device for weight in model.parameters())])
        return flops(model, image, masks=masks)

    monkeypatch.setattr("granet.flop_counting.flops", count)
    main(["flops", "resnet20", "--input", "3x32x32"])
    assert set(devices) == {torch.device("meta")}


@pytest.mark.usefixtures("own_models")
def test_a_model_without_layers_to_sparsify_is_shown_dense(
    capsys: pytest.CaptureFixture[str], refused: Commands
) -> None:
    shown = lines("own_models:plain --input 6 --classes 5", capsys)
    assert any(line.split() == ["w", "6x5", "1.0000", "60", "60"] for line in shown)
    for option in ("--sparsity 0.5", "--exclude w"):
        refused(f"flops own_models:plain --input 6 --classes 5 {option}", "model")


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ("resnet20 --input 3x32x32 --sparsity 1", "sparsity=1.0"),
        ("resnet20 --input 3x32x32 --sparsity 0.5 --distribution ert", "distribution='ert'"),
        ("resnet20 --input 3x32x32 --exclude stem.*", "exclude='stem.*'"),
        ("resnet20 --input 3x32x32 --sparsity 0.99999", "sparsity=0.99999"),
        ("resnet20 --input 3x0x32", "input='3x0x32'"),
        ("resnet20 --input 32", "example_input of shape (1, 32)"),
        ("resnet20 --input 3x32x32 --classes 0", "num_classes=0"),
        ("resnet20 --input 3x32x32 --csv no/such/folder.csv", "csv='no/such/folder.csv'"),
        ("resnet20 --input 3x32x32 --json .", "json='.'"),
        ("resnet21 --input 3x32x32", "model='resnet21'"),
        ("vgg19 --input 3x8x8", "example_input of shape (1, 3, 8, 8)"),
        ("own_models:looks --input 2x99999999x99999999", "input='2x99999999x99999999'"),
    ],
)
@pytest.mark.usefixtures("own_models")
def test_wrong_values_one_line_exit_2(arguments: str, subject: str, refused: Commands) -> None:
    refused(f"flops {arguments}", subject)
