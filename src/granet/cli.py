"""The `granet` command. `main` turns arguments into one of the dataclasses below and calls its `run`."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import granet
from granet.clock import Time
from granet.data import ImageSet, load
from granet.training import DENSE, Recipe, RunDir, Summary, Training

if TYPE_CHECKING:
    from rich.console import Console

_DEFAULT = Recipe()


@dataclass(frozen=True)
class Train:
    """Train a sparse network, and its dense twin to compare with.

    Without arguments: GraNet from dense to 90 % sparsity on the embedded digits, on the CPU, in under a minute. Each
    run leaves a folder with its configuration, metrics, weights and a plot.
    """

    method: str = _DEFAULT.method
    """Any name that `granet methods` lists, or `dense`."""
    sparsity: float = _DEFAULT.method_fields["sparsity"]
    """Share of weights that are zero at the end."""
    initial_sparsity: float | None = None
    """Share of weights that are zero at the start; each method has its own default."""
    every: str | None = None
    """Time between mask updates: optimizer steps (`20`), epochs (`2ep`) or a share of training (`5%`). By default an
    epoch, for methods that update masks."""
    data: str = _DEFAULT.data
    """The image set. `digits` comes with the package."""
    data_dir: Path | None = None
    """Where the files of other image sets are; by default the folder that GRANET_DATA names."""
    model: str = _DEFAULT.model
    """The network: a name, or `package.module:function` of your own that takes `num_classes` and `in_channels`."""
    epochs: int = _DEFAULT.epochs
    """Passes over the training images."""
    batch_size: int = _DEFAULT.batch_size
    """Images per optimizer step."""
    lr: float = _DEFAULT.lr
    """Initial learning rate; a tenth of it after 50 % of training, a hundredth after 75 %."""
    weight_decay: float = _DEFAULT.weight_decay
    """L2 penalty of SGD."""
    crop: int = _DEFAULT.crop
    """Augmentation: shift training images by up to so many pixels."""
    flip: bool = _DEFAULT.flip
    """Augmentation: mirror half of the training images."""
    seed: int = _DEFAULT.seed
    """Decides initial weights, order of the images and every random choice of a method."""
    device: str = "cpu"
    """Where to train: `cpu`, `cuda`, `cuda:1` ..."""
    threads: int | None = None
    """CPU threads. By default 1 for the embedded digits, whose network is too small to gain much from more, and
    torch's own choice otherwise."""
    dense_twin: bool = True
    """Also train the same network without sparsity, from the same seed."""
    out: Path = Path("runs")
    """Where the run folders go; existing ones are never overwritten."""

    def run(self, console: Console) -> None:
        """Train, show and save."""
        from granet.console import results_table

        recipe, device = self.recipe(), _device(self.device)
        data = load(recipe.data, data_dir=self.data_dir)
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads={self.threads!r}: must be 1 or more")
        if self.threads is not None or recipe.data == _DEFAULT.data:
            torch.set_num_threads(self.threads or 1)
        recipes = {recipe.method: recipe}
        if self.dense_twin:
            recipes[DENSE] = recipe.dense_twin()
        summaries, folders = {}, []
        for name, one in recipes.items():
            summaries[name], folder = _train(console, one, data, device, self.out)
            folders.append(folder)
        console.print(results_table(summaries))
        for folder in folders:
            console.print(f"saved in {folder}", highlight=False, soft_wrap=True)

    def recipe(self) -> Recipe:
        """The recipe these arguments stand for."""
        own = {field.name for field in dataclasses.fields(self)} & {field.name for field in dataclasses.fields(Recipe)}
        return Recipe(method_fields=self._method_fields(), **{name: getattr(self, name) for name in own})

    def _method_fields(self) -> dict[str, Any]:
        """What was asked for; whether the method has such a field is for the method to say."""
        if self.method == DENSE:
            return {}
        method = granet.create_method(self.method, sparsity=self.sparsity)
        every: Time | None
        if self.every is None:
            every = _DEFAULT.method_fields["every"] if hasattr(method, "every") else None
        else:
            every = int(self.every) if self.every.isdecimal() else self.every
        asked = {"sparsity": self.sparsity, "initial_sparsity": self.initial_sparsity, "every": every}
        return {name: value for name, value in asked.items() if value is not None}


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

    command: Train | Methods = tyro.extras.subcommand_cli_from_dict(
        {"train": Train, "methods": Methods},
        prog="granet",
        description="Sparse training for PyTorch. `granet --version` prints the version.",
        args=arguments,
    )
    try:
        command.run(Console())
    except ValueError as error:
        print(f"granet: {error}", file=sys.stderr)
        sys.exit(2)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device={name!r}: must be a device that this torch can use, such as cpu or cuda") from error
    return device


def _train(console: Console, recipe: Recipe, data: ImageSet, device: torch.device, out: Path) -> tuple[Summary, Path]:
    """One run with its folder; the folder is made only once the recipe has proved sound."""
    from granet.console import watch

    training = Training(recipe, data, device=device)
    run = RunDir.create(out, recipe, device)
    for record in watch(console, recipe.method, training.epochs(), recipe.epochs):
        run.append(record)
    summary = training.summary()
    run.finish(training.model, summary)
    if importlib.util.find_spec("matplotlib") is None:
        console.print("no curves.png: pip install 'granet[plots]'", highlight=False)
    else:
        from granet.training.plots import plot_run

        plot_run(training.records, run.path / "curves.png", f"{recipe.method} on {data.name}, seed {recipe.seed}")
    return summary, run.path
