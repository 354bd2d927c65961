"""Trained sparse networks that come with the package.

Each is a packed file in this folder with an entry in `index.json`; `granet pretrained --add RUN` puts one there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

from torch import nn

from granet.checkpoint import load
from granet.files import read_json
from granet.models import create_model

FOLDER = Path(__file__).parent
INDEX = "index.json"


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


def list_pretrained() -> tuple[Pretrained, ...]:
    """What `load_pretrained` can load, by name."""
    return read_index(FOLDER)


def load_pretrained(name: str) -> nn.Module:
    """The trained network of that name, in eval mode on the CPU.

    Its input is a batch of images in [0, 1], normalised by the mean and deviation of its data set, which are in
    docs/pretrained.md. ValueError for an unknown name, with those that begin so or else the nearest one.
    """
    return load_from(FOLDER, name)


def read_index(folder: Path) -> tuple[Pretrained, ...]:
    """The entries of a folder's index; none if there is no index yet."""
    path = folder / INDEX
    entries = read_json(path, _entries) if path.is_file() else []
    return tuple(sorted(entries, key=lambda entry: entry.name))


def load_from(folder: Path, name: str) -> nn.Module:
    """The network of that name in a folder's index, after checking the file against its checksum."""
    if not isinstance(name, str):
        raise ValueError(f"name={name!r}: must be a name, as `granet.list_pretrained` has them")
    entries = {entry.name: entry for entry in read_index(folder)}
    if name not in entries:
        raise ValueError(f"name={name!r}: {_instead(name, entries)}")
    entry = entries[name]
    path = folder / entry.file
    try:
        found = sha256(path)
    except OSError as error:
        raise ValueError(f"{path}: {INDEX} names it, but it cannot be read ({error.strerror})") from error
    if found != entry.sha256:
        raise ValueError(f"{path}: is not the file that {INDEX} names, its SHA-256 is another")
    model = create_model(entry.model, num_classes=entry.classes, in_channels=entry.channels)
    load(model, path)
    return model.eval()


def sha256(path: Path) -> str:
    """Of a file's bytes, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _instead(name: str, known: Collection[str]) -> str:
    """What to say of an unknown name. Names that begin so come first: they are of the data set that was asked for."""
    if not known:
        return "there are none yet"
    if name and (begun := [repr(one) for one in known if one.startswith(name)]):
        return f"is only the beginning of {', '.join(begun)}"
    if near := get_close_matches(name, known, n=1):
        return f"the nearest is {near[0]!r}"
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
