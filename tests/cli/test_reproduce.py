"""`granet reproduce` as a user meets it; what it trains is a small study of the embedded digits."""

from __future__ import annotations

from pathlib import Path

import pytest

from granet.cli import main
from granet.cli import reproduce as module
from granet.studies.plasticity import Study
from granet.studies.plasticity_table import PlasticityTable
from granet.studies.reproducible import Selection
from granet.studies.reproduction import TABLES
from granet.studies.results import read_results
from granet.training import Recipe

STUDY = Study(
    Recipe(epochs=2, batch_size=128).dense_twin(),
    checkpoints=(1,),
    sparsities=(0.0,),
    rates=(0.5,),
    continue_epochs=1,
    measures=("plasticity",),
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TABLES", {**TABLES, "plasticity": lambda selection: PlasticityTable(STUDY)})


def test_it_trains_what_is_missing_keeps_it_and_goes_on(
    small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["reproduce", "plasticity", "--dry-run"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all("missing" in line for line in lines)
    assert list(tmp_path.iterdir()) == []

    main(["reproduce", "plasticity", "--device", "cpu", "--packed", "2"])
    lines = capsys.readouterr().out.splitlines()[-3:]
    assert all("measured" in line for line in lines)
    assert len(read_results(tmp_path / "results")) == len(list((tmp_path / "results" / "logs").iterdir())) == 3
    (file,) = (tmp_path / "results").glob("*.csv")
    before = file.read_text().splitlines()

    main(["reproduce", "plasticity", "--device", "cpu"])
    assert "there is nothing left to train" in capsys.readouterr().out
    # A row that is lost comes back from its run folder.
    lost = next(line for line in before if line.startswith("prune-"))  # of a branch, whose trunk is looked up too
    file.write_text("\n".join(line for line in before if line != lost) + "\n")
    main(["reproduce", "plasticity", "--device", "cpu"])
    assert "2 of 2 runs are done already" in capsys.readouterr().out
    assert sorted(file.read_text().splitlines()) == sorted(before)

    main(["reproduce", "plasticity", "--write"])
    assert "wrote docs/results/plasticity.md" in capsys.readouterr().out
    assert (tmp_path / "docs" / "results" / "plasticity.png").is_file()


@pytest.mark.parametrize("table", TABLES)
def test_a_dry_run_lists_every_cell(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", table, "--dry-run", "--results", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == list(TABLES[table](Selection()).lines(tmp_path))  # type: ignore[index]
    assert len(lines) >= 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("cifar-main --rows GMPP", "table='cifar-main': has no cell with these models, data, rows and sparsities"),
        ("budgets --models vgg19", "models=('vgg19',): must be left out, budgets has no parts by models"),
        ("plasticity --sparsities 0.9", "sparsities=(0.9,): must be left out, plasticity has no parts by sparsities"),
    ],
)
def test_wrong_parts_are_one_line(
    arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *arguments.split(), "--write"])
    assert ended.value.code == 2 and capsys.readouterr().err == f"granet: {message}\n"
    assert list(tmp_path.iterdir()) == []


def test_pages_need_matplotlib(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None if name == "matplotlib" else object())
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "budgets", "--write"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "granet: write=True: needs matplotlib, pip install 'granet[plots]'\n"


def test_the_readme_is_looked_for_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "cifar-main", "--write"])
    assert stopped.value.code == 2 and "in the root of a checkout" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
