"""`python -m paper` as a user meets it; what it trains is a small study of the embedded digits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from granet.studies.jobs import Place
from granet.studies.plasticity import Study
from granet.training import Recipe
from granet.training.rundir import run_name
from paper import reproduce as module
from paper.__main__ import main
from paper.budget_table import learning_cells
from paper.plasticity_table import PlasticityTable
from paper.registry import TABLES
from paper.results import read_results
from refusals import Commands

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


@pytest.mark.slow
def test_it_trains_what_is_missing_keeps_it_and_goes_on(
    small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["plasticity", "--dry-run"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all("missing" in line for line in lines)
    assert list(tmp_path.iterdir()) == []

    main(["plasticity", "--device", "cpu", "--packed", "2"])
    lines = capsys.readouterr().out.splitlines()[-3:]
    assert all("measured" in line for line in lines)
    assert len(read_results(tmp_path / "results")) == len(list((tmp_path / "results" / "logs").iterdir())) == 3
    (file,) = (tmp_path / "results").glob("*.csv")
    before = file.read_text().splitlines()

    main(["plasticity", "--device", "cpu"])
    assert "there is nothing left to train" in capsys.readouterr().out
    # A row that is lost comes back from its run folder.
    lost = next(line for line in before if line.startswith("prune-"))  # of a branch, whose trunk is looked up too
    file.write_text("\n".join(line for line in before if line != lost) + "\n")
    main(["plasticity", "--device", "cpu"])
    assert "2 of 2 runs are done already" in capsys.readouterr().out
    assert sorted(file.read_text().splitlines()) == sorted(before)

    (tmp_path / "docs" / "results").mkdir(parents=True)
    main(["plasticity", "--write"])
    assert "wrote docs/results/plasticity.md" in capsys.readouterr().out
    assert (tmp_path / "docs" / "results" / "plasticity.png").is_file()


@pytest.mark.parametrize(
    ("table", "count", "missing", "cell"),
    [  # two models on two data sets: four dense cells, and three sparsities of each method
        ("cifar-main", 4 + 12 * 11, "0 of 3", "VGG-19 CIFAR-10 SNIP 90% 0 of 3 seeds paper 93.63 ours -"),
        ("zoo", 79, "0 of 1", "VGG-19 CIFAR-10 SNIP 95% 0 of 1 seeds paper 93.43 ours -"),
        ("cifar-uniform", 4 + 12 * 4, "0 of 3", "VGG-19 CIFAR-100 Dense 0% 0 of 3 seeds paper 73.43 ours -"),
        (
            "retraining",
            4 + 12 * 4,
            "0 of 3",
            "ResNet-50 CIFAR-100 GraNet_2x (s_i=0) 98% 0 of 3 seeds paper 77.15 ours -",
        ),
        ("reinit", 24, "0 of 3", "VGG-19 CIFAR-10 GMP 90% 0 of 3 seeds paper - ours -"),
        ("beyond", 18, "0 of 3", "VGG-19 CIFAR-100 + all three 98% 0 of 3 seeds paper - ours -"),
        # checkpoints, rates and with or without regeneration from either of two trunks
        ("plasticity", 2 + 2 * 32, "missing", "pre-trained 0.9 seed 0 missing ours -"),
    ],
)
def test_a_dry_run_lists_every_cell(
    table: str, count: int, missing: str, cell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([table, "--dry-run", "--results", str(tmp_path)])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(set(lines)) == count and cell in lines
    assert all(line.endswith(" ours -") for line in lines)
    unknown = [line for line in lines if f" {missing} " not in line]  # settings of STR that the paper does not tell
    assert len(unknown) == (9 if table == "cifar-main" else 0)
    assert all(" STR " in line and " no recipe " in line for line in unknown)


def test_a_dry_run_of_the_budgets_recounts_what_can_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The budgets that the paper prints need no training; those that are learned do."""
    main(["budgets", "--dry-run", "--results", str(tmp_path)])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "ResNet-50 ImageNet GraNet (s_i=0) 90% recounted paper 89.99 ours 90.00 FLOPs 0.163" in lines
    learned = [line for line in lines if "recounted" not in line]
    assert "VGG-19 CIFAR-100 + all three 98% 0 of 3 seeds FLOPs -" in learned and len(learned) < len(lines) == 65
    assert all(line.endswith(" 0 of 3 seeds FLOPs -") for line in learned)


@pytest.mark.parametrize("folder", ["nothere", "../nothere", "afile"])
def test_a_dry_run_needs_the_folder_that_it_is_given(folder: str, refused: Commands) -> None:
    """Else every run would seem to be missing."""
    refused(f"cifar-main --dry-run --results {folder}", "results", folder)


