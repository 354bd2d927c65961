"""The native library of the sources as they are now: the installed one if it is, or else built.

Built once for every state of the sources on this machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import granet
from granet.locks import locked
from granet.native import NativeMissing, library

SOURCES = Path(granet.__file__).parent / "native"


def installed(sources: list[Path]) -> Path | None:
    """The library that came with granet, where no source is newer."""
    try:
        path = Path(library()._name)
    except NativeMissing:
        return None
    return path if path.stat().st_mtime > max(source.stat().st_mtime for source in sources) else None


def why_not() -> str | None:
    """What is missing that it takes to build."""
    if shutil.which("cmake") is None:
        return "cmake is not installed"
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
        return "no C++ compiler is installed"
    return None


def built(*options: str) -> Path:
    """The library, built with these options of cmake if it takes any or is not there yet."""
    files = sorted(path for path in SOURCES.iterdir() if path.suffix in (".cpp", ".hpp", ".h", ".txt"))
    if not options and (found := installed(files)):
        return found
    state = hashlib.sha256(b"\0".join((*map(str.encode, options), *(path.read_bytes() for path in files))))
    folder = Path(tempfile.gettempdir()) / f"granet-native-{os.getuid()}-{state.hexdigest()[:16]}"
    folder.mkdir(exist_ok=True)
    with locked(folder, wait=True):
        if not (folder / "done").exists():
            generator = ("-G", "Ninja") if shutil.which("ninja") else ()
            for command in (
                ("cmake", "-S", SOURCES, "-B", folder, *generator, *options),
                ("cmake", "--build", folder, "--parallel", "2"),
            ):
                ended = subprocess.run(command, capture_output=True, text=True)
                assert ended.returncode == 0, ended.stdout + ended.stderr
            (folder / "done").touch()
    (library,) = folder.glob("libgranet_native.*")
    return library
