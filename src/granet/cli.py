"""The `granet` command. `main` turns arguments into one of the dataclasses below and calls its `run`."""

from __future__ import annotations

import dataclasses
import errno
import importlib.util
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import torch

import granet
from granet.clock import Time
from granet.data import ImageSet, check, list_datasets, load
from granet.training import DENSE, Recipe, RunDir, Summary, Training
from granet.training.checkpoint import load_checkpoint, save_checkpoint
from granet.training.recipe_file import read_recipe_file

if TYPE_CHECKING:
    from rich.console import Console

try:
    from tyro.conf import Positional
except ImportError:  # said by main, with what to install
    Positional = None  # type: ignore[misc]

_DIGITS = Recipe()


@dataclass(frozen=True)
class Train:
    """Train a sparse network, and its dense twin to compare with.

    Without arguments: GraNet from dense to 90 % sparsity on the embedded digits, on the CPU, in under a minute. With a
    recipe file: what the file says. Options replace parts of either. Each run leaves a folder with its configuration,
    metrics, weights and a plot.
    """

    recipe: Annotated[Path | None, Positional] = None
    """A recipe file, such as `recipes/cifar10-vgg19.toml`."""
    method: str | None = None
    """Any name that `granet methods` lists, or `dense`."""
    sparsity: float | None = None
    """Share of weights that are zero at the end."""
    initial_sparsity: float | None = None
    """Share of weights that are zero at the start."""
    every: str | None = None
    """Time between mask updates: optimizer steps (`20`), epochs (`2ep`) or a share of training (`5%`)."""
    end: str | None = None
    """When the method's schedule ends, written likewise."""
    data: str | None = None
    """The image set. `digits` comes with the package."""
    data_dir: Path | None = None
    """Where the files of other image sets are; by default the folder that GRANET_DATA names."""
    model: str | None = None
    """The network: a name, or `package.module:function` of your own that takes `num_classes` and `in_channels`."""
    epochs: int | None = None
    """Passes over the training images."""
    stretch: float = 1.0
    """Train so many times as long; everything written as a share of training stretches with it."""
    batch_size: int | None = None
    """Images per optimizer step."""
    lr: float | None = None
    """Initial learning rate."""
    weight_decay: float | None = None
    """L2 penalty of SGD."""
    precision: str | None = None
    """Of activations and products: `float32` or `bfloat16`."""
    seed: int | None = None
    """Decides initial weights, order of the images and every random choice of a method."""
    device: str | None = None
    """Where to train: `cpu`, `cuda`, `cuda:1` ... By default the CPU for the digits, else a GPU if there is one."""
    threads: int | None = None
    """CPU threads. By default 1 for the embedded digits, whose network is too small to gain much from more, and
    torch's own choice otherwise."""
    dense_twin: bool = True
    """Also train the same network without sparsity, from the same seed."""
    out: Path = Path("runs")
    """Where the run folders go. The same run started again goes on where it stopped, or is found to be done."""
    checkpoint_every: float = 20.0
    """Seconds between checkpoints, which are written at the end of an epoch."""

    def run(self, console: Console) -> None:
        """Train, show and save."""
        from granet.console import results_table

        recipe = self.whole_recipe()
        embedded = recipe.data == _DIGITS.data
        device = _device(self.device or ("cuda" if torch.cuda.is_available() and not embedded else "cpu"))
        data = load(recipe.data, data_dir=self.data_dir)
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads={self.threads!r}: must be 1 or more")
        if self.threads is not None or embedded:
            torch.set_num_threads(self.threads or 1)
        recipes = {recipe.method: recipe}
        if self.dense_twin:
            recipes[DENSE] = recipe.dense_twin()
        summaries, folders = {}, []
        for name, one in recipes.items():
            summaries[name], folder = _train(console, one, data, device, self.out, self.checkpoint_every)
            folders.append(folder)
        console.print(results_table(summaries))
        for folder in folders:
            console.print(f"saved in {folder}", highlight=False, soft_wrap=True)

    def whole_recipe(self) -> Recipe:
        """The file's recipe, or that of the digits, with what the options replace."""
        base = self._digits_recipe() if self.recipe is None else read_recipe_file(self.recipe).recipe(self.method)
        shared = {field.name for field in dataclasses.fields(self)} & {
            field.name for field in dataclasses.fields(Recipe)
        }
        asked = {name: value for name in shared if (value := getattr(self, name)) is not None}
        own: dict[str, Time | float | None] = {"sparsity": self.sparsity, "initial_sparsity": self.initial_sparsity}
        own |= {"every": _time(self.every), "end": _time(self.end)}
        fields = {**base.method_fields, **{name: value for name, value in own.items() if value is not None}}
        if not self.stretch > 0:
            raise ValueError(f"stretch={self.stretch!r}: must be above 0")
        asked["epochs"] = round(self.stretch * asked.get("epochs", base.epochs))
        return dataclasses.replace(base, method_fields={} if base.method == DENSE else fields, **asked)

    def _digits_recipe(self) -> Recipe:
        """Another method takes as much of the digits' settings as it has a use for."""
        if self.method in (None, DENSE, _DIGITS.method):
            return _DIGITS.dense_twin() if self.method == DENSE else _DIGITS
        fields = dict(_DIGITS.method_fields)
        if not hasattr(granet.create_method(self.method, sparsity=fields["sparsity"]), "every"):
            del fields["every"]
        return dataclasses.replace(_DIGITS, method=self.method, method_fields=fields)


