"""The trained networks of a checkout, and what the page about them says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import granet
from granet.data import ImageSet, MissingDataError, load
from granet.pretrained import FOLDER, INDEX, read_index
from granet.pretrained.download import sha256
from paper.pretrained import LIMIT, score
from refusals import refused

ROOT = Path(__file__).parents[1]
ENTRIES = granet.list_pretrained()


@pytest.mark.parametrize(
    ("name", "tells"),
    [
        (
            "vgg19-cifar10-granet-0.95",  # by its letters it is nearer to one for CIFAR-100
            "'vgg19-cifar10-granet-0.95-from-dense', 'vgg19-cifar10-granet-0.95-from-half'",
        ),
        ("vgg19-cifar100-granet-0.95", "'vgg19-cifar100-granet-0.95-cosine'"),
        ("vgg19-cifar10-granet-0.98-form-half", "'vgg19-cifar10-granet-0.98-from-half'"),
        *((name, "granet.list_pretrained") for name in ("vgg20", "nope", "", None, 5, ["vgg19"])),
    ],
)
def test_an_unknown_name_is_refused(name: Any, tells: str) -> None:
    with refused("name", name, tells):
        granet.load_pretrained(name)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe\x00", "codec can't decode"),
        (b"{}", "must be a list"),
        (b"[1]", "must be a mapping"),
        (b'[{"name": "a"}]', "missing 13 required"),
        ((FOLDER / INDEX).read_bytes().replace(b'"seed": 0', b'"seed": "0"'), "seed='0' is of the wrong type"),
    ],
)
def test_a_damaged_index_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / INDEX).write_bytes(content)
    with pytest.raises(ValueError, match=r"index\.json: is damaged or of another version of granet") as error:
        read_index(tmp_path)
    assert says in str(error.value)


def test_files_and_index_agree() -> None:
    assert FOLDER == ROOT / "pretrained"
    files = {path.name for path in FOLDER.iterdir()}
    assert files == {INDEX, *(entry.file for entry in ENTRIES)}
    for entry in ENTRIES:
        path = FOLDER / entry.file
        assert sha256(path) == entry.sha256 and path.stat().st_size == entry.size <= LIMIT
        log = json.loads((ROOT / "results" / "logs" / f"{entry.run}.json").read_text())
        recipe = log["recipe"]
        assert (entry.model, entry.data, entry.method, entry.seed) == tuple(
            recipe[key] for key in ("model", "data", "method", "seed")
        )
        assert entry.sparsity == pytest.approx(log["summary"]["sparsity"], abs=1e-6)
        # rounding the weights, and float32 instead of bfloat16 for activations, may turn a few of 10,000 answers
        assert entry.accuracy_last == pytest.approx(100 * log["summary"]["test_accuracy"], abs=0.3)


@pytest.mark.slow
def test_every_one_is_as_sparse_as_its_entry_says() -> None:
    for entry in ENTRIES:
        model = granet.load_pretrained(entry.name)
        weights = [weight for weight in model.parameters() if weight.ndim > 1]
        zeros = sum(int((weight == 0).sum()) for weight in weights)
        assert zeros / sum(weight.numel() for weight in weights) == pytest.approx(entry.sparsity, abs=1e-4)
        assert not model.training


def test_one_scores_as_its_entry_says_on_the_real_test_images() -> None:
    entry = min(ENTRIES, key=lambda entry: entry.size)
    try:
        data = load(entry.data)
    except MissingDataError as error:
        pytest.skip(f"set GRANET_DATA to a folder with the published files to run this: {error}")
    assert isinstance(data, ImageSet)
    # another device or number of threads sums in another order: that may turn some of the 10,000 answers
    assert score(granet.load_pretrained(entry.name), data) == pytest.approx(entry.accuracy_last, abs=0.05)


@pytest.mark.slow
def test_trained_on_as_the_page_says_one_keeps_its_zeros() -> None:
    page = (ROOT / "docs" / "pretrained.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"granet": granet, "torch": torch}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, names)
    model, masks = names["model"], names["sparsifier"].masks
    assert len(masks) == 17
    assert all(torch.equal(model.get_parameter(name) != 0, mask) for name, mask in masks.items())
