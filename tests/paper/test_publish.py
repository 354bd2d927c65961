"""A finished run becomes a pretrained network; on the embedded digits."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from granet.data import load
from granet.pretrained import Pretrained, list_pretrained, load_from, read_index
from granet.pretrained.download import sha256
from granet.training import Recipe, Run
from paper import pretrained as module
from paper import publish as command
from paper.pretrained import pretrained_page, publish, score
from paper.publish import main
from refusals import Commands, refused

RECIPE = Recipe(epochs=2, method_fields={"sparsity": 0.95, "every": 4})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(RECIPE, load("digits"), torch.device("cpu"), tmp_path_factory.mktemp("runs"))
    list(run.epochs())
    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "index.json").write_text("[]\n")
    return tmp_path


@pytest.mark.slow
def test_with_every_bit_it_is_the_runs_own_network(run: Run, folder: Path) -> None:
    entry = publish(run.folder.path, folder, dtype=None)
    assert read_index(folder) == (entry,)
    assert (entry.name, entry.file) == ("digits_net-digits-granet-0.95", "digits_net-digits-granet-0.95.safetensors")
    assert (entry.model, entry.data, entry.classes, entry.method) == ("digits_net", "digits", 10, "granet")
    assert (entry.seed, entry.run) == (0, run.folder.path.name) and entry.sparsity == pytest.approx(0.95, abs=1e-5)
    assert entry.sha256 == sha256(folder / entry.file) and entry.size == (folder / entry.file).stat().st_size
    assert run.summary is not None and entry.accuracy_last == pytest.approx(100 * run.summary.test_accuracy, abs=1e-3)
    model = load_from(folder, entry.name)
    assert not model.training
    trained = load_file(run.folder.path / "model.safetensors")
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_the_accuracy_is_that_of_the_rounded_weights(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(module, "score", lambda model, data, device: seen.append(model) or score(model, data, device))
    entry = publish(run.folder.path, folder, name="small")
    trained = load_file(run.folder.path / "model.safetensors")
    (measured,) = seen
    for name, value in load_from(folder, "small").state_dict().items():
        assert torch.equal(value, measured.state_dict()[name])
        wanted = trained[name].bfloat16().float() if value.ndim > 1 else trained[name]
        assert torch.equal(value, wanted)
    assert entry.accuracy_last == score(load_from(folder, "small"), load("digits"))


@pytest.mark.slow
def test_an_entry_is_replaced_by_its_own_run_only(run: Run, folder: Path) -> None:
    first = publish(run.folder.path, folder, name="b")
    publish(run.folder.path, folder, name="a")
    again = publish(run.folder.path, folder, name="b", dtype=None)
    assert [entry.name for entry in read_index(folder)] == ["a", "b"] and again.sha256 != first.sha256
    before = (folder / "index.json").read_text().replace(first.run, "another-run")
    (folder / "index.json").write_text(before)
    with refused("name", "b"):
        publish(run.folder.path, folder, name="b")
    assert (folder / "index.json").read_text() == before


@pytest.mark.slow
def test_too_large_a_file_leaves_nothing(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 20_000)
    with pytest.raises(ValueError, match=r"its packed file takes [\d,]+ bytes, at most 20,000 are allowed"):
        publish(run.folder.path, folder)
    assert [path.name for path in folder.iterdir()] == ["index.json"] and read_index(folder) == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "Big", "a/b", ".hidden", "a b"])
def test_a_name_that_is_no_file_name(run: Run, folder: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"name='.*': must be of lower-case letters"):
        publish(run.folder.path, folder, name=name)


def test_a_run_that_is_not_finished(folder: Path) -> None:
    with pytest.raises(ValueError, match="must be the folder of a finished run"):
        publish(folder / "nothing", folder)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "content"), [("config.json", ""), ("summary.json", "{}"), ("config.json", None)])
def test_a_damaged_run_is_named(run: Run, folder: Path, name: str, content: str | None) -> None:
    copy = Path(shutil.copytree(run.folder.path, folder / "copy"))
    (copy / name).unlink() if content is None else (copy / name).write_text(content)
    with pytest.raises(ValueError, match=f"^{re.escape(str(copy / name))}: (is damaged|must be a file)"):
        publish(copy, folder)


@pytest.mark.slow
def test_a_network_for_other_than_three_channels(folder: Path) -> None:
    recipe = Recipe(model="resnet20", epochs=1, batch_size=400, method_fields={"sparsity": 0.5, "every": 1})
    run = Run(recipe, load("digits"), torch.device("cpu"), folder / "runs")
    list(run.epochs())
    entry = publish(run.folder.path, folder, name="r20", dtype=None)
    assert entry.channels == 1 and read_index(folder) == (entry,)
    trained = load_file(run.folder.path / "model.safetensors")
    model = load_from(folder, "r20")
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_names_and_files_that_are_wrong(run: Run, folder: Path) -> None:
    with refused("name", "vgg"):
        load_from(folder, "vgg")
    entry = publish(run.folder.path, folder, name="digits-95")
    with refused("name", "digit-95", "'digits-95'"):
        load_from(folder, "digit-95")
    other = publish(run.folder.path, folder, name="other", dtype=None)
    (folder / other.file).replace(folder / entry.file)
    with pytest.raises(ValueError, match="is another file than the index means"):
        load_from(folder, "digits-95")


def test_the_command_adds_a_network_and_writes_the_page(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    options = ["--folder", ".", "--page", "page.md"]
    main(options)
    assert capsys.readouterr().out == "wrote page.md\n" and "There are none yet.\n" in (folder / "page.md").read_text()
    main([str(run.folder.path), *options, "--device", "cpu"])
    (entry,) = (Pretrained(**one) for one in json.loads((folder / "index.json").read_text()))
    size = (folder / entry.file).stat().st_size
    told = f"added {entry.name}: {size:,} bytes, {entry.accuracy_last:.2f} % on the test images"
    assert capsys.readouterr().out == f"{told}\nwrote page.md\n"
    card = f"| digits_net | digits | granet | 95.00% | {entry.accuracy_last:.2f} % | {size:,} | `{entry.run}` |"
    assert f"| `{entry.name}` {card}" in (folder / "page.md").read_text()


@pytest.mark.parametrize(("options", "rounded"), [([], torch.bfloat16), (["--dtype", "float32"], None)])
def test_options_say_how_a_network_is_added(
    options: list[str], rounded: torch.dtype | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry, *_), given = list_pretrained(), []

    def publish(run: Path, folder: Path, **how: object) -> Pretrained:
        given.append((run, folder, how))
        (folder / entry.file).touch()
        return entry

    monkeypatch.setattr(command, "publish", publish)
    where = ["--folder", str(tmp_path), "--page", str(tmp_path / "page.md"), "--data-dir", "images", "--device", "cpu"]
    main(["run", "--name", "mine", *where, *options])
    how = {"name": "mine", "dtype": rounded, "data_dir": Path("images"), "device": torch.device("cpu")}
    assert given == [(Path("run"), tmp_path, how)]


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ("--name mine", "name", "mine"),
        ("--name mine --folder nothere", "name", "mine"),
        ("--folder nothere", "folder", "nothere"),
        ("run --folder afile", "folder", "afile"),
        ("run --page nothere/page.md", "page", "nothere/page.md"),
    ],
)
def test_wrong_options_are_one_line(
    options: str,
    field: str,
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Commands(main, tmp_path, monkeypatch, capsys, "python -m paper.publish")(options, field, value)


def test_the_page_is_what_the_index_gives() -> None:
    page = Path(__file__).parents[2] / "docs" / "pretrained.md"
    assert page.read_text(encoding="utf-8") == pretrained_page(list_pretrained())
