"""Trained sparse networks: an index of them that comes with the package, and packed files that do not.

A checkout has both in its folder `pretrained`; `python -m paper.publish RUN` puts a network there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

from torch import nn

from granet.checkpoint import load
from granet.files import read_json
from granet.models import create_model
from granet.pretrained.download import find_file

INDEX = "index.json"
_INSTALLED, _CHECKOUT = Path(__file__).parent, Path(__file__).parents[3] / "pretrained"
FOLDER = _INSTALLED if (_INSTALLED / INDEX).is_file() else _CHECKOUT
"""Where the index is; in a checkout the files, too."""


@dataclass(frozen=True)
class Pretrained:
    """One network, and what is known of it."""

    name: str
    file: str
    model: str
    data: str
    classes: int
    method: str
    sparsity: float
    """Zeros among all sparsified weights."""
    seed: int
    accuracy_last: float
    """Test accuracy in percent of this very file, whose weights may be rounded, in `float32`."""
    run: str
    """The run that trained it; its last epoch."""
    sha256: str
    """Of the file."""
    channels: int
    """Of the input images."""
    side: int
    """Height and width of the input images."""
    size: int
    """Of the file, in bytes."""


def list_pretrained() -> tuple[Pretrained, ...]:
    """What `load_pretrained` can load, by name."""
    return read_index(FOLDER)


def load_pretrained(name: str, *, url: str | None = None) -> nn.Module:
    """The trained network of that name, in eval mode on the CPU.

    Its file is looked for in a checkout, then in the folder that GRANET_PRETRAINED names, ~/.cache/granet/pretrained by
    default, and otherwise downloaded to there from the folder at ``url``, which GRANET_PRETRAINED_URL may name instead.
    Whatever is not the file that the index means, by its SHA-256, is refused.

    Its input is a batch of images in [0, 1], normalised by the mean and deviation of its data set, which are in
    docs/pretrained.md. ValueError for an unknown name, with those that begin so or else the nearest one.
    """
    return load_from(FOLDER, name, url)


def read_index(folder: Path) -> tuple[Pretrained, ...]:
    """The entries of a folder's index; none if there is no index yet."""
    path = folder / INDEX
    entries = read_json(path, _entries) if path.is_file() else []
    return tuple(sorted(entries, key=lambda entry: entry.name))


def load_from(folder: Path, name: str, url: str | None = None) -> nn.Module:
    """The network of that name in a folder's index, after checking the file against its checksum."""
    entry, path = find_pretrained(folder, name, url)
    model = create_model(entry.model, num_classes=entry.classes, in_channels=entry.channels)
    load(model, path)
    return model.eval()


def find_pretrained(folder: Path, name: str, url: str | None = None) -> tuple[Pretrained, Path]:
    """The entry of that name in a folder's index, and its checked file, which may have to be downloaded."""
    if not isinstance(name, str):
        raise ValueError(f"name={name!r}: must be a name, as `granet.list_pretrained` has them")
    entries = {entry.name: entry for entry in read_index(folder)}
    if name not in entries:
        raise ValueError(f"name={name!r}: {_instead(name, entries)}")
    entry = entries[name]
    return entry, find_file(entry.file, entry.sha256, beside=folder, url=url)


def _instead(name: str, known: Collection[str]) -> str:
    """What to say of an unknown name. Names that begin so come first: they are of the data set that was asked for."""
    if not known:
        return "must be one that was published, and there are none yet"
    if name and (begun := [repr(one) for one in known if one.startswith(name)]):
        return f"is only the beginning; must be one of {', '.join(begun)}"
    if near := get_close_matches(name, known, n=1):
        return f"must be known; the nearest is {near[0]!r}"
    return "must be one of the names that `granet.list_pretrained()` has"


def _entries(values: Any) -> list[Pretrained]:
    if not isinstance(values, list):
        raise ValueError("must be a list")
    entries = [Pretrained(**value) for value in values]
    for entry in entries:
        for name, kind in get_type_hints(Pretrained).items():
            value = getattr(entry, name)
            if not isinstance(float(value) if kind is float and type(value) is int else value, kind):
                raise ValueError(f"{name}={value!r} is of the wrong type")
    return entries
