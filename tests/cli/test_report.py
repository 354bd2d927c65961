"""`granet report` after a real `granet train`."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from granet.cli import main
from refusals import Commands

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    threads = torch.get_num_threads()
    try:
        main(["train", "--epochs", "2", "--batch-size", "256", "--every", "2", "--no-dense-twin", "--out", str(folder)])
    finally:
        torch.set_num_threads(threads)
    return folder


@pytest.mark.slow
def test_page_and_picture(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    main(["report", str(runs), "--out", str(out)])
    assert capsys.readouterr().out == f"1 run in {out} and {out.with_suffix('.png')}\n"
    text = out.read_text(encoding="utf-8")
    (folder,) = runs.iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert f"{summary['test_accuracy']:.2%}" in text and f"{summary['nonzero']:,}" in text
    for layer in json.loads((folder / "layers.json").read_text()):
        assert layer["name"] in text and f'<td class="number">{layer["active"]:,}</td>' in text
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_all_folders_that_are_named_are_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = []

    def write(runs: tuple[Path, ...], out: Path) -> list[SimpleNamespace]:
        given.append((runs, out))
        return [SimpleNamespace(summary=object())] * 3

    monkeypatch.setattr("granet.report.write_report", write)
    main(["report", "a", "b"])
    assert given == [((Path("a"), Path("b")), Path("report.html"))]
    assert capsys.readouterr().out == "3 runs in report.html and report.png\n"


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ("nothing", "runs='nothing'"),
        (".", "runs='.'"),
        ("", "runs=()"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: str, subject: str, refused: Commands) -> None:
    refused(f"report {arguments}", subject)


@pytest.mark.slow
def test_a_file_that_is_no_page_is_one_line_and_exit_2(runs: Path, refused: Commands) -> None:
    refused(f"report {runs} --out page.pdf", "out='page.pdf'")