def test_results_may_be_kept_in_a_new_folder(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "train_all", lambda *_: iter(()))
    main(["plasticity", "--device", "cpu", "--results", "new/folder"])
    assert (tmp_path / "new" / "folder").is_dir()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("zoo --rows SNIP GMPP", "rows='GMPP': zoo has no such part; it has 'Dense', 'SNIP', "),
        (
            "cifar-main --sparsities 0.95 0.91",
            "sparsities=0.91: cifar-main has no such part; it has 0.0, 0.9, 0.95",
        ),
        ("cifar-main --models vgg", "models='vgg': cifar-main has no such part; it has 'vgg19', 'resnet50'"),
        ("cifar-main --rows SET --models resnet50", "table='cifar-main': has no cell with these models, data, rows"),
        ("cifar-main --seeds 0 0", "seeds=(0, 0): must have each once"),
        ("cifar-main --seeds 0", "write=True: makes whole pages, so seeds, models, data, rows and sparsities must be"),
        ("zoo --dry-run", "write=True: a dry run writes nothing; leave one of the two out"),
        ("zoo --results nosuch", "results='nosuch': must be a folder with files of results, *.csv"),
        ("budgets --models vgg19", "models=('vgg19',): must be left out, budgets has no parts by models"),
        ("plasticity --sparsities 0.9", "sparsities=(0.9,): must be left out, plasticity has no parts by sparsities"),
    ],
)
def test_wrong_parts_are_one_line(
    arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*arguments.split(), "--write"])
    assert ended.value.code == 2 and capsys.readouterr().err.startswith(f"python -m paper: {message}")
    assert list(tmp_path.iterdir()) == []


def test_pages_need_matplotlib(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None if name == "matplotlib" else object())
    with pytest.raises(SystemExit) as ended:
        main(["budgets", "--write"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "python -m paper: write=True: needs matplotlib, pip install 'granet[plots]'\n"


@pytest.mark.parametrize(("table", "there"), [("cifar-main", "docs/results"), ("zoo", "."), ("budgets", ".")])
def test_pages_are_made_in_a_checkout_alone(
    table: str, there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the main table need a README too, which is looked for before anything is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    results = Path(__file__).parents[2] / "results"
    with pytest.raises(SystemExit) as stopped:
        main([table, "--write", "--results", str(results)])
    assert stopped.value.code == 2 and "in the root of a checkout" in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("option", ["out", "results"])
def test_folders_that_cannot_be_written_to_are_refused_before_the_first_run(
    option: str, small: None, refused: Commands
) -> None:
    refused(f"plasticity --device cpu --{option} afile", option, "afile", begun=True)


def test_options_say_how_runs_are_trained(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def train(console: object, recipes: object, place: Place, packed: int) -> Iterator[Recipe]:
        found.append((place, packed))
        return iter(())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "train_all", train)
    options = ["--out", "out", "--data-dir", "images", "--device", "cpu:0", "--packed", "3"]
    main(["plasticity", *options])
    assert found == [(Place(torch.device("cpu:0"), Path("out"), Path("images")), 3)]


def test_images_that_are_not_there_are_told_before_the_first_run(
    tmp_path: Path, refused: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(module, "train_all")
    refused(f"zoo --data-dir {tmp_path} --device cpu", Path("cifar10"), ..., tmp_path)


def test_a_log_without_what_is_read_from_it_is_one_line(tmp_path: Path, refused: Commands) -> None:
    run = run_name(learning_cells()[0].recipes(0)[-1])
    path = tmp_path / "logs" / f"{run}.json"
    path.parent.mkdir()
    path.write_text('{"layers": []}')
    refused(f"budgets --dry-run --results {tmp_path}", path, ..., "'updates'", begun=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "terminal", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_it_runs_in_a_checkout_in_a_terminal_that_has_only_ascii(terminal: dict[str, str]) -> None:
    called = [sys.executable, "-m", "paper", "cifar-main", "--dry-run"]
    where = Path(__file__).parents[2]
    done = subprocess.run(
        called, cwd=where, env={**os.environ, **terminal}, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r" \xb1 " in done.stdout and done.stdout.isascii()


def test_it_goes_on_after_it_was_stopped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(module.Reproduce, "run", stop)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs in the background ignore it
    try:
        with pytest.raises(SystemExit) as ended:
            main(["zoo"])
    finally:
        signal.signal(signal.SIGINT, before)
    said = "python -m paper: stopped; the same command goes on from the last checkpoint\n"
    assert (ended.value.code, capsys.readouterr().err) == (130, said)


def test_folders_with_too_long_a_name(refused: Commands) -> None:
    refused(["zoo", "--dry-run", "--results", "x" * 300], None, ..., "x" * 300, "(File name too long)")


@pytest.mark.parametrize(("arguments", "says"), [("imagenet", "'imagenet'"), ("zoo --seeds one", "'one'"), ("", "zoo")])
def test_arguments_that_cannot_be_understood(arguments: str, says: str, refused: Commands) -> None:
    refused(arguments, None, ..., says, "; see python -m paper --help")
