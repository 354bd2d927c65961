"""`granet pretrained`: the trained networks as a list or as a page, and their files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table

from granet.cli.console import split_alike, titled
from granet.cli.device import choose_device
from granet.data.cifar import CIFAR10, CIFAR100
from granet.pretrained import FOLDER, Pretrained, find_pretrained, read_index
from granet.studies.markdown import markdown_table
from granet.studies.publish import publish

_PAGE = """\
# Pretrained networks

Sparse networks, trained and packed. (This page is printed by `granet pretrained --markdown` from the index,
`granet.list_pretrained()`.)

```python
model = granet.load_pretrained("{example}")  # an nn.Module in eval mode
```

{table}
An installation has the index alone. The files are in the folder `pretrained` of a checkout, where they are found by
themselves. Elsewhere, put those that you need into `~/.cache/granet/pretrained`, or into another folder that the
environment variable `GRANET_PRETRAINED` names. Or have them downloaded to there: `GRANET_PRETRAINED_URL` is the address
of a folder that holds them, on a server of your own or of your choice, for there is none that granet knows of.
`load_pretrained` takes it as `url=` as well. A file is loaded and kept only if its SHA-256 is the one in the index. For
machines without a network, fetch it beforehand; this prints where it is:

```
granet pretrained --fetch {example}
```

Each file is [packed](files.md). The accuracy is that of the file, with the weights after the
last epoch of its run, on all test images and in `float32`. It may differ a little from that of the run, which computes
in `bfloat16`; the weights of some files are rounded to that as well. `results/logs/RUN.json` has the recipe and the
course of a run.

The input is a batch of images of shape (N, 3, 32, 32), scaled to [0, 1] and then normalised with the mean
and the standard deviation of each channel:

{inputs}
To continue training and keep the zeros, ask for the sparsity that the network has: its largest weights stay, which are
all but the zeros. The same works for any network that was trained sparse:

```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
sparsifier = granet.sparsify(model, optimizer, granet.OneShot(sparsity={sparsity:.4g}))
model.train()
```
"""


@dataclass(frozen=True)
class PretrainedNetworks:
    """List the trained networks that `granet.load_pretrained(NAME)` loads, or fetch the file of one.

    `--add` is for maintainers in a checkout: it packs the network of a finished run, measures the packed file on the
    test images, and enters it in the index.
    """

    markdown: bool = False
    """Print the page docs/pretrained.md instead."""
    fetch: str | None = None
    """The name of a network whose file to have here, downloaded if need be; prints where it is."""
    url: str | None = None
    """The folder to download it from; by default the one that GRANET_PRETRAINED_URL names."""
    add: Path | None = None
    """The folder of a finished run to add, such as `runs/cifar10-vgg19-granet-0.98-seed0-006f35c6`."""
    name: str | None = None
    """The name to add it under; by default MODEL-DATA-METHOD-SPARSITY."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """How its weights are stored."""
    data_dir: Path | None = None
    """Where the image files are; by default in the folder that GRANET_DATA names, else in ~/.cache/granet."""
    device: str | None = None
    """Where to measure; by default a GPU if there is one."""
    folder: Path = FOLDER
    """Where the index is, and where to add packed files."""

    def run(self, console: Console) -> None:
        """Fetch one; or add what is to be added, then print the page or the list."""
        if self.name is not None and self.add is None:
            raise ValueError(f"name={self.name!r}: must be given with add, the run to enter under it")
        if self.url is not None and self.fetch is None:
            raise ValueError(f"url={self.url!r}: must be given with fetch, the network to download")
        if self.fetch is not None and (self.add is not None or self.markdown):
            raise ValueError(f"fetch={self.fetch!r}: must be given without add and markdown")
        if not self.folder.is_dir():
            raise ValueError(f"folder={str(self.folder)!r}: must be a folder")
        if self.fetch is not None:
            _, path = find_pretrained(self.folder, self.fetch, self.url)
            console.print(str(path), soft_wrap=True, highlight=False, markup=False)
            return
        if self.add is not None:
            rounded = None if self.dtype == "float32" else getattr(torch, self.dtype)
            device = choose_device(self.device, embedded=False)
            entry = publish(self.add, self.folder, name=self.name, dtype=rounded, data_dir=self.data_dir, device=device)
            told = f"added {entry.name}: {entry.size:,} bytes, {entry.accuracy_last:.2f} % on the test images"
            console.print(told, soft_wrap=True)
        entries = read_index(self.folder)
        if self.markdown:
            print(pretrained_page(entries), end="", file=console.file)  # the console's own print wraps
        elif entries:
            console.print(_table(entries))
        else:
            console.print("none yet")


def pretrained_page(entries: tuple[Pretrained, ...]) -> str:
    """All networks in Markdown, a row each."""
    header = ("name", "network", "data", "method", "sparsity", "accuracy", "bytes", "run")
    cards = [_card(entry) for entry in entries]
    inputs: list[tuple[str, ...]] = [("data", "mean", "deviation")]
    inputs += [(spec.name, _numbers(spec.mean), _numbers(spec.std)) for spec in (CIFAR10, CIFAR100)]
    return _PAGE.format(
        example=entries[0].name if entries else "vgg19-cifar10-granet-0.98",
        table=markdown_table([header, *cards]) if cards else "There are none yet.\n",
        inputs=markdown_table(inputs),
        sparsity=entries[0].sparsity if entries else 0.98,
    )


def _card(entry: Pretrained) -> tuple[str, ...]:
    figures = (f"{entry.sparsity:.2%}", f"{entry.accuracy_last:.2f} %", f"{entry.size:,}")
    return f"`{entry.name}`", entry.model, entry.data, entry.method, *figures, f"`{entry.run}`"


def _table(entries: tuple[Pretrained, ...]) -> Table:
    """What nothing differs in goes into the title, to fit 80 columns; where it does not, names go on in a next line."""
    told, words = split_alike([asdict(entry) for entry in entries], ("model", "data", "method"))
    table = Table(title=titled("Pretrained networks", told))
    table.add_column("name", overflow="fold")
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in ("sparsity", "accuracy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in entries:
        figures = (f"{entry.sparsity:.2%}", f"{entry.accuracy_last:.2f} %")
        table.add_row(entry.name, *(getattr(entry, word) for word in words), *figures)
    return table


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)
