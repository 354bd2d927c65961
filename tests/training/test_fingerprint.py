"""A run folder belongs to the images that it was trained on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from granet.cli import main
from granet.data import load
from granet.data.imagefolder import image_folders
from granet.training import Recipe, Run
from granet.training.fingerprint import fingerprint
from quick import slow_but_for

CPU = torch.device("cpu")
DATA = load("digits")
FEWER = replace(DATA, train_images=DATA.train_images[:700], train_labels=DATA.train_labels[:700])
RECIPE = Recipe(method="static", method_fields={"sparsity": 0.5}, epochs=2, batch_size=256)


def test_the_same_images_have_one_fingerprint_and_others_another() -> None:
    assert fingerprint(DATA) == fingerprint(load("digits")) == json.loads(json.dumps(fingerprint(DATA)))
    others = [
        FEWER,
        replace(DATA, name="mine"),
        replace(DATA, classes=11),
        replace(DATA, train_labels=DATA.train_labels.flip(0)),
        replace(DATA, val_labels=DATA.val_labels.flip(0)),
        replace(DATA, test_labels=DATA.test_labels.flip(0)),
        replace(
            DATA, **{f"{part}_images": getattr(DATA, f"{part}_images")[..., :4] for part in ("train", "val", "test")}
        ),
    ]
    assert len({str(fingerprint(data)) for data in (DATA, *others)}) == 8


def test_folders_are_told_by_their_files(tmp_path: Path) -> None:
    names = {"a": ("x.png", "x.png"), "b": ("x.png", "x.png"), "c": ("y.png", "x.png"), "d": ("x.png", "y.png")}
    for place, files in names.items():
        for part, name in zip(("train", "val"), files, strict=True):
            (tmp_path / place / part / "cat").mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(tmp_path / place / part / "cat" / name)
    one, same, *others = (fingerprint(image_folders(data_dir=tmp_path / place)) for place in names)
    assert one == same
    assert one not in others


@pytest.mark.parametrize("epochs", slow_but_for([1], [1, 2]), ids=["begun", "finished"])
def test_a_run_of_other_images_is_neither_shown_nor_continued(tmp_path: Path, epochs: int) -> None:
    run = Run(RECIPE, FEWER, CPU, tmp_path)
    for _ in zip(range(epochs + 1), run.epochs(checkpoint_every=0.0), strict=False):
        pass
    with pytest.raises(ValueError, match=r"was trained on other images \(train 700, checksum \d+ there\)"):
        Run(RECIPE, DATA, CPU, tmp_path)
    Run(RECIPE, FEWER, CPU, tmp_path)


@pytest.mark.slow
def test_commands_say_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text('method = "static"\nsparsity = 0.5\nepochs = 1\nbatch_size = 256\n')
    command = ["sweep", str(grid), "--out", str(tmp_path / "runs")]
    main(command)
    (config,) = tmp_path.glob("runs/*/config.json")
    values = json.loads(config.read_text())
    values["images"]["checksum"] += 1
    config.write_text(json.dumps(values))
    with pytest.raises(SystemExit) as ended:
        main(command)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "was trained on other images (checksum" in said and said.count("\n") == 1
    config.write_text(json.dumps(values | {"images": 5}))
    with pytest.raises(SystemExit):
        main(command)
    assert capsys.readouterr().err.startswith(f"granet: {config}: is damaged")
    del values["images"]  # as before they were written down
    config.write_text(json.dumps(values))
    main(command)
