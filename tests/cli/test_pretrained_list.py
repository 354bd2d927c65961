"""`granet pretrained`: its list in a terminal of the usual width."""

import dataclasses
import json
from pathlib import Path

import pytest

from granet.cli import main
from granet.pretrained import Pretrained, list_pretrained

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def listed(folder: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    main(["pretrained", *folder])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and not any(ELLIPSIS in line for line in lines)
    return lines


def test_nothing_is_cut_at_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = listed((), capsys, monkeypatch)
    for entry in list_pretrained():
        (line,) = (line for line in lines if f" {entry.name} " in line)
        assert f"{entry.sparsity:.2%}" in line and f"{entry.accuracy_last:.2f} %" in line
        for word in (entry.model, entry.data, entry.method):
            assert f" {word} " in line or f"={word}" in lines[0]


def test_networks_that_differ_in_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long names go on in a next line then."""
    first = Pretrained("n" * 40, "f", "resnet50_cifar", "cifar10", 10, "prune-regrow", 0.9, 0, 93.0, "r", "0", 3, 32, 1)
    other = dataclasses.replace(first, name="m", model="vgg19", data="fashion-mnist", method="granet")
    (tmp_path / "index.json").write_text(json.dumps([dataclasses.asdict(entry) for entry in (first, other)]))
    lines = listed(("--folder", str(tmp_path)), capsys, monkeypatch)
    shown = "".join(lines)
    for word in ("resnet50_cifar", "vgg19", "cifar10", "fashion-mnist", "prune-regrow", "granet", "90.00%", "93.00 %"):
        assert word in shown
    assert (
        sum(line.count("n" * 3) and line.split("\N{BOX DRAWINGS LIGHT VERTICAL}")[1].count("n") for line in lines) == 40
    )
