"""The command line as a user meets it: its files, its exit code, and where that is the point, a real process."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import granet
from granet.cli import main
from granet.training import Recipe
from quick import slow_but_for
from refusals import Commands


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(main, tmp_path, monkeypatch, capsys)


def command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, "-m", "granet", *arguments], cwd=cwd, env=settings, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_a_model_in_the_current_folder_is_found(tmp_path: Path) -> None:
    """Also by the installed command, whose own folder Python looks in instead: `-P` leaves the current one out."""
    (tmp_path / "mine.py").write_text("from torch import nn\n\n\ndef net():\n    return nn.Linear(8, 4)\n")
    (tmp_path / "rich.py").write_text("raise ImportError('not the rich that is installed')\n")
    called = [sys.executable, "-P", "-m", "granet", "flops", "mine:net", "--input", "8", "--sparsity", "0.5"]
    done = subprocess.run(called, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """What a command prints that is run in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(arguments: str) -> str:
        threads = torch.get_num_threads()
        try:
            main(arguments.split())
        finally:
            torch.set_num_threads(threads)
        return capsys.readouterr().out

    return run


def test_train_writes_both_runs_and_the_table(tmp_path: Path, printed: Callable[[str], str]) -> None:
    told = printed("train --epochs 2 --sparsity 0.8 --batch-size 256 --every 2 --out here")
    runs = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert [name.rpartition("-")[0] for name in runs] == [
        "digits-digits_net-dense-seed0",
        "digits-digits_net-granet-0.8-seed0",
    ]
    for name in runs:
        folder = tmp_path / "here" / name
        assert name in told
        files = {path.name for path in folder.iterdir()}
        sparse = {"layers.json", "updates.jsonl"} if "granet" in name else set()
        assert files == {"config.json", "metrics.jsonl", "summary.json", "model.safetensors", "curves.png"} | sparse
        recipe = Recipe.from_dict(json.loads((folder / "config.json").read_text())["recipe"])
        assert recipe.epochs == 2
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((folder / "summary.json").read_text())
        assert len(records) == 2 and records[-1]["test_accuracy"] == summary["test_accuracy"]
        assert f"{summary['test_accuracy']:.2%}" in told and f"{summary['nonzero']:,}" in told
        weights = load_file(folder / "model.safetensors")
        sparsified = [weight for key, weight in weights.items() if key.endswith("weight") and weight.ndim > 1]
        zeros = sum(int((weight == 0).sum()) for weight in sparsified)
        expected = round(0.8 * 159_264) if "granet" in name else 0
        assert zeros >= expected and zeros - expected <= 50  # an active weight may happen to be zero, not many
    for words in ("last epoch", "best epoch", "80.000%", "159,978", "FLOPs", "seconds"):
        assert words in told


