"""A place that cannot be written to is one line and exit code 2, in every command that writes."""

import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from granet.cli import main
from granet.cli.flops import Flops
from granet.training import EpochRecord, RunDir

STUDY = Path(__file__).parents[2] / "recipes" / "studies" / "plasticity-digits.toml"
ZOO = Path(__file__).parents[2] / "recipes" / "zoo-digits.toml"
Refused = Callable[..., str]  # the fixture of conftest.py


@pytest.mark.parametrize("out", ["afile", "afile/sub", "/proc/granet-no-such"])
@pytest.mark.parametrize(("command", "spec"), [("sweep", ZOO), ("plasticity", STUDY)])
def test_a_study_needs_a_folder(command: str, spec: Path, out: str, refused: Refused, tmp_path: Path) -> None:
    said = refused(command, spec, "--out", out)
    assert said.startswith(f"granet: out={out!r}: must be a folder that can be written to (")
    assert [path.name for path in tmp_path.iterdir()] == ["afile"]


def test_the_table_of_a_sweep(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.cli.many_runs.train_all", lambda _, recipes, *__: iter(recipes[:1]))
    (tmp_path / "runs" / "results.csv").mkdir(parents=True)
    assert refused("sweep", ZOO) == "granet: out='runs': must be a folder that can be written to (Is a directory)\n"


def test_the_results_of_a_plasticity_study(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.cli.many_runs.train_all", lambda *_: iter([]))
    (tmp_path / "here" / "plasticity.csv").mkdir(parents=True)
    said = refused("plasticity", STUDY, "--out", "here")
    assert said == "granet: out='here': must be a folder that can be written to (Is a directory)\n"


def test_files_larger_than_a_limit_end_training(refused: Refused) -> None:
    resource = pytest.importorskip("resource")  # not on Windows
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))
    try:
        for seconds in (0, 60):  # a checkpoint is too large, or the weights at the end are
            said = refused("train", "--epochs", 2, "--no-dense-twin", "--checkpoint-every", seconds)
            assert said == "granet: out='runs': must be a folder that can be written to (File too large)\n"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("epochs", "seconds"), [(2, 0), (2, 60), (1, 60)], ids=["a checkpoint", "the next epoch", "the end"]
)
def test_a_run_folder_that_is_removed_ends_training(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, epochs: int, seconds: int
) -> None:
    append = RunDir.append

    def remove(folder: RunDir, record: EpochRecord) -> None:
        append(folder, record)
        if record.epoch == 1:
            shutil.rmtree(folder.path)

    monkeypatch.setattr(RunDir, "append", remove)
    options = ("--method", "static", "--no-dense-twin", "--checkpoint-every", seconds)
    said = refused("train", "--epochs", epochs, *options)
    assert re.fullmatch(
        r"granet: out='runs': digits-digits_net-static-0.9-seed0-\w+ in it was removed while it was trained\n", said
    )


@pytest.mark.parametrize("option", ["json", "csv"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_file_of_flops(option: str, number: int, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, *arguments: object, **options: object) -> None:
        raise OSError(number, "why")

    monkeypatch.setattr(Path, "write_text", fail)
    said = refused("flops", "resnet20", "--input", "3x32x32", f"--{option}", "f")
    assert said == f"granet: {option}='f': cannot be written (why)\n"


@pytest.mark.parametrize("same", ["f", "./f", "sub/../f"])
def test_two_reports_of_flops_need_two_files(same: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    said = refused("flops", "resnet20", "--input", "3x32x32", "--json", "f", "--csv", same)
    assert said == f"granet: csv={str(Path(same))!r}: must be another file than that of json\n"
    assert not (tmp_path / "f").exists()


def test_a_full_disk_names_the_file_not_a_run_folder(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a command has no word of its own for it."""
    for name, shown in (("results/a.csv", "results/a.csv"), (None, "a file")):

        def fail(flops: Flops, name: str | None = name) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", name)

        monkeypatch.setattr(Flops, "report", fail)
        said = refused("flops", "resnet20", "--input", "3x32x32")
        assert said == f"granet: {shown}: cannot be written (No space left on device)\n"


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
def test_a_name_that_is_too_long(arguments: tuple[str, ...], refused: Refused, tmp_path: Path) -> None:
    said = refused(*arguments, "x" * 300)
    assert re.fullmatch(r"granet: x{300}(/.*)?: cannot be looked at \(File name too long\)\n", said)
    assert [path.name for path in tmp_path.iterdir()] == ["afile"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_folder_that_one_may_not_look_into(number: int, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path) -> bool:
        raise PermissionError(number, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", deny)
    assert refused("pretrained", "--folder", "f") == "granet: f: cannot be looked at (Permission denied)\n"


def test_any_other_error_of_the_system_is_not_taken_for_one_of_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(flops: Flops) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr(Flops, "report", fail)
    with pytest.raises(ConnectionResetError):
        main(["flops", "resnet20", "--input", "3x32x32"])


@pytest.mark.parametrize("folder", ["notthere", "afile"])
def test_pretrained_networks_need_a_folder(folder: str, refused: Refused) -> None:
    assert refused("pretrained", "--folder", folder) == f"granet: folder={folder!r}: must be a folder\n"


def test_an_empty_folder_of_pretrained_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["pretrained", "--folder", str(tmp_path)])
    assert capsys.readouterr().out == "none yet\n"
    (tmp_path / "index.json").write_text(json.dumps([]))
    main(["pretrained", "--folder", str(tmp_path)])
    assert capsys.readouterr().out == "none yet\n"
