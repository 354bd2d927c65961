"""The native library, built from the sources as they are now; once for every state of them on this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import granet
from granet.locks import locked

SOURCES = Path(granet.__file__).parent / "native"


def why_not() -> str | None:
    """What is missing that it takes to build."""
    if shutil.which("cmake") is None:
        return "cmake is not installed"
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
        return "no C++ compiler is installed"
    return None


def built(*options: str) -> Path:
    """The library, built with these options of cmake."""
    files = sorted(path for path in SOURCES.iterdir() if path.suffix in (".cpp", ".hpp", ".h", ".txt"))
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