def _time(text: str | None) -> Time | None:
    return int(text) if text is not None and text.isdecimal() else text


@dataclass(frozen=True)
class Methods:
    """List the sparse training methods and what each can do and needs."""

    def run(self, console: Console) -> None:
        """Print the flags as a table, then one line about each."""
        from granet.console import methods_table

        methods = granet.list_methods()
        console.print(methods_table(methods))
        for info in methods:
            line = f"[bold]{info.name}[/bold]: {info.summary} ({info.paper})"
            console.print(line, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Data:
    """Look after the files of image sets: `granet data check FOLDER` verifies their checksums."""

    action: Annotated[Literal["check"], Positional]
    """`check`: compare every known file in the folder with what was published. Changes nothing."""
    folder: Annotated[Path, Positional]
    """Where the files are."""

    def run(self, console: Console) -> None:
        """One line for each file; exit code 1 if something is wrong with any."""
        results = check(self.folder)
        if not results:
            raise ValueError(f"folder={str(self.folder)!r}: holds no file of {', '.join(list_datasets())}")
        for result in results:
            console.print(
                f"{result.status:<12}{result.path}  {result.detail}".rstrip(), highlight=False, soft_wrap=True
            )
        if not all(result.passed for result in results):
            sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. A wrong value ends with one line on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"granet {granet.__version__}")
        return
    missing = [name for name in ("tyro", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"granet: the command line needs {' and '.join(missing)}: pip install 'granet[cli]'")
    import tyro
    from rich.console import Console

    command: Train | Methods | Data = tyro.extras.subcommand_cli_from_dict(
        {"train": Train, "methods": Methods, "data": Data},
        prog="granet",
        description="Sparse training for PyTorch. `granet --version` prints the version.",
        args=arguments,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is an interrupt
    try:
        command.run(Console())
    except ValueError as error:
        print(f"granet: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"granet: no room left on the disk for {error.filename or 'the run folder'}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("granet: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device={name!r}: must be a device that this torch can use, such as cpu or cuda") from error
    return device


def _train(
    console: Console, recipe: Recipe, data: ImageSet, device: torch.device, out: Path, checkpoint_every: float
) -> tuple[Summary, Path]:
    """One run with its folder; a new folder is made only once the recipe has proved sound."""
    from granet.console import watch

    run = RunDir.find(out, recipe)
    if (summary := run.summary) is not None:
        console.print(f"{recipe.method:<10} is done already", highlight=False)
        return summary, run.path
    training = Training(recipe, data, device=device, state=load_checkpoint(run.path, device))
    if training.records:
        console.print(f"{recipe.method:<10} goes on after epoch {len(training.records)}", highlight=False)
    run.make(recipe, device)
    run.begin(training.records)
    saved = time.monotonic()
    for record in watch(console, recipe.method, training.epochs(), recipe.epochs):
        if time.monotonic() - saved >= checkpoint_every and record.epoch < recipe.epochs:
            save_checkpoint(run.path, record.epoch, training.state())
            saved = time.monotonic()
        run.append(record)
    if importlib.util.find_spec("matplotlib") is None:
        console.print("no curves.png: pip install 'granet[plots]'", highlight=False)
    else:
        from granet.training.plots import plot_run

        plot_run(training.records, run.path / "curves.png", f"{recipe.method} on {data.name}, seed {recipe.seed}")
    summary = training.summary()
    run.finish(training.model, summary)  # last: its summary says that the run is done
    return summary, run.path
