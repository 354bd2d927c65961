"""`granet train`."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from granet.files import DISK_ERRORS, writing_to

if TYPE_CHECKING:
    from rich.console import Console

    from granet.clock import Time
    from granet.training import Recipe

_MODEL = (
    "The network: `digits_net`, `resnet20`, `resnet32`, `resnet56`, `resnet50`, `resnet50_cifar`, `vgg19`, `timm:NAME` "
    "if timm is installed, or `package.module:function` of your own that takes `num_classes` and `in_channels`."
)
_OBSERVE = (
    "Watch the network change, one epoch at a time: `overlap`, `ever_active`, `survival`, `dead_filters`, `dormant`, "
    "`gradient_norm`, `effective_rank`, or `package.module:Class` of your own; may be given several times. What they "
    "see goes to `metrics.jsonl` and into reports, and what each costs is in docs/observers.md."
)


@dataclass(frozen=True)
class Train:
    """Train a sparse network, and its dense twin to compare with.

    Without arguments: GraNet from dense to 90 % sparsity on the embedded digits, on the CPU, in about a minute. With a
    recipe file: what the file says. Options replace parts of either. Each run leaves a folder with its configuration,
    metrics, weights and a plot.
    """

    recipe: Annotated[Path | None, Positional] = None
    """A recipe file, or the name of one that comes with granet, such as `cifar10-vgg19`."""
    method: str | None = None
    """Any name that `granet methods` lists, `dense`, or `package.module:Class` of your own."""
    sparsity: float | None = None
    """Share of weights that are zero at the end."""
    initial_sparsity: float | None = None
    """Share of weights that are zero at the start."""
    every: str | None = None
    """Time between mask updates: optimizer steps (`20`), epochs (`2ep`) or a share of training (`5%`, `0.05`)."""
    prune_end: str | None = None
    """When gradual pruning reaches its sparsity, written likewise."""
    end: str | None = None
    """When the masks stop changing, for methods with such a field, written likewise."""
    data: str | None = None
    """The images: `digits` of the package itself, `cifar10`, `cifar100`, `mnist`, `fashion-mnist` or `imagenet`."""
    data_dir: Path | None = None
    """Where other image files are; by default in the folder that GRANET_DATA names, else in ~/.cache/granet."""
    model: Annotated[str | None, arg(help=_MODEL)] = None
    width: float | None = None
    """Multiply all hidden widths of the network by this (not of `digits_net`), as for the Small-Dense baseline."""
    parent: str | None = None
    """The folder of a finished run, or its name in `out`, for methods that start from one (`granet methods`)."""
    pattern: str | None = None
    """What is kept or dropped together: `weight`, `filter`, `fan-in`, blocks such as `4x1`, or N:M such as `2:4`."""
    exclude: UseAppendAction[tuple[str, ...]] = ()
    """Leave weights with such names dense, as in `classifier.*`; may be given several times."""
    epochs: int | None = None
    """Passes over the training images."""
    stretch: float | None = None
    """Multiply the epochs by this; everything written as a share of training stretches with them."""
    batch_size: int | None = None
    """Images per optimizer step."""
    lr: float | None = None
    """Initial learning rate."""
    weight_decay: float | None = None
    """L2 penalty of SGD."""
    schedule: str | None = None
    """Of the learning rate: `multistep` or `cosine`."""
    warm_up: str | None = None
    """Time in which the learning rate rises to its full value: `500`, `5ep` or `2%`."""
    label_smoothing: float | None = None
    """Share of each label given to all classes alike."""
    clip: float | None = None
    """Largest norm of all gradients together, after masking; 0 for none."""
    ema: float | None = None
    """Decay of a moving average of the weights, which is then what is evaluated and saved; 0 for none."""
    precision: str | None = None
    """Of activations and products: `float32` or `bfloat16`."""
    compile: bool | None = None
    """Fuse the forward and backward pass with `torch.compile`."""
    deterministic: bool | None = None
    """Make a GPU repeat itself exactly, at some cost in speed."""
    observe: Annotated[UseAppendAction[tuple[str, ...]], arg(help=_OBSERVE)] = ()
    seed: int | None = None
    """Decides initial weights, order of the images and every random choice of a method."""
    device: str | None = None
    """Where to train: `cpu`, `cuda`, `cuda:1` ... By default the CPU for the digits, else a GPU if there is one."""
    threads: int | None = None
    """CPU threads; by default one for the embedded digits, whose network is small, and otherwise as torch chooses."""
    dense_twin: bool = True
    """Also train the same network without sparsity, from the same seed."""
    out: Path = Path("runs")
    """Where the run folders go. The same run started again goes on where it stopped, or is found to be done."""
    checkpoint_every: float = 20.0
    """Seconds between checkpoints. SIGINT (Ctrl-C) and SIGTERM write one too."""
    workers: int | None = None
    """Processes that read images, for a set that stays in its files; by default one per core."""
    log: UseAppendAction[tuple[str, ...]] = ()
    """Also log to `tensorboard`, `wandb` or `mlflow`, each behind the extra of its name; may be given several times."""

    def run(self, console: Console) -> None:
        """Train, show and save."""
        from granet.cli.console import getting_ready, results_table, watch
        from granet.cli.device import choose_device, choose_threads
        from granet.data import load
        from granet.training import DENSE, Run
        from granet.training.interrupt import stop_signals
        from granet.training.loggers import create_loggers
        from granet.training.run import check_checkpoint_every

        check_checkpoint_every(self.checkpoint_every)
        loggers = create_loggers(self.log)
        recipe = self.whole_recipe()
        embedded = recipe.data == "digits"
        device = choose_device(self.device, embedded)
        data = load(recipe.data, data_dir=self.data_dir)
        choose_threads(self.threads, embedded)
        recipes = {recipe.method: recipe}
        if self.dense_twin:
            recipes[DENSE] = recipe.dense_twin()
        runs = {}
        for name, one in recipes.items():
            with getting_ready(console, name):
                runs[name] = run = Run(one, data, device, self.out, workers=self.workers, loggers=loggers)
            if run.epochs_done:
                where = "is done already" if run.summary else f"goes on after epoch {run.epochs_done}"
                console.print(f"{name:<10} {where}")
            if run.summary is None:
                with writing_to("out", self.out, errors=DISK_ERRORS), stop_signals() as stop:
                    deque(watch(console, name, run.epochs(self.checkpoint_every, stop), one.total_epochs), maxlen=0)
                    if stop():  # it came after the last step
                        raise KeyboardInterrupt
        if importlib.util.find_spec("matplotlib") is None:
            console.print("no curves.png: pip install 'granet[plots]'")
        summaries = {name: run.summary for name, run in runs.items() if run.summary}
        console.print(results_table(summaries, scaled=recipe.width != 1))
        for run in runs.values():
            console.print(f"saved in {run.folder.path}", soft_wrap=True)

    def whole_recipe(self) -> Recipe:
        """The file's recipe, or that of the digits, with what the options replace."""
        from granet.methods import former_names
        from granet.training import DENSE, Recipe
        from granet.training.recipe import method_class
        from granet.training.recipe_file import RECIPE_KEYS, read_recipe_file, recipe_path

        if self.recipe is None:
            base = Recipe(method=self.method or Recipe.method)
        else:
            base = read_recipe_file(recipe_path(self.recipe)).recipe(self.method)
        asked = {key: value for key in RECIPE_KEYS if (value := getattr(self, key, None)) not in (None, ())}
        if self.warm_up is not None:
            asked["warm_up"] = _time(self.warm_up)
        own: dict[str, Time | float | None] = {"sparsity": self.sparsity, "initial_sparsity": self.initial_sparsity}
        own |= {"pattern": self.pattern, **{name: _time(getattr(self, name)) for name in ("every", "prune_end", "end")}}
        own = {name: value for name, value in own.items() if value is not None}
        own = former_names.present(method_class(base.method), own)
        if base.method == DENSE and own:
            name, value = next(iter(own.items()))
            raise ValueError(f"{name}={value!r}: must be left out, dense training has no such field")
        return dataclasses.replace(base, method_fields={**base.method_fields, **own}, **asked)


def _time(text: str | None) -> Time | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    with suppress(ValueError):
        return float(text)
    return text
