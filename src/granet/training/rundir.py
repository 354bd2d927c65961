"""The folder of one run: what was asked, what happened, what came out.

    config.json         the recipe, which images there were, and the versions and device it ran on
    metrics.jsonl       one line per epoch, with what observers saw if there were any
    layers.json         name, shape, weights and active weights of each sparse layer at the end
    updates.jsonl       one line per mask update; its counts are in the order of layers.json
    summary.json        the final figures
    model.safetensors   the weights of the last epoch, zeros included
    curves.png          accuracy and sparsity over time, if matplotlib is installed
    checkpoint-*.pt     the newest two states to go on from, until the run is done
    kept-*.pt           the states that the recipe asks to keep, for other runs to branch from

A dense run has no layers.json and no updates.jsonl. A branch of another run leaves no weights or curves.

The folder is named after the run, so starting the same run again continues where it stopped, or finds it done. Files
appear whole or not at all: each is written under a temporary name and then renamed. `metrics.jsonl` grows by one
`write` of one line per epoch, so that it can be followed while training runs.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from granet.files import atomic, parse_json, read_json, unfinished, write_text, writing_to
from granet.locks import Held, locked
from granet.methods import former_names
from granet.sparsifier import Sparsifier, UpdateRecord
from granet.training.environment import checked_environment, environment
from granet.training.recipe import Recipe, known_class
from granet.training.records import EpochRecord, Summary, read_epoch, read_summary

T = TypeVar("T")

LAYERS, UPDATES, WEIGHTS = "layers.json", "updates.jsonl", "model.safetensors"


class TrainedElsewhere(ValueError):
    """Another process trains the run, or has finished it meanwhile."""


@dataclass(frozen=True)
class LayerCount:
    """One sparse layer at the end of a run."""

    name: str
    shape: tuple[int, ...]
    weights: int
    active: int

    @property
    def sparsity(self) -> float:
        return (self.weights - self.active) / self.weights


@dataclass(frozen=True)
class RunDir:
    """One run's folder, which need not be there yet: `find` names it, `make` makes it."""

    path: Path

    @staticmethod
    def find(root: Path, recipe: Recipe) -> RunDir:
        """The recipe's own folder under `root`; ValueError if one of that name holds another recipe."""
        run = RunDir(root / run_name(recipe))
        if (run.path / "config.json").exists() and run.recipe != recipe:
            raise ValueError(f"{run.told} in it holds a run of another recipe; choose another folder")
        return run

    @property
    def told(self) -> str:
        """How errors begin that are about this folder: with the option that it is under, and its name."""
        return f"out={str(self.path.parent)!r}: {self.path.name}"

    def make(self) -> None:
        """Make the folder, unless an earlier start did."""
        allowed = "must be a folder that can be written to, or a path where one can be made"
        with writing_to("out", self.path.parent, allowed):
            self.path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else may write here meanwhile; TrainedElsewhere if somebody does, ValueError if the folder is removed.

        Ends with the process, however it ends.
        """
        try:
            with locked(self.path, wait=False):
                yield
        except Held as error:
            raise TrainedElsewhere(f"{self.told} is being trained already") from error
        except FileNotFoundError as error:
            if self.path.exists():
                raise
            raise ValueError(f"{self.told} in it was removed while it was trained; start it again") from error

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run in the folder; ValueError that names the file if it is damaged."""
        fields: dict[str, Any] = {"method_fields": {}}  # without any, it would import a method of somebody's own
        return read_json(self.path / "config.json", lambda values: Recipe.from_dict(fields | values["recipe"]))

    @property
    def environment(self) -> dict[str, Any]:
        """The versions and the device that it ran on."""
        return read_json(self.path / "config.json", lambda values: checked_environment(values["environment"]))

    @property
    def images(self) -> tuple[tuple[int, int, int], int]:
        """The shape of the images that it was trained on, and the number of their classes."""
        return read_json(self.path / "config.json", lambda values: _images(values["images"]))

    @property
    def records(self) -> list[EpochRecord]:
        """The epochs so far, those before a branch included."""
        return list(read_lines(self.path / "metrics.jsonl", read_epoch, growing=self.summary is None))

    @property
    def summary(self) -> Summary | None:
        """The final figures, if the run is finished; ValueError that names the file if it is damaged."""
        path = self.path / "summary.json"
        return read_json(path, read_summary) if path.exists() else None

    def check_images(self, images: Mapping[str, Any]) -> None:
        """ValueError if the run in the folder was trained on others; one from before images were recorded may pass."""
        path = self.path / "config.json"
        had = read_json(path, lambda values: dict(values.get("images", images))) if path.exists() else images
        if had != images:
            others = ", ".join(f"{name} {had.get(name)!r}" for name in images if had.get(name) != images[name])
            raise ValueError(f"{self.told} in it was trained on other images ({others} there); choose another folder")

    def describe(self, recipe: Recipe, device: torch.device, images: Mapping[str, Any]) -> None:
        """Write `config.json`, unless an earlier start did."""
        if not (self.path / "config.json").exists():
            ran_on = environment(device)
            content = {"recipe": recipe.to_dict(), "images": dict(images), "environment": ran_on}
            self.write_json("config.json", content)

    def begin(self, records: Sequence[EpochRecord]) -> None:
        """Start `metrics.jsonl` with the epochs done so far, without half-written or later ones that a crash left."""
        for left in [*unfinished(self.path), self.path / LAYERS, self.path / UPDATES]:
            left.unlink(missing_ok=True)
        write_text(self.path / "metrics.jsonl", "".join(map(_line, records)))

    def append(self, record: EpochRecord) -> None:
        """Add one epoch to `metrics.jsonl`."""
        with (self.path / "metrics.jsonl").open("ab") as file:  # not `os.write`, which may write half on a full disk
            file.write(_line(record).encode())

    def finish(self, model: nn.Module | None, summary: Summary, sparsifier: Sparsifier | None = None) -> None:
        """Write the weights, if there are any to write, what became of the sparse layers, and the final figures."""
        if model is not None:
            with atomic(self.path / WEIGHTS) as temporary:
                save_model(model, str(temporary))
                shutil.copymode(self.path / "config.json", temporary)  # safetensors makes it readable only by the owner
        if sparsifier is not None:
            layers = sparsifier.layers.values()
            counts = [LayerCount(layer.name, tuple(layer.weight.shape), layer.numel, layer.active) for layer in layers]
            self.write_json(LAYERS, [asdict(count) for count in counts])
            write_text(self.path / UPDATES, "".join(map(_line, sparsifier.history)))
        self.write_json("summary.json", asdict(summary))

    def trained_state(self, model: nn.Module, field: str = "parent") -> dict[str, Tensor]:
        """The weights of the run that is finished here; ``model`` is only compared with. ValueError if it differs.

        The error names ``field``, which the folder was given as.
        """
        told = f"{field}={str(self.path)!r}"
        path = self.path / WEIGHTS
        if not path.is_file():
            raise ValueError(f"{told}: must be the folder of a finished run, there is no {path.name} in it")
        twin = copy.deepcopy(model).cpu()
        try:
            path.open("rb").close()  # of a file that may not be read, safetensors says that it is not there
            load_model(twin, path)  # a tied weight is stored once
        except OSError as error:
            raise ValueError(f"{told}: {path.name} must be readable ({error.strerror})") from error
        except (RuntimeError, SafetensorError) as error:
            why = " ".join(str(error).split())[:200]  # in one line
            raise ValueError(f"{told}: must be a run of this model ({why})") from error
        return twin.state_dict()

    def write_json(self, name: str, value: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Write `value` as an indented JSON file."""
        write_text(self.path / name, json.dumps(value, indent=2) + "\n")


def read_lines(path: Path, build: Callable[[Any], T], growing: bool = False) -> Iterator[T]:
    """One value per line; none if there is no such file. The last line of a growing file may be incomplete."""
    if path.exists():
        *lines, rest = path.read_bytes().split(b"\n")
        for number, line in enumerate([*lines, rest] if rest and not growing else lines, start=1):
            yield parse_json(f"{path}, line {number}", line, build)


def run_name(recipe: Recipe) -> str:
    """What the run is, in words, and a hash of all settings that are not the defaults.

    Because defaults are left out, a field that is added later does not change the names of earlier runs; nor does a new
    name of a method's field, which counts under its first one. A model or method of one's own, `package.module:Class`,
    stands there with a dot: Windows has no colons in names of files; and a slash, as in `timm:hf-hub:owner/name`, would
    be a folder.
    """
    sparsity = recipe.method_fields.get("sparsity")
    if not isinstance(sparsity, int | float | None):
        raise ValueError(f"sparsity={sparsity!r}: must be a number")
    asked = () if sparsity is None else (f"{sparsity:g}",)
    defaults = Recipe().to_dict()
    differs = {key: value for key, value in recipe.to_dict().items() if value != defaults[key]}
    if fields := differs.get("method_fields"):
        differs["method_fields"] = former_names.first_written(known_class(recipe.method), fields)
    digest = hashlib.sha256(json.dumps(differs, sort_keys=True).encode()).hexdigest()[:8]
    words = "-".join([recipe.data, recipe.model, recipe.method, *asked, f"seed{recipe.seed}", digest])
    return words.replace(":", ".").replace("/", ".")


def _images(values: Any) -> tuple[tuple[int, int, int], int]:
    channels, height, width = values["shape"]
    for size in (channels, height, width, classes := values["classes"]):
        if type(size) is not int or size < 1:
            raise ValueError(f"images: {size!r} is no size")
    return (channels, height, width), classes


def _line(record: EpochRecord | UpdateRecord) -> str:
    values = {name: _finite(value) for name, value in asdict(record).items()}
    if values.get("observed", 0) is None:
        del values["observed"]
    return json.dumps(values) + "\n"


def _finite(value: Any) -> Any:
    """`value`, or None for the NaN and infinities of a run that diverged: JSON has no word for them."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
