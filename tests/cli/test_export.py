"""`granet export`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

import granet
from deployed import assert_close
from devices import GPU
from granet.cli import main
from granet.deploy import SemiStructured
from granet.deploy.semi_structured import Layer
from quick import slow_but_for
from refusals import Commands
from runs import finished_run

IMAGES = torch.randn(3, 1, 8, 8)


@pytest.fixture(autouse=True)
def measured(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRANET_DEPLOY_CACHE", str(tmp_path_factory.mktemp("measured")))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, nn.Module]:
    """The folder of a run, and its network; commands run beside it."""
    monkeypatch.chdir(tmp_path)
    return finished_run(tmp_path / "runs")


def said(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    main(["export", *arguments.split()])
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_program_of_torch_takes_the_name_of_the_run(
    run: tuple[Path, nn.Module], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, model = run
    told = said(f"{folder} --to torch", capsys)
    size = f"{Path(f'{folder.name}.pt2').stat().st_size / 1e6:,.2f} MB"
    zeros = sum(int((parameter == 0).sum()) for parameter in model.parameters())
    assert told.startswith(f"wrote {folder.name}.pt2: {size}, {zeros:,} of ") and told.endswith(", any batch size")
    assert_close(torch.export.load(f"{folder.name}.pt2").module()(IMAGES), model(IMAGES))


def test_a_batch_size_that_is_asked_for(run: tuple[Path, nn.Module], capsys: pytest.CaptureFixture[str]) -> None:
    folder, model = run
    assert said(f"{folder} --to torch --batch 3 --out own.pt2", capsys).endswith(", the example's batch size alone")
    program = torch.export.load("own.pt2").module()
    assert_close(program(IMAGES), model(IMAGES))
    with pytest.raises(AssertionError, match="Guard failed"):
        program(IMAGES[:2])


@pytest.mark.parametrize(
    ("dtype", "close"),
    slow_but_for([("--dtype float16", 2e-2)], [("", 1e-4), ("--dtype float32", 1e-4), ("--dtype float16", 2e-2)]),
)
def test_the_runtime(dtype: str, close: float, run: tuple[Path, nn.Module], capsys: pytest.CaptureFixture[str]) -> None:
    folder, model = run
    said(f"{folder} --to runtime --batch 3 --out net.granet {dtype}", capsys)
    fast = granet.deploy.load("net.granet", engine="torch")
    expected = model(IMAGES).detach()
    assert float((fast(IMAGES) - expected).abs().max() / expected.abs().max()) <= close


def test_compact_is_smaller(run: tuple[Path, nn.Module], capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = run
    model = granet.create_model("digits_net", num_classes=10, in_channels=1).eval()
    with torch.no_grad():
        model.features[0].weight[:20] = 0
    from safetensors.torch import save_model

    save_model(model, str(folder / "model.safetensors"))
    told = said(f"{folder} --to compact", capsys)
    assert "parameters" in told and f"wrote {folder.name}-compact.pt2: " in told
    program = torch.export.load(f"{folder.name}-compact.pt2")
    assert program.state_dict["features.0.weight"].shape == (12, 1, 3, 3)
    assert_close(program.module()(IMAGES), model(IMAGES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "files", "package"),
    [("onnx", ["net.onnx"], "onnxruntime"), ("openvino", ["net.bin", "net.xml"], "openvino")],
)
def test_other_runtimes(
    to: str, files: list[str], package: str, run: tuple[Path, nn.Module], capsys: pytest.CaptureFixture[str]
) -> None:
    if missing := [name for name in ("onnx", "onnxscript", package) if find_spec(name) is None]:
        pytest.skip(f"needs {' and '.join(missing)}")
    told = said(f"{run[0]} --to {to} --out {files[-1]}", capsys)
    assert told.startswith(f"wrote {files[-1]}: ") and told.endswith(", any batch size")
    assert sorted(path.name for path in Path().glob("net.*")) == files


def test_where_2_to_4_pays_is_only_told(
    run: tuple[Path, nn.Module], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def measured(model: nn.Module, example: torch.Tensor, *, dtype: torch.dtype, tell: object) -> None:
        asked.append((tuple(example.shape), dtype))
        tell(SemiStructured((Layer("hidden.0.weight", (128, 512), 4, 10.0, 12.5),)))  # type: ignore[operator]

    monkeypatch.setattr("granet.deploy.to_semi_structured", measured)
    told = said(f"{run[0]} --to 2:4 --batch 4 --dtype float16", capsys)
    assert "0.80x: no no: 2:4 is faster in none of the 1 layers" in told
    assert asked == [((4, 1, 8, 8), torch.float16)]
    assert [path.name for path in Path().iterdir()] == ["runs"]


def test_a_file_is_replaced_if_it_is_named(
    run: tuple[Path, nn.Module], refused: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = run
    (there := Path(f"{folder.name}.granet")).write_text("older")
    refused(f"export {folder} --to runtime", "out", there, f"--out {there}")
    said(f"{folder} --to runtime --out {there}", capsys)
    assert granet.deploy.load(there, engine="torch")(IMAGES[:1]).shape == (1, 10)


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ("nothing --to torch", "name='nothing'"),
        ("runs --to torch", "network='runs'"),
        ("{run} --to torch --out net.onnx", "out='net.onnx'"),
        ("{run} --to torch --out no/net.pt2", "out='no/net.pt2'"),
        ("{run} --to 2:4 --out net.pt", "out='net.pt'"),
        ("{run} --to torch --dtype float16", "dtype='float16'"),
        ("{run} --to torch --batch 0", "batch=0"),
        pytest.param("{run} --to 2:4 --dtype float32", "dtype=torch.float32"),
        pytest.param("{run} --to 2:4", "device", marks=pytest.mark.skipif(GPU, reason="there is a GPU")),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: str, subject: str, run: tuple[Path, nn.Module], refused: Commands
) -> None:
    refused(f"export {arguments.format(run=run[0])}", subject)


def test_an_unknown_format_is_one_line_and_exit_2(run: tuple[Path, nn.Module], refused: Commands) -> None:
    refused(f"export {run[0]} --to onxx", None, "'onnx'", "granet export --help")
