"""Are the files in a folder the published ones? The work behind `granet data check DIR`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from granet.data.cifar import CIFAR10, CIFAR100, parse_batch
from granet.data.files import Layout, read_file
from granet.data.idx import LAYOUTS as IDX_LAYOUTS
from granet.data.idx import parse_idx
from granet.data.published import ARCHIVES, FILES

# Items by how a file name begins; the longest beginning decides.
SIZES = {"data_batch": 10_000, "test": 10_000, "train": 50_000, "train-": 60_000, "t10k-": 10_000}


@dataclass(frozen=True)
class CheckResult:
    """What `check` found out about one file.

    - `ok`: its MD5 is the published one;
    - `well-formed`: no checksum is published for this form of the file, but it reads and has the right number of items;
    - `wrong`: another MD5, unreadable, or another number of items; `detail` says which;
    - `missing`: other files of its set are there and it is not.
    """

    path: Path
    status: Literal["ok", "well-formed", "wrong", "missing"]
    detail: str

    @property
    def passed(self) -> bool:
        """Whether nothing is known against the file."""
        return self.status in ("ok", "well-formed")


def check(directory: str | os.PathLike[str]) -> list[CheckResult]:
    """One result for each file of each known data set that is present, wholly or in part, in `directory`.

    Empty when there is nothing known in it. Only reads; archives are checked as they are, not unpacked.
    """
    root = Path(directory).expanduser()
    if not root.is_dir():
        raise ValueError(f"{root}: no such folder")
    layouts = [(spec.name, layout) for spec in (CIFAR10, CIFAR100) for layout in (spec.python, spec.binary)]
    results: dict[tuple[Path, ...], list[CheckResult]] = {}
    for name, layout in (*layouts, *IDX_LAYOUTS.items()):
        found = list(_check_layout(root, name, layout))
        paths = tuple(result.path for result in found)
        # the files of MNIST and Fashion-MNIST have the same names: they are of the set that more of them fit
        if paths not in results or _passed(found) > _passed(results[paths]):
            results[paths] = found
    return [result for found in results.values() for result in found]


def _passed(results: list[CheckResult]) -> int:
    return sum(result.passed for result in results)


def _check_layout(root: Path, name: str, layout: Layout) -> Iterator[CheckResult]:
    if layout.archive and (root / layout.archive).is_file():
        yield _compare(root / layout.archive, ARCHIVES[layout.archive])
    place = layout.find(root)
    if place is None or not place.is_dir():
        return
    for file in layout.files:
        path, packed = place / file, place / f"{file}.gz"
        found = path if path.is_file() else packed
        if not found.is_file():
            yield CheckResult(path, "missing", f"other files of {name} are in this folder")
        elif found.name in FILES[name]:
            yield _compare(found, FILES[name][found.name])
        else:
            yield _parse(name, path)


def _compare(path: Path, published: str) -> CheckResult:
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            md5.update(block)
    digest = md5.hexdigest()
    if digest == published:
        return CheckResult(path, "ok", f"MD5 {digest}")
    return CheckResult(path, "wrong", f"MD5 {digest}, published {published}: damaged, incomplete or another version")


def _parse(name: str, path: Path) -> CheckResult:
    try:
        if name in IDX_LAYOUTS:
            count = len(parse_idx(str(path), read_file(path), 3 if "images" in path.name else 1))
        else:
            count = len(parse_batch(str(path), read_file(path), CIFAR10 if name == "cifar10" else CIFAR100)[1])
    except ValueError as error:
        return CheckResult(path, "wrong", str(error).removeprefix(f"{path}: "))
    expected = SIZES[max((prefix for prefix in SIZES if path.name.startswith(prefix)), key=len)]
    if count != expected:
        return CheckResult(path, "wrong", f"{count:,} items, published {expected:,}")
    return CheckResult(path, "well-formed", f"{count:,} items; no checksum is published for this file")
