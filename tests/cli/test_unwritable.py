"""A place that cannot be written to is one line and exit code 2, in every command that writes."""

import errno
import json
import shutil
from pathlib import Path

import pytest

from granet.cli import main
from granet.cli.flops import Flops
from granet.training import EpochRecord, RunDir
from quick import slow_but_for
from refusals import Commands

STUDY = Path(__file__).parents[2] / "recipes" / "studies" / "plasticity-digits.toml"
ZOO = Path(__file__).parents[2] / "recipes" / "zoo-digits.toml"


@pytest.mark.parametrize("out", ["afile", "afile/sub", "/proc/granet-no-such"])
@pytest.mark.parametrize(("command", "spec"), slow_but_for([("sweep", ZOO)], [("sweep", ZOO), ("plasticity", STUDY)]))
def test_a_study_needs_a_folder(command: str, spec: Path, out: str, refused: Commands) -> None:
    refused([command, spec, "--out", out], "out", out)


def test_the_table_of_a_sweep(refused: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.cli.many_runs.train_all", lambda _, recipes, *__: iter(recipes[:1]))
    (tmp_path / "runs" / "results.csv").mkdir(parents=True)
    refused(["sweep", ZOO], "out", "runs", "(Is a directory)", begun=True)


@pytest.mark.slow
def test_the_results_of_a_plasticity_study(refused: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.cli.many_runs.train_all", lambda *_: iter([]))
    (tmp_path / "here" / "plasticity.csv").mkdir(parents=True)
    refused(["plasticity", STUDY, "--out", "here"], "out", "here", "(Is a directory)", begun=True)


@pytest.mark.slow
def test_files_larger_than_a_limit_end_training(refused: Commands) -> None:
    resource = pytest.importorskip("resource")  # not on Windows
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))
    try:
        for seconds in (0, 60):  # a checkpoint is too large, or the weights at the end are
            options = f"--epochs 2 --no-dense-twin --checkpoint-every {seconds}"
            refused(f"train {options}", "out", "runs", "(File too large)", begun=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epochs", "seconds"), [(2, 0), (2, 60), (1, 60)], ids=["a checkpoint", "the next epoch", "the end"]
)
def test_a_run_folder_that_is_removed_ends_training(
    refused: Commands, monkeypatch: pytest.MonkeyPatch, epochs: int, seconds: int
) -> None:
    append = RunDir.append

    def remove(folder: RunDir, record: EpochRecord) -> None:
        append(folder, record)
        if record.epoch == 1:
            shutil.rmtree(folder.path)

    monkeypatch.setattr(RunDir, "append", remove)
    options = f"--epochs {epochs} --method static --no-dense-twin --checkpoint-every {seconds}"
    refused(f"train {options}", "out", "runs", "digits-digits_net-static-0.9-seed0-", begun=True)


@pytest.mark.parametrize("option", ["json", "csv"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_file_of_flops(option: str, number: int, refused: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, *arguments: object, **options: object) -> None:
        raise OSError(number, "why")

    monkeypatch.setattr(Path, "write_text", fail)
    refused(f"flops resnet20 --input 3x32x32 --{option} f", option, "f", "(why)", begun=True)


@pytest.mark.parametrize("same", ["f", "./f", "sub/../f"])
def test_two_reports_of_flops_need_two_files(same: str, refused: Commands, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    refused(f"flops resnet20 --input 3x32x32 --json f --csv {same}", "csv", Path(same))


def test_a_full_disk_names_the_file_not_a_run_folder(refused: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a command has no word of its own for it."""
    for name, shown in (("results/a.csv", "results/a.csv"), (None, "a file")):

        def fail(flops: Flops, name: str | None = name) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", name)

        monkeypatch.setattr(Flops, "report", fail)
        refused("flops resnet20 --input 3x32x32", Path(shown), ..., "(No space left on device)")


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--no-dense-twin", "--out"),
        ("data", "check"),
        ("flops", "resnet20", "--input", "3x32x32", "--json"),
        ("pretrained", "--folder"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_name_that_is_too_long(arguments: tuple[str, ...], refused: Commands) -> None:
    refused([*arguments, "x" * 300], None, ..., "x" * 300, "(File name too long)")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_folder_that_one_may_not_look_into(number: int, refused: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path) -> bool:
        raise PermissionError(number, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", deny)
    refused("pretrained --folder f", Path("f"), ..., "(Permission denied)")


def test_any_other_error_of_the_system_is_not_taken_for_one_of_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(flops: Flops) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr(Flops, "report", fail)
    with pytest.raises(ConnectionResetError):
        main(["flops", "resnet20", "--input", "3x32x32"])


@pytest.mark.parametrize("folder", ["notthere", "afile"])
def test_pretrained_networks_need_a_folder(folder: str, refused: Commands) -> None:
    refused(f"pretrained --folder {folder}", "folder", folder)


def test_an_empty_folder_of_pretrained_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["pretrained", "--folder", str(tmp_path)])
    assert capsys.readouterr().out == "none yet\n"
    (tmp_path / "index.json").write_text(json.dumps([]))
    main(["pretrained", "--folder", str(tmp_path)])
    assert capsys.readouterr().out == "none yet\n"