def test_options_reach_the_recipe_and_a_finished_run_is_not_repeated(
    tmp_path: Path, printed: Callable[[str], str]
) -> None:
    options = (
        "train --method rigl --sparsity 0.7 --epochs 2 --every 3 --seed 5 --lr 0.02 --batch-size 100 --no-dense-twin"
    )
    first = printed(options)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("digits-digits_net-rigl-0.7-seed5-")
    config = json.loads((folder / "config.json").read_text())
    assert Recipe.from_dict(config["recipe"]) == Recipe(
        method="rigl", method_fields={"sparsity": 0.7, "every": 3}, epochs=2, seed=5, lr=0.02, batch_size=100
    )
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    second = printed(options)
    assert "done already" in second
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert [line for line in second.splitlines() if "accuracy" in line] == [
        line for line in first.splitlines() if "accuracy" in line
    ]


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ("--sparsity 1.0", "sparsity=1.0"),
        ("--sparsity -0.1", "sparsity=-0.1"),
        ("--initial-sparsity 0.95", "initial_sparsity=0.95"),
        ("--method gmp --initial-sparsity 0.5", "initial_sparsity=0.5"),
        ("--method static --every 10", "every=10"),
        ("--method graent", "method='graent'"),
        ("--every 0", "every=0"),
        ("--every often", "every='often'"),
        ("--epochs 0", "epochs=0"),
        ("--batch-size 2000", "batch_size=2000"),
        ("--lr 0", "lr=0.0"),
        ("--device tpu9", "device='tpu9'"),
        ("--device hpu", "device='hpu'"),  # torch looks for a module of that name
        ("--method dense --device meta", "device='meta'"),
        *((f"--threads {number}", f"threads={number}") for number in (0, -1, 1025, 99999999999)),
        ("--data digit", "data='digit'"),
        ("--model resnet21", "model='resnet21'"),
    ],
)
def test_wrong_values_one_line_exit_2_no_folder(arguments: str, subject: str, refused: Commands) -> None:
    """In this process, to be quick; one of them as a real process below."""
    refused(f"train {arguments}", subject)


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["train", "--out", ""], "--out"),
        (["train", "--out="], "--out="),
        (["train", "--device", "", "--epochs", "1"], "--device"),
        (["train", ""], "train"),
        (["sweep", "grid.toml", "--data-dir", ""], "--data-dir"),
        (["report", "runs", ""], "runs"),
        ([""], "granet"),
    ],
)
def test_an_empty_argument_is_refused(arguments: list[str], where: str, refused: Commands) -> None:
    """As a path it would be the current folder."""
    refused(arguments, f"'' after {where}")


