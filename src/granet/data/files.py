"""Where data files lie and how they are read: from folders, or straight out of a .tar.gz, or not at all with advice."""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ENVIRONMENT_VARIABLE = "GRANET_DATA"
DEFAULT_FOLDER = Path("~/.cache/granet")
MAX_BYTES = 1 << 30  # several times the largest file read here; what claims to be larger is damaged or hostile

MAX_DETAILS = 1 << 16  # of what an archive says about a member


class MissingDataError(FileNotFoundError, ValueError):
    """The data is not there. The message says where it was looked for, where to get it and where to put it."""


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder data is read from: `data_dir`, else the variable GRANET_DATA, else `~/.cache/granet`."""
    return Path(data_dir or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_FOLDER).expanduser()


@dataclass(frozen=True)
class Layout:
    """One published form of a data set: files in a folder, and the archive that holds that folder, if there is one."""

    folders: tuple[str, ...]  # looked for under the data folder
    files: tuple[str, ...]
    archive: str | None = None

    def find(self, root: Path) -> Path | None:
        """The folder or archive under `root` that holds this layout, or None.

        A folder of the right name needs one of the files (`read` names those it lacks); `root` itself, all of them.
        """
        for folder in self.folders:
            if any(_variant(root / folder / file) for file in self.files):
                return root / folder
        if all(_variant(root / file) for file in self.files):
            return root
        if self.archive and (root / self.archive).is_file():
            return root / self.archive
        return None

    def read(self, place: Path) -> dict[str, bytes]:
        """The contents of all files, in order, from a folder or an archive that `find` returned."""
        if place.is_dir():
            return {file: read_file(place / file) for file in self.files}
        return _read_archive(place, self.files)


def read_file(path: Path) -> bytes:
    """All bytes of `path`, or the unpacked bytes of `path` + ".gz" when only that exists."""
    found = _variant(path)
    if found is None:
        raise MissingDataError(f"{path}: the file is missing, while others of the same set are there")
    if found.stat().st_size > MAX_BYTES:
        raise ValueError(f"{found}: larger than {MAX_BYTES:,} bytes, this is not the published file")
    unpack = found.suffix == ".gz" and path.suffix != ".gz"
    try:
        with gzip.open(found) if unpack else found.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = "damaged or truncated gzip file" if unpack else "cannot be read"
        raise ValueError(f"{found}: {reason} ({error})") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"{found}: unpacks to more than {MAX_BYTES:,} bytes, this is not the published file")
    return data


def find_layout(name: str, root: Path, layouts: Sequence[Layout], advice: str) -> tuple[Layout, Path]:
    """The first of `layouts` that is present under `root`; `MissingDataError` with `advice` when none is."""
    for layout in layouts:
        if (place := layout.find(root)) is not None:
            return layout, place
    looked = [f"{layout.folders[0]}/" for layout in layouts] + [layout.archive for layout in layouts if layout.archive]
    raise MissingDataError(
        f"{name}: no data in {root} (looked for {', '.join(looked)}). {advice} in that folder, "
        f"or name another with --data-dir or the environment variable {ENVIRONMENT_VARIABLE}"
    )


def _variant(path: Path) -> Path | None:
    """`path`, or `path` + ".gz", whichever is a file."""
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


class _Member(tarfile.TarInfo):
    """A member whose long name and other details are short enough to read: `tarfile` reads them whatever their size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if not member.isreg() and member.size > MAX_DETAILS:
            raise tarfile.ReadError(f"{member.size:,} bytes about a member, this is not the published file")
        return member


def _read_archive(archive: Path, files: tuple[str, ...]) -> dict[str, bytes]:
    """The named members of a .tar.gz, found by their last name, read in memory: nothing is written to disk.

    The stream is read to its end, where gzip keeps its checksum, so that damage anywhere is noticed.
    """
    found: dict[str, bytes] = {}
    try:
        with gzip.open(archive) as stream:
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as tar:
                for member in tar:
                    name = member.name.rpartition("/")[2]
                    if member.size > MAX_BYTES:
                        raise tarfile.ReadError(f"member {member.name} claims {member.size:,} bytes")
                    plain = member.isfile() and not member.issparse()  # the holes of a sparse file take no bytes there
                    content = tar.extractfile(member) if name in files and plain else None
                    if content is not None:
                        found[name] = content.read()
            while stream.read(1 << 20):
                pass
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as error:  # numbers in it may be none
        raise ValueError(f"{archive}: damaged or truncated archive ({error})") from error
    missing = [file for file in files if file not in found]
    if missing:
        raise ValueError(f"{archive}: has no member {missing[0]}")
    return {file: found[file] for file in files}
