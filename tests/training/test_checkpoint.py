"""Checkpoints: whole, checked, and enough to end where an uninterrupted run ends."""

import hashlib
import os
import pickle
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from granet.cli import main
from granet.data import load
from granet.training import Recipe, RunDir, Training
from granet.training.checkpoint import (
    fitting,
    kept_path,
    load_checkpoint,
    load_kept,
    remove_checkpoints,
    save_checkpoint,
)
from quick import slow_but_for
from refusals import refused

CPU = torch.device("cpu")


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    for epoch in (1, 2, 3, 10):
        save_checkpoint(tmp_path, epoch, {"epoch": epoch})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-00000003.pt", "checkpoint-00000010.pt"]
    assert load_checkpoint(tmp_path, CPU) == {"epoch": 10}


def test_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path, CPU) is None


@pytest.mark.parametrize("where", [0, 30, 60, -1])
def test_a_damaged_one_is_named_and_the_one_before_is_used(tmp_path: Path, where: int) -> None:
    save_checkpoint(tmp_path, 1, {"epoch": 1})
    save_checkpoint(tmp_path, 2, {"epoch": 2})
    newest = tmp_path / "checkpoint-00000002.pt"
    content = bytearray(newest.read_bytes())
    content[where] ^= 1
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match=r"checkpoint-00000002\.pt is damaged, so the one before it is used"):
        assert load_checkpoint(tmp_path, CPU) == {"epoch": 1}


def test_all_damaged_is_a_new_start(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step:08d}.pt").write_bytes(b"damaged")
    assert load_checkpoint(tmp_path, CPU) is None
    assert [str(warning.message).partition(" is damaged, so ")[2] for warning in recwarn] == [
        "the one before it is used",
        "training starts anew",
    ]


def test_a_cut_one_is_passed_over(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"epoch": 1})
    (tmp_path / "checkpoint-00000002.pt").write_bytes((tmp_path / "checkpoint-00000001.pt").read_bytes()[:-5])
    with pytest.warns(UserWarning, match="damaged"):
        assert load_checkpoint(tmp_path, CPU) == {"epoch": 1}


def test_damaged_ones_of_later_steps_do_not_push_new_ones_out(tmp_path: Path) -> None:
    for step in (8, 9):
        (tmp_path / f"checkpoint-{step:08d}.pt").write_bytes(b"damaged")
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, {"epoch": step})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-00000002.pt", "checkpoint-00000003.pt"]


def test_a_full_disk_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, 1, {"epoch": 1})

    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path, 2, {"epoch": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000001.pt"]
    assert load_checkpoint(tmp_path, CPU) == {"epoch": 1}


class Hostile:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


def write_with_checksum(path: Path, content: bytes) -> None:
    """As whoever can write a file can do."""
    path.write_bytes(b"granet checkpoint 1\n" + hashlib.sha256(content).digest() + content)


def test_a_file_of_a_stranger_runs_no_code(tmp_path: Path) -> None:
    """Its checksum is right: who can write the file can write that too."""
    save_checkpoint(tmp_path, 1, {"epoch": Hostile(tmp_path / "made by the file")})
    with refused(tmp_path / "checkpoint-00000001.pt", ..., "a stranger's; remove it"):
        load_checkpoint(tmp_path, CPU)
    assert not (tmp_path / "made by the file").exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x02.", pickle.dumps([1], 2), b"{}", b"\xff" * 200], ids=str)
def test_other_formats_with_a_checksum_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint-00000001.pt"
    write_with_checksum(path, content)
    with refused(path, ..., "; remove it") as refusal:
        load_checkpoint(tmp_path, CPU)
    assert "weights_only" not in refusal.said
    write_with_checksum(kept_path(tmp_path, 1), content)
    with refused(Path("kept-0001.pt"), ..., "; remove its folder"):
        load_kept(tmp_path, 1, CPU)


def test_a_folder_in_the_place_of_a_checkpoint_is_named_and_left_alone(tmp_path: Path) -> None:
    """A tool that unpacks archives makes one of a checkpoint; the state in the one before it is older."""
    save_checkpoint(tmp_path, 1, {"epoch": 1})
    folder = tmp_path / "checkpoint-00000002.pt"
    folder.mkdir()
    with refused(folder, ..., "; remove it", unchanged=(tmp_path,)):
        load_checkpoint(tmp_path, CPU)
    save_checkpoint(tmp_path, 1, {"epoch": 1})
    remove_checkpoints(tmp_path)
    assert list(tmp_path.iterdir()) == [folder]


def test_too_little_memory_is_not_blamed_on_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, 1, {"epoch": 1})
    for error in (MemoryError, torch.OutOfMemoryError):
        monkeypatch.setattr(torch, "load", Mock(side_effect=error))
        with pytest.raises(error):
            load_checkpoint(tmp_path, CPU)