def test_none_is_no_value(refused: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be the default, which is not what somebody asks for who gives an option."""
    for arguments in ("train --epochs 1 --seed None", "train --epochs 1 --method None", "report runs --out None"):
        refused(arguments, None, ..., "'None'")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "None}" not in capsys.readouterr().out


@pytest.mark.slow
def test_wrong_value_in_a_real_process(tmp_path: Path) -> None:
    done = command("train", "--sparsity", "1.5", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "granet: sparsity=1.5: must be in [0, 1)\n"
    assert "Traceback" not in done.stdout


@pytest.mark.slow
def test_unknown_option_and_command(tmp_path: Path) -> None:
    for arguments in (("train", "--sparsty", "0.9"), ("trian",), ("train", "--epochs", "many")):
        done = command(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("granet: ") and done.stderr.count("\n") == 1


def test_methods_lists_all_with_what_they_need(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    main(["methods"])
    lines = capsys.readouterr().out.splitlines()
    bar = "\N{BOX DRAWINGS LIGHT VERTICAL}"
    rows = [[cell.strip() for cell in line.split(bar)[1:-1]] for line in lines if line.startswith(bar)]
    assert len(rows) == len(granet.list_methods())  # none takes two lines
    cells = {name: rest for name, *rest in rows}
    assert max(len(line) for line in lines[: len(rows) + 6]) <= 100
    for info in granet.list_methods():
        assert f"{info.name}: {info.summary} ({info.paper})" in lines
        flags = [info.needs_batches, info.needs_trained, info.regrows, info.takes_pattern, info.exact_target]
        assert cells[info.name] == [info.when, *("yes" if flag else "-" for flag in flags)]
    assert cells["granet"] == ["during, from dense or sparse", "-", "-", "yes", "yes", "yes"]
    assert cells["sis"] == ["after training", "yes", "yes", "-", "yes", "-"]
    assert cells["wanda"] == ["after training", "yes", "yes", "-", "yes", "yes"]
    groups = [when for when, _ in itertools.groupby(cells.values(), key=lambda row: row[0])]
    assert len(groups) == len(set(groups)) == 5  # methods of a kind stand together


def test_methods_in_markdown_is_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    main(["methods", "--markdown"])
    assert capsys.readouterr().out == (Path(__file__).parents[1] / "docs" / "methods.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_version_and_help(tmp_path: Path) -> None:
    assert command("--version", cwd=tmp_path).stdout == f"granet {granet.__version__}\n"
    done = command("train", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--sparsity", "--no-dense-twin", "--initial-sparsity", "--device"))


@pytest.mark.parametrize("absent", ["tyro", "rich"])
def test_missing_extra_is_named(
    absent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == absent else find(name))
    with pytest.raises(SystemExit) as stop:
        main(["methods"])
    assert absent in str(stop.value.code) and "granet[cli]" in str(stop.value.code)


def test_data_check_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"not a batch")
    with pytest.raises(SystemExit) as stop:
        main(["data", "check", str(tmp_path)])
    assert stop.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("wrong") and "data_batch_1" in line for line in lines)
    assert any(line.startswith("missing") and "test_batch" in line for line in lines)


@pytest.mark.parametrize(("statuses", "code"), [(["ok", "ok"], None), (["ok", "wrong"], 1), (["wrong", "ok"], 1)])
def test_data_check_fails_if_one_file_does(
    statuses: list[str], code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from granet.data import CheckResult

    monkeypatch.setattr("granet.data.check", lambda folder: [CheckResult(folder, one, "") for one in statuses])
    with nullcontext() if code is None else pytest.raises(SystemExit, match=str(code)):
        main(["data", "check", str(tmp_path)])


def test_data_check_of_a_folder_without_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(SystemExit) as stop:
            main(["data", "check", str(folder)])
        assert stop.value.code == 2
        assert str(folder) in capsys.readouterr().err


@pytest.mark.slow
def test_observers_reach_the_metrics_and_the_dense_twin_has_those_it_can(
    tmp_path: Path, printed: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed("train --epochs 2 --every 10 --observe overlap --observe dormant")
    for name, wanted in (("granet", {"overlap", "dormant"}), ("dense", {"dormant"})):
        (folder,) = (tmp_path / "runs").glob(f"*-{name}-*")
        last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
        assert {key.partition(".")[0] for key in last["observed"]} == wanted
    with pytest.raises(SystemExit) as stop:
        printed("train --observe rank")
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "") and "observe='rank': must be one of overlap, " in err


@pytest.mark.parametrize(
    "arguments",
    slow_but_for([["train", "--help"]], [["train", "--help"], ["methods"], ["data", "--help"], ["--version"]]),
)
def test_a_reader_that_leaves_early_ends_it_quietly(arguments: list[str]) -> None:
    """As `granet train --help | head` does; here nobody reads from the beginning.

    Few lines wait in a buffer until the end.
    """
    reading, writing = os.pipe()
    os.close(reading)
    called = [sys.executable, "-m", "granet", *arguments]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(called, stdout=writing, stderr=subprocess.PIPE, timeout=300, env=buffered)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_command_may_have_no_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python says it where the shell has closed it, with `>&-`."""
    monkeypatch.setattr(sys, "stdout", None)
    main(["--version"])


BY_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
STATIC = "train --epochs 1 --method static --no-dense-twin --out ±"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "terminal", "shown"),
    [
        (STATIC, {"PYTHONIOENCODING": "ascii"}, r"saved in \xb1"),
        (STATIC, BY_LOCALE, r"saved in \udcc2\udcb1"),
    ],
)
def test_a_terminal_that_has_only_ascii(arguments: str, terminal: dict[str, str], shown: str, tmp_path: Path) -> None:
    done = command(*arguments.split(), cwd=tmp_path, **terminal)
    assert (done.returncode, done.stderr) == (0, "")
    assert shown in done.stdout and done.stdout.isascii()


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        ("Flops", ["flops", "resnet20", "--input", "3x32x32"], "granet: stopped\n"),
        ("Train", ["train"], "granet: stopped; the same command goes on from the last checkpoint\n"),
        ("Report", ["report", "train"], "granet: stopped\n"),
    ],
)
def test_only_what_can_be_taken_up_again_says_so_when_stopped(
    command: str,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A polite kill is as good as Ctrl-C."""

    def stop(*_: object) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # it would end the tests
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(f"granet.cli.{command.lower()}.{command}.run", stop)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (ended.value.code, capsys.readouterr().err) == (130, said)
