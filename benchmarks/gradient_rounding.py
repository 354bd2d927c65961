"""How much of the first gradient is left when a network computes in bfloat16 or TF32; real images of CIFAR-100.

    python benchmarks/gradient_rounding.py [--models vgg19 resnet50_cifar] [--sparsities 0 0.5] [--batch 64] [--json]

The table gives the cosine of the gradient to that in float32, at initialisation: of all active weights together, and
the median over layers. Sparse networks are random with ERK densities. Rounding is simulated in float32, so that any
machine gives the same. In bfloat16 all that layers read and return has 8 binary digits, forwards and backwards; in TF32
only what convolutions and linear layers multiply is rounded, to 11.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import granet
from granet.data import load
from granet.models import create_model
from granet.training.batches import normaliser

FULL = 24
"""Binary digits of float32."""
FORMATS = {"bfloat16": (8, True), "TF32": (11, False)}
"""Binary digits, and whether tensors are stored with them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["vgg19", "resnet20", "resnet50_cifar"])
    parser.add_argument("--sparsities", type=float, nargs="+", default=[0.0, 0.5, 0.9, 0.98])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    data = load("cifar100")
    images = normaliser(data.mean, data.std, torch.device("cpu"))(data.train_images[: options.batch])
    labels = data.train_labels[: options.batch].long()
    rows = []
    if not options.json:
        print(f"| model | sparsity | {' | '.join(f'{name} | median' for name in FORMATS)} |")
        print("| --- " * (2 + 2 * len(FORMATS)) + "|")
    for name in options.models:
        for sparsity in options.sparsities:
            cosines = measure(name, sparsity, images, labels)
            rows.append({"model": name, "sparsity": sparsity, **cosines})
            if not options.json:
                values = [f"{value:.2f}" for pair in cosines.values() for value in pair]
                print(f"| {name} | {sparsity:g} | {' | '.join(values)} |", flush=True)
    if options.json:
        print(json.dumps({"torch": torch.__version__, "batch": options.batch, "rows": rows}))


def measure(name: str, sparsity: float, images: Tensor, labels: Tensor) -> dict[str, tuple[float, float]]:
    """For each format the cosine of the whole gradient, and the median over layers."""
    torch.manual_seed(0)
    model = create_model(name, num_classes=100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=sparsity), seed=0)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    masks = sparsifier.masks
    true = gradients(model, masks, images, labels)
    found = {}
    for kind, (digits, stored) in FORMATS.items():
        with Rounded(model, digits, stored):
            rounded = gradients(model, masks, images, labels)
        each = [cosine(rounded[layer], true[layer]) for layer in masks]
        found[kind] = cosine(*(torch.cat(list(one.values())) for one in (rounded, true))), statistics.median(each)
    return found


def gradients(model: nn.Module, masks: dict[str, Tensor], images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Those of the active weights."""
    names, weights = zip(*((name, model.get_parameter(name)) for name in masks), strict=True)
    loss = functional.cross_entropy(model(images), labels)
    parts = torch.autograd.grad(loss, weights)
    return {name: part[masks[name]].double() for name, part in zip(names, parts, strict=True)}


def cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


class Rounded:
    """In this context convolutions and linear layers multiply numbers of so many binary digits.

    If these are ``stored``, all layers read and return such numbers.
    """

    def __init__(self, model: nn.Module, digits: int, stored: bool) -> None:
        self._multiplied, self._others = digits, digits if stored else FULL
        self._weights = [weight for weight in model.parameters() if weight.ndim > 1]
        leaves = [module for module in model.modules() if not list(module.children())]
        self._layers = [leaf for leaf in leaves if stored or isinstance(leaf, nn.Conv2d | nn.Linear)]

    def __enter__(self) -> None:
        self._exact = [weight.data for weight in self._weights]
        for weight in self._weights:
            weight.data = cut(weight.data, self._multiplied)
        self._hooks = [layer.register_forward_pre_hook(self._before) for layer in self._layers]
        self._hooks += [layer.register_forward_hook(self._after) for layer in self._layers]

    def __exit__(self, *_: object) -> None:
        for weight, exact in zip(self._weights, self._exact, strict=True):
            weight.data = exact
        for hook in self._hooks:
            hook.remove()

    def _before(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(Cut.apply(one, self._multiplied, self._others) for one in inputs)

    def _after(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return Cut.apply(output, self._others, self._multiplied)


class Cut(torch.autograd.Function):
    """Rounds a tensor on its way forwards, and its gradient on its way back."""

    @staticmethod
    def forward(context: Any, values: Tensor, forwards: int, backwards: int) -> Tensor:
        context.digits = backwards
        return cut(values, forwards)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return cut(gradient, context.digits), None, None


def cut(values: Tensor, digits: int) -> Tensor:
    """``values`` in float32, rounded to so many binary digits (Veltkamp's splitting)."""
    large = values * (2 ** (FULL - digits) + 1)
    return large - (large - values)


if __name__ == "__main__":
    main()
