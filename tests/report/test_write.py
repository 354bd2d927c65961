"""The page and its picture, as a browser and a reader meet them."""

import errno
import importlib.util
import re
import struct
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from granet.report import read_run, write_report
from granet.report.draw import same_layers
from granet.report.labels import shown_runs
from granet.training import Recipe
from quick import slow_but_for
from refusals import refused

image = pytest.importorskip("matplotlib.image")
Make = Callable[..., Path]


class Page(HTMLParser):
    """Tags must be balanced; texts, attributes and table rows are collected."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag == "tr":
            self.rows.append([])
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] in ("th", "td"):
            self.rows[-1].append(data)

    def values(self, attribute: str) -> list[str]:
        return [value for _, name, value in self.attributes if name == attribute]


def report(*paths: Path, out: Path) -> Page:
    write_report(paths, out)
    return Page(out.read_text(encoding="utf-8"))


def test_the_page_needs_nothing_else_and_is_sound(make_run: Make, tmp_path: Path) -> None:
    make_run("sparse", flops=[(0.9, 0.3), (0.5, 0.5), (0.321, 0.6543)])
    make_run("dense", Recipe(epochs=3).dense_twin())
    out = tmp_path / "report.html"
    page = report(tmp_path / "runs", out=out)
    text = out.read_text(encoding="utf-8")
    assert "http" not in text and "@import" not in text and "<script" not in text
    links = [*page.values("href"), *page.values("xlink:href"), *page.values("src")]
    assert links and all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    identities = page.values("id")
    assert len(set(identities)) == len(identities)
    targets = {link[1:] for link in links if link.startswith("#")} | set(re.findall(r"url\(#([^)]*)\)", text))
    assert targets <= set(identities)
    assert "prefers-color-scheme: dark" in text and "#1f2430" not in text[text.index("</style>") :]
    images = [tag for tag, name, value in page.attributes if (name, value) == ("role", "img")]
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(images) == len(labels) == 9  # six curves, the bars, one heat map, one budget
    assert text.count("<figcaption>") == 9 and all(labels)
    assert "test 63.00%" in labels[0]
    assert labels[4] == "FLOPs during training by epoch. At the end: dense: not recorded; granet 0.75: 32.1%"
    assert labels[5] == "Training FLOPs so far by epoch. At the end: dense: not recorded; granet 0.75: 65.4%"
    spent = page.rows[0].index("training FLOPs of dense")
    assert [row[spent] for row in page.rows[1:3]] == ["–", "65.4%"]
    _, height = struct.unpack(">2I", out.with_suffix(".png").read_bytes()[16:24])
    assert height > 3 * 360  # as many rows of curves; two take less


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory, write_run: Make) -> Path:
    """A folder with the report of one run, which did not record FLOPs."""
    folder = tmp_path_factory.mktemp("report")
    write_report([write_run(folder / "run")], folder / "page.html")
    return folder


@pytest.mark.usefixtures("words_alone")
def test_the_numbers_are_those_of_the_files(tmp_path: Path, make_run: Make) -> None:
    page = report(make_run(), out=tmp_path / "page.html")
    named = dict(zip(page.rows[0], page.rows[1], strict=True))
    assert named == {
        "run": "granet 0.75",
        "state": "finished",
        "sparsity asked": "75.000%",
        "sparsity achieved": "75.000%",
        "test accuracy, last epoch": "63.00%",
        "test accuracy, best epoch": "63.00% (epoch 3)",
        "parameters": "210",
        "nonzero": "63",
        "inference FLOPs of dense": "32.1%",
        "training FLOPs of dense": "–",
        "seconds": "4.5",
        "data": "digits",
        "model": "digits_net",
        "method": "granet",
        "seed": "0",
        "device": "a device",
        "torch": "2.13.0",
    }
    # ERK: 49 weights shared as 4 + 1 + 3 + 3 to 10 + 16. Uniform: a quarter of each layer.
    titles = ["layer", "shape", "weights", "active", "sparsity"]
    assert [*titles, "active, ERK", "sparsity, ERK", "active, uniform", "sparsity, uniform"] in page.rows
    first = ["features.0.weight", "4 × 1 × 3 × 3", "36", "27", "25.000%"]
    assert [*first, "15", "58.333%", "9", "75.000%"] in page.rows
    assert ["classifier.weight", "10 × 16", "160", "22", "86.250%", "34", "78.750%", "40", "75.000%"] in page.rows
    assert ["all sparse layers", "196", *["49", "75.000%"] * 3] in page.rows
    assert not any("FLOPs" in label for label in page.values("aria-label"))


@pytest.mark.usefixtures("words_alone")
def test_the_best_epoch_of_a_branch_is_one_of_its_own(tmp_path: Path, make_run: Make) -> None:
    run = make_run("branch", Recipe(method="prune-regrow", method_fields={}, epochs=3, parent="trunk", branch_epoch=2))
    metrics = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(metrics.replace('"val_accuracy": 0.5', '"val_accuracy": 0.99'))  # of epoch 1
    page = report(run, out=tmp_path / "page.html")
    assert "63.00% (epoch 3)" in page.rows[1]
    assert ["epochs", "3"] in page.rows


@pytest.mark.usefixtures("words_alone")
def test_what_was_asked_for_and_what_was_skipped(tmp_path: Path, make_run: Make) -> None:
    run = make_run()
    metrics, updates = run / "metrics.jsonl", run / "updates.jsonl"
    metrics.write_text(metrics.read_text().replace('"target_sparsity": 0.75', '"target_sparsity": 0.8'))
    first, second = updates.read_text().splitlines()
    updates.write_text("\n".join([first.replace('"skipped": false', '"skipped": true'), second, second]) + "\n")
    page = report(run, out=tmp_path / "page.html")
    named = dict(zip(page.rows[0], page.rows[1], strict=True))
    assert (named["sparsity asked"], named["sparsity achieved"]) == ("80.000%", "75.000%")
    (told,) = (text for text in page.texts if "skipped" in text)
    assert "after each of 3 mask updates" in told and told.endswith(", 1 of them skipped.")


@pytest.mark.usefixtures("words_alone")
def test_unfinished_and_diverged_runs_are_shown_as_far_as_they_got(make_run: Make, tmp_path: Path) -> None:
    metrics = make_run("a", epochs=2, finished=False) / "metrics.jsonl"
    metrics.write_text(re.sub(r'"train_loss": [0-9.]+', '"train_loss": null', metrics.read_text()))
    make_run("b", Recipe(epochs=9, seed=1), epochs=0, finished=False)
    make_run("c", Recipe(epochs=9, seed=2, stretch=2), epochs=1, finished=False)
    lost = make_run("d", Recipe(epochs=9, seed=3)) / "metrics.jsonl"
    lost.write_text(lost.read_text().replace('"train_loss": 0.5', '"train_loss": null'))
    page = report(tmp_path / "runs", out=tmp_path / "report.html")
    assert page.rows[1][1] == "unfinished, after epoch 2 of 3, loss not finite from epoch 1 on"
    assert page.rows[2][1] == "unfinished, after epoch 0 of 9"
    assert page.rows[3][1] == "unfinished, after epoch 1 of 18"
    assert page.rows[4][1] == "finished, loss not finite from epoch 2 on"
    assert "The training loss is not a finite number from epoch 2 on." in page.texts
    assert page.rows[1][2:10] == ["62.00%", "62.00% (epoch 2)", "75.000%", "75.000%", *"––––"]
    assert page.rows[2][2:11] == ["–"] * 9
    assert sum("This run is unfinished" in text for text in page.texts) == 3
    assert "All layers of this run are dense." not in page.texts
    (loss,) = (label for label in page.values("aria-label") if label.startswith("Training loss"))
    assert [told.rpartition(": ")[2] for told in loss.split("; ")] == ["nan", "nothing yet", "1", "0.3333"]


@pytest.mark.usefixtures("words_alone")
def test_an_unfinished_run_has_the_flops_of_its_last_epoch(make_run: Make, tmp_path: Path) -> None:
    make_run("a", finished=False, flops=[(0.9, 0.3), (0.456, 0.5)])
    make_run("b", Recipe(epochs=3, seed=1), finished=False)  # of before they were recorded
    page = report(tmp_path / "runs", out=tmp_path / "report.html")
    inference, training = (page.rows[0].index(f"{what} FLOPs of dense") for what in ("inference", "training"))
    assert [(row[inference], row[training]) for row in page.rows[1:3]] == [("45.6%", "50.0%"), ("–", "–")]


@pytest.mark.slow
def test_every_text_is_escaped(make_run: Make, tmp_path: Path) -> None:
    nasty = "<script>alert('&\"$x$')</script>"
    folder = make_run("a <b> & $c$", Recipe(model=nasty, epochs=3))
    other = Recipe(model=nasty, epochs=3, exclude=("x",) * 30)  # so that runs are called by their folders
    make_run("z", other, finished=False)
    for name in ("config.json", "layers.json"):
        content = (folder / name).read_text()
        (folder / name).write_text(content.replace("a device", "<i>x").replace("classifier.weight", "<b>$w$"))
    page = report(tmp_path / "runs", out=tmp_path / "report.html")
    tags = {tag for tag, *_ in page.attributes} | set(page.open)
    assert not {"script", "b", "i"} & tags and "<script>alert" not in (tmp_path / "report.html").read_text()
    assert nasty in page.rows[1] and "<i>x" in page.rows[1] and "a <b> & $c$" in page.rows[1]
    assert page.texts.count("<b>$w$") >= 4  # bars, heat map, budget, table: letter for letter


@pytest.mark.slow
def test_the_picture(one_run: Path) -> None:
    pixels = image.imread(one_run / "page.png")
    assert pixels.shape[1] == 1320 and pixels.shape[0] > 700
    for shade in ("2f7ed8", "697080"):  # the run's curves, the axes' words
        colour = [int(shade[place : place + 2], 16) / 255 for place in (0, 2, 4)]
        assert (abs(pixels[..., :3] - colour).max(axis=-1) < 0.01).sum() > 50
    assert sorted(path.name for path in one_run.iterdir()) == ["page.html", "page.png", "run"]


@pytest.mark.slow
def test_the_same_runs_give_the_same_page(one_run: Path, tmp_path: Path) -> None:
    report(one_run / "run", out=tmp_path / "page.html")
    for name in ("page.html", "page.png"):
        assert (tmp_path / name).read_bytes() == (one_run / name).read_bytes()


def test_models_with_other_layers_are_shown_apart(make_run: Make) -> None:
    other = make_run("b")
    (other / "layers.json").write_text((other / "layers.json").read_text().replace("features.0", "stem"))
    folders = [make_run("a"), other, make_run("c", Recipe(epochs=3).dense_twin()), make_run("d")]
    runs = shown_runs([read_run(folder) for folder in folders])
    assert same_layers(runs) == [[runs[0], runs[3]], [runs[1]]]


@pytest.mark.parametrize("out", ["report.htm", "report", "none/report.html", "folder.html"])
def test_a_place_that_cannot_be_written_to(make_run: Make, tmp_path: Path, out: str) -> None:
    (tmp_path / "folder.html").mkdir()
    folder = make_run()
    with pytest.raises(ValueError, match=r"^out="):
        write_report([folder], tmp_path / out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.html", "runs"]


@pytest.mark.usefixtures("words_alone")
@pytest.mark.parametrize("number", slow_but_for([errno.EROFS], [errno.EROFS, errno.ENOSPC, errno.ENOENT, errno.EACCES]))
def test_a_disk_that_refuses(number: int, make_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run()

    def refuse(path: Path, *arguments: object, **options: object) -> None:
        raise OSError(number, "why", str(path))

    for name in ("write_bytes", "unlink"):  # a read-only one refuses both
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(ValueError, match=r"^out='.*report\.html': must be a file that can be written \(why\)$"):
        write_report([folder], tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_bad_input_leaves_the_old_report(make_run: Make, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("old")
    folder = make_run()
    (folder / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match="line 1"):
        write_report([folder], out)
    assert out.read_text() == "old" and not out.with_suffix(".png").exists()


def test_without_matplotlib(make_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    with refused("report", ..., "'granet[plots]'"):
        write_report([make_run()], tmp_path / "report.html")
