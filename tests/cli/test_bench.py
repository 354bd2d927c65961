"""`granet bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import granet
from granet.cli import main
from granet.deploy.bench import Comparison, Entrant, Result
from granet.deploy.bench.turns import Times
from granet.deploy.engines import processors
from refusals import Commands


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For a batch of two."""
    monkeypatch.setenv("GRANET_DEPLOY_CACHE", str(tmp_path / "measured"))
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    compiled = granet.deploy.compile(model, torch.randn(2, 3, 8, 8), engine="torch")
    granet.deploy.save(compiled, tmp_path / "net.granet")
    return tmp_path / "net.granet"


@pytest.mark.slow
def test_a_file_is_compared_as_its_operators_in_pytorch(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("granet.deploy.bench.entrants", lambda model: [Entrant("PyTorch", "PyTorch", model)])
    written = file.with_suffix(".json")
    main(["bench", str(file), "--threads", "1", "--seconds", "0.01", "--json", str(written)])
    said = capsys.readouterr().out
    assert "net.granet, batch 2, one thread" in said and "best dense engine in float32" in said
    content = json.loads(written.read_text())
    assert content["network"] == str(file) and content["machine"]["torch"] == torch.__version__
    (one,) = content["comparisons"]
    assert (one["batch"], one["threads"], one["best_dense"]) == (2, 1, "PyTorch")
    assert one["results"][0]["difference"] == 0 and one["results"][0]["over_best"] == 1


def test_a_table_for_every_batch_and_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The published network, with times that are given."""
    asked = []

    def injected(field: list[Entrant], inputs: tuple[torch.Tensor, ...], threads: int, seconds: float) -> Comparison:
        asked.append((tuple(inputs[0].shape), threads, seconds))
        times = {"granet": 0.002, "PyTorch": 0.04, "OpenVINO": 0.01}
        results = [
            Result(
                one.label, "float32", one.label != "granet", Times(times[one.label], 0.001, 0), 1e-7, 1e-8, 10**6, None
            )
            for one in field
            if one.label in times
        ]
        return Comparison(len(inputs[0]), threads, results, {"ONNX Runtime": "not installed: pip install onnxruntime"})

    monkeypatch.setattr("granet.deploy.bench.compare", injected)
    monkeypatch.setenv("COLUMNS", "80")
    main(["bench", granet.list_pretrained()[0].name, "--batch", "1", "3", "--seconds", "0.5"])
    counts = sorted({1, processors()})
    assert asked == [((batch, 3, 32, 32), count, 0.5) for batch in (1, 3) for count in counts]
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if line.startswith("│")) <= 80
    rows = [line.strip("│").split() for line in lines if line.startswith("│ granet ")]
    assert rows[0] == [
        "granet",
        *(each for cell in ("2", "1", "500", "5.00", "1e-07", "1.00", "-") for each in ("│", cell)),
    ]
    assert "without ONNX Runtime: not installed: pip install onnxruntime" in lines
    assert lines.count(next(line for line in lines if "granet is 5.00 times as fast" in line)) == 2 * len(counts)


def test_refusals(refused: Commands, file: Path) -> None:
    name = granet.list_pretrained()[0].name
    (file.parent / "afolder").mkdir()
    refused("bench nothing", "name", "nothing")
    refused("bench a/b", "network", "a/b")
    refused(f"bench {name} --batch 0", "batch", 0)
    refused(f"bench {name} --threads 0", "threads", 0)
    refused(f"bench {name} --threads {processors() + 1}", "threads", processors() + 1)
    refused(f"bench {name} --seconds 0", "seconds", 0.0)
    refused(f"bench {name} --json afolder", "json", "afolder")
    refused("bench none.granet", Path("none.granet"))
    refused(["bench", file, "--batch", 1], "batch", (1,), "left out")
    file.write_bytes(file.read_bytes()[:-5])
    refused(["bench", file], file)
