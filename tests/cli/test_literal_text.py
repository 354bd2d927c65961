"""Brackets, colons and braces in a path or a name are shown as they are, not taken for rich's markup."""

import io
from pathlib import Path

import pytest
import torch

from granet.cli import main
from granet.cli.console import SweepView, create_console, results_table, sweep_table, watch
from granet.studies.jobs import Event
from granet.training import EpochRecord, Recipe, Summary

ODD = ["a[b]c", "x[/red]", "a:+1:b", "{x}[bold]"]
RECORD = EpochRecord(1, 19, 0.5, 0.1, 0.3, 0.9, None, 0.91, 0.5, 0.5)
SUMMARY = Summary(0.9, 0.9, 1, 0.9, 0.9, 100, 10, 0.1, 1.0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_train_and_report_say_where_their_files_are(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "".join(ODD)
    pytest.importorskip("matplotlib")
    threads = torch.get_num_threads()
    try:
        main(["train", "--epochs", "2", "--no-dense-twin", "--out", name])
    finally:
        torch.set_num_threads(threads)
    (folder,) = Path(name).iterdir()
    assert f"saved in {folder}\n" in capsys.readouterr().out
    (folder / "summary.json").unlink()
    page = f"{Path(name).name}.html"
    main(["report", name, "--out", page])
    picture = Path(page).with_suffix(".png")
    assert capsys.readouterr().out == f"not finished: {folder}\n1 run in {page} and {picture}\n"


@pytest.mark.parametrize("name", ODD)
def test_data_check_names_files(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(name) / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    (folder / "data_batch_1").write_bytes(b"not a batch")
    with pytest.raises(SystemExit):
        main(["data", "check", name])
    assert f"{folder / 'data_batch_1'}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ODD)
def test_bars_and_tables(name: str) -> None:
    console = create_console()
    console.file, console.width = io.StringIO(), 150

    def shown() -> str:
        text = console.file.getvalue()
        console.file.seek(0)
        console.file.truncate()
        return text

    list(watch(console, name, iter([RECORD]), 1))
    assert name in shown()
    with SweepView(console, 2) as view:
        view.show(name, Event(Recipe(), RECORD))
        console.print(view._progress)
        assert name in shown()
        view.show(name, Event(Recipe(), error="ValueError: [/x]"))
        assert f"{name} failed: ValueError: [/x]" in shown()
    shown()
    console.print(results_table({name: SUMMARY}))
    assert name in shown()
    row = {"run": "a", "data": "digits", "model": name, "method": "gmp", "sparsity_achieved": 0.9, "seed": 0}
    row |= {"seconds": 1.0, "accuracy_last": 93.0, "accuracy_best": None, "test_flops": 0.2, "settings": ""}
    console.print(sweep_table([row], {}))
    assert f"model={name}" in shown()
    console.print(sweep_table([row, row | {"model": f"other {name}"}], {}))
    assert f"other {name}" in shown()