def test_too_little_memory_for_a_state_is_not_blamed_on_it_either() -> None:
    with pytest.raises(torch.OutOfMemoryError), fitting(Recipe()):
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("Error(s) in loading state_dict:\n\tsize mismatch for weight. "), "size mismatch for weight."),
        (KeyError("records"), "no 'records'"),
        (TypeError(), ""),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(error: Exception, reason: str) -> None:
    with refused("model='digits_net', method", "granet", f"({reason})"), fitting(Recipe()):
        raise error


@pytest.mark.parametrize("broken", [{}, {"model": 3}, {"optimizer": []}, {"records": [1]}, {"batches": None}], ids=str)
def test_a_state_with_other_content_is_refused(broken: dict[str, object]) -> None:
    recipe = Recipe(method="dense", method_fields={}, epochs=1, batch_size=256)
    data = load("digits")
    state = Training(recipe, data).state() | broken if broken else {}
    with refused("model='digits_net', method", "dense"):
        Training(recipe, data, state=state)


def test_the_command_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunDir.find(tmp_path, Recipe())
    folder.make()
    save_checkpoint(folder.path, 1, {"epoch": Hostile(tmp_path / "made by the file")})
    with pytest.raises(SystemExit) as ended:
        main(["train", "--out", str(tmp_path)])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1
    assert said.startswith(f"granet: {folder.path / 'checkpoint-00000001.pt'}: ")


@pytest.mark.slow
@pytest.mark.parametrize("method", slow_but_for(["granet"], ["granet", "set", "vd", "dense"]))
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, method: str) -> None:
    fields = {} if method == "dense" else {"sparsity": 0.9, "every": 7}
    recipe = Recipe(method=method, method_fields=fields, epochs=3, crop=1, batch_size=128)
    data = load("digits")
    whole = Training(recipe, data)
    states = []
    for record in whole.epochs():
        save_checkpoint(tmp_path, record.epoch, whole.state())
        if record.epoch == 1:
            states.append(load_checkpoint(tmp_path, CPU))
    torch.manual_seed(999)  # whatever happened in between
    resumed = Training(recipe, data, state={**states[0], "seconds": 1000.0})
    assert len(resumed.records) == 1
    assert [record.epoch for record in resumed.epochs()] == [2, 3]
    for (name, mine), theirs in zip(resumed.model.state_dict().items(), whole.model.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs), name
    same = [(r.epoch, r.train_loss, r.test_accuracy, r.sparsity, r.lr) for r in whole.records]
    assert [(r.epoch, r.train_loss, r.test_accuracy, r.sparsity, r.lr) for r in resumed.records] == same
    seconds = [record.seconds for record in resumed.records]
    assert seconds[0] < 1000 < seconds[1] < seconds[2]


def test_a_state_within_an_epoch_has_the_seconds_up_to_its_step() -> None:
    training = Training(Recipe(epochs=1, batch_size=400, method="dense", method_fields={}), load("digits"))
    seconds: list[float] = []
    (record,) = training.epochs(lambda: seconds.append(training.state()["seconds"]))
    assert 0 < seconds[0] < seconds[1] < record.seconds
    assert training.state()["seconds"] == record.seconds  # with the evaluation, for those that start from here
