"""`granet flops`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from granet.cli.options import write_file
from granet.error_line import error_line

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from granet.flop_counting import FlopsReport


@dataclass(frozen=True)
class Flops:
    """Show what a network costs to run, layer by layer, dense and at a sparsity.

    For example `granet flops resnet50 --input 3x224x224 --sparsity 0.9 --distribution erk`. Nothing is trained: the
    layers share the weights that are left as the distribution says.
    """

    model: Annotated[str, Positional]
    """The network: a name that `granet train --model` takes, or `package.module:function` of your own."""
    input: str
    """Size of one image, channels first: `3x224x224`."""
    sparsity: float = 0.0
    """Share of weights that are zero."""
    distribution: str = "erk"
    """How the layers share what is left: `uniform`, `er` or `erk`."""
    exclude: tuple[str, ...] = ()
    """Globs over the names of parameters to keep dense, such as `conv1.*`."""
    classes: int | None = None
    """Outputs of the network; by default 1000 for images of 64 pixels or more, else 10."""
    width: float = 1.0
    """Hidden widths of the network times this."""
    json: Path | None = None
    """Write the whole report to this file, as JSON."""
    csv: Path | None = None
    """Write the rows to this file, as CSV."""

    def run(self, console: Console) -> None:
        """Count, print and write."""
        if self.json is not None and self.csv is not None and self.json.resolve() == self.csv.resolve():
            raise ValueError(f"csv={str(self.csv)!r}: must be another file than that of json")
        report = self.report()
        for option, path, text in (("json", self.json, report.to_json()), ("csv", self.csv, report.to_csv())):
            if path is not None:
                write_file(option, path, text)
        console.print(str(report), soft_wrap=True)

    def report(self) -> FlopsReport:
        """The dense count, with the active weights that the distribution leaves."""
        from granet.checks import check_share
        from granet.distributions import distribution
        from granet.net import make_net
        from granet.weights import find_layers

        check_share("sparsity", self.sparsity)
        share = distribution(self.distribution)
        model, dense = self._count(_sizes(self.input))
        if not self.sparsity and not self.exclude:
            return dense  # also of a model whose weights `find_layers` would not sparsify
        layers = find_layers(model, exclude=self.exclude)
        active = make_net(layers, 1, "weight", self.sparsity).shares(self.sparsity, share)
        return dense.with_active({layer.name: count for layer, count in zip(layers, active, strict=True)})

    def _count(self, sizes: tuple[int, ...]) -> tuple[nn.Module, FlopsReport]:
        """On the meta device, where shapes cost nothing; a network that looks at values is run in earnest."""
        import torch

        try:
            with torch.device("meta"):
                return self._count_here(sizes)
        except (RuntimeError, ValueError):
            pass
        try:
            return self._count_here(sizes)
        except RuntimeError as error:  # memory may hold neither the image nor the network
            raise ValueError(f"input={self.input!r}: must be what {self.model} takes ({error_line(error)})") from error

    def _count_here(self, sizes: tuple[int, ...]) -> tuple[nn.Module, FlopsReport]:
        import torch

        from granet.flop_counting import flops
        from granet.models import create_model

        classes = self.classes if self.classes is not None else (1000 if sizes[-1] >= 64 else 10)
        model = create_model(self.model, num_classes=classes, width=self.width, in_channels=sizes[0])
        return model, flops(model, torch.zeros(1, *sizes), masks={})


def _sizes(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise ValueError(f"input={text!r}: must be sizes of 1 or more joined by x, channels first, such as 3x224x224")
    return tuple(int(size) for size in text.split("x"))
