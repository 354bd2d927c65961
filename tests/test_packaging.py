"""What is published: a wheel that works where nothing but its requirements is installed, and a whole sdist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from email import message_from_string
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import granet
from native_build import why_not

ROOT = Path(__file__).parents[1]
LIMIT = 1_000_000
"""The most bytes that the wheel may take without native code."""
QUICK = (
    "tests/docs",
    "tests/flop_counting",
    "tests/patterns",
    "tests/test_clock.py",
    "tests/test_pretrained.py",
    "src",
)
"""A part of the tests that reads the README, docs, recipes, results and networks, and doctests."""

pytestmark = pytest.mark.slow


def done(*command: str | Path, cwd: Path, code: int = 0, **environment: str) -> str:
    """What a command says that must end with this exit code."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GRANET_"))}
    settings = {**clean, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **environment}
    ended = subprocess.run(command, cwd=cwd, env=settings, capture_output=True, text=True, timeout=600)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout if code == 0 else ended.stderr


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sdist, and of the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    pins = {name: str(ROOT / "constraints.txt") for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")}
    done(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder, **pins)
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def unpacked(built: Path) -> Path:
    """The sdist, unpacked."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(built, filter="data")
    return built / path.name.removesuffix(".tar.gz")


def environment(folder: Path, wheel: Path, *extras: str) -> Path:
    """The folder of the commands of a new environment that has the wheel and what it requires with these extras.

    Requirements are links to what is installed here, which spares a copy of torch. That hides nothing: only what the
    wheel names is linked, and what that names in turn, each a whole distribution of a version that pip agrees with.
    """
    done(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"))
    done(*pip, "install", "--no-index", "--no-deps", wheel, cwd=folder)
    link_requirements(wheel, extras, packages)
    done(*pip, "check", cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="session")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("environment"), wheel, "cli")


def link_requirements(wheel: Path, chosen: Sequence[str], packages: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        needed = message_from_string(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    waiting = [(Requirement(text), {"", *chosen}) for text in needed]
    linked = set()
    while waiting:
        requirement, extras = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": one}) for one in extras):
            continue
        found = distribution(requirement.name)
        if (key := (found.name, frozenset(requirement.extras))) in linked:
            continue
        linked.add(key)
        waiting += [(Requirement(text), {"", *requirement.extras}) for text in found.requires or ()]
        for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(str(found.locate_file(name)))


def test_the_wheel_has_all_it_needs_and_no_networks(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        index = json.loads(archive.read("granet/pretrained/index.json"))
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    recipes = {f"granet/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "recipes").rglob("*.toml")}
    assert sources | recipes | {"granet/py.typed", "granet/data/digits.npz", "granet/data/NOTICE"} <= names
    assert len(recipes) > 10 and len(index) == len(granet.list_pretrained()) > 0
    assert not [name for name in names if name.endswith((".safetensors", ".pt", ".cpp", ".hpp", ".h"))]
    assert all(name.startswith("granet") for name in names)
    assert wheel.stat().st_size - sum(native_sizes(wheel)) <= LIMIT


def native_sizes(wheel: Path) -> list[int]:
    """How many bytes of the wheel each native library takes."""
    with zipfile.ZipFile(wheel) as archive:
        return [each.compress_size for each in archive.infolist() if "libgranet_native" in each.filename]


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_the_wheel_is_of_this_platform_and_has_native_code(wheel: Path, commands: Path, tmp_path: Path) -> None:
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    assert len(native_sizes(wheel)) == 1 and native_sizes(wheel)[0] <= LIMIT
    shown = done(commands / "python", "-c", "from granet.native import isas; print(isas())", cwd=tmp_path)
    assert "baseline" in shown


def test_without_a_compiler_it_installs_and_says_what_is_missing(unpacked: Path, tmp_path: Path) -> None:
    settings = {"CXX": str(tmp_path / "no-compiler")}
    done(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, unpacked, cwd=tmp_path, **settings)
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    assert native_sizes(wheel) == []
    (tmp_path / "environment").mkdir()
    python = environment(tmp_path / "environment", wheel) / "python"
    said = done(python, "-c", "import granet, granet.native; granet.native.library()", cwd=tmp_path, code=1)
    last = said.splitlines()[-1]
    assert last.startswith("granet.native.library.NativeMissing: granet was installed without its native library")


def test_the_wheel_works_in_an_empty_folder(commands: Path, tmp_path: Path) -> None:
    where = done(commands / "python", "-c", "import granet; print(granet.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(commands.parent / "lib")
    assert done(commands / "granet", "--version", cwd=tmp_path) == f"granet {granet.__version__}\n"
    done(commands / "granet", "train", "--epochs", "2", cwd=tmp_path)
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert [name.rpartition("-")[0] for name in runs] == [
        "digits-digits_net-dense-seed0",
        "digits-digits_net-granet-0.9-seed0",
    ]
    assert all((tmp_path / "runs" / name / "model.safetensors").is_file() for name in runs)
    assert "digits" in done(commands / "granet", "sweep", "zoo-digits", "--dry-run", cwd=tmp_path)


def test_the_wheel_knows_networks_and_says_that_it_has_no_files(commands: Path, tmp_path: Path) -> None:
    listed = done(commands / "granet", "pretrained", cwd=tmp_path)
    assert all(entry.name in listed for entry in granet.list_pretrained())
    file, settings = granet.list_pretrained()[0].file, {"GRANET_PRETRAINED": str(tmp_path)}
    fetch = (commands / "granet", "pretrained", "--fetch", granet.list_pretrained()[0].name)
    said = done(*fetch, cwd=tmp_path, code=2, **settings)
    assert said.startswith(f"granet: {file}: is neither in ") and said.count("\n") == 1
    (tmp_path / file).write_bytes((ROOT / "pretrained" / file).read_bytes())
    assert done(*fetch, cwd=tmp_path, **settings) == f"{tmp_path / file}\n"


def test_the_sdist_has_every_test_and_passes_a_part_of_them(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    python = environment(tmp_path, wheel, "dev", "cli", "plots", "data") / "python"
    command = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    collected = []
    for folder in (ROOT, unpacked):
        told = done(*command, "--collect-only", cwd=folder, PYTHONPATH=str(folder / "src"))
        collected.append([line.replace(str(folder), "") for line in told.splitlines() if "::" in line])
    assert collected[0] == collected[1] != []
    done(*command, *QUICK, cwd=unpacked, PYTHONPATH=str(unpacked / "src"))
