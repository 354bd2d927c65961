"""Pretrained networks: pack the one of a finished run, measure it again, enter it in the index; the page of all."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import torch
from torch import nn

from granet.checkpoint import load as load_packed
from granet.checkpoint import save
from granet.cli.markdown import markdown_table
from granet.data import ImageSet, load
from granet.data.cifar import CIFAR10, CIFAR100
from granet.files import atomic, write_text
from granet.pretrained import INDEX, Pretrained, read_index
from granet.pretrained.download import sha256
from granet.probe.trained import take_over
from granet.training.batches import normaliser
from granet.training.feeds import resident_split
from granet.training.rundir import RunDir
from granet.training.setup import make_model
from granet.training.step import evaluate
from granet.weights import find_layers
from paper.prose import prose

LIMIT = 3_000_000
"""The most bytes that one file may take, since every checkout includes all files."""


def publish(
    run: Path,
    folder: Path,
    *,
    name: str | None = None,
    dtype: torch.dtype | None = torch.bfloat16,
    data_dir: Path | None = None,
    device: torch.device | str = "cpu",
) -> Pretrained:
    """Pack the network of a finished run into ``folder``, and enter it in the index there.

    ``dtype`` rounds the weights, None keeps every bit. The accuracy in the index is that of the packed file on all test
    images. An entry of the same run and name is replaced. ValueError, and nothing is changed, if the file would be too
    large, if the name belongs to another run, or if the data are not there to measure on.
    """
    finished = RunDir(run)
    summary = finished.summary
    if summary is None:
        raise ValueError(f"run={str(run)!r}: must be the folder of a finished run")
    recipe = finished.recipe
    sparsity = recipe.method_fields.get("sparsity", round(summary.sparsity, 3))
    name = f"{recipe.model}-{recipe.data}-{recipe.method}-{sparsity:g}" if name is None else name
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise ValueError(f"name={name!r}: must be of lower-case letters, digits, '.', '_' and '-'")
    others = [entry for entry in read_index(folder) if entry.name != name or entry.run != run.name]
    if any(entry.name == name for entry in others):
        raise ValueError(f"name={name!r}: belongs to another run already; choose another one")
    if recipe.width != 1:
        raise ValueError(f"run={str(run)!r}: has width {recipe.width:g}, only networks of full width are published")
    data = load(recipe.data, data_dir=data_dir)
    if not isinstance(data, ImageSet):
        raise ValueError(f"data={recipe.data!r}: must be a set that is read whole, to measure the packed file on")

    model, packed = (make_model(recipe, data) for _ in range(2))
    take_over(model, finished.trained_state(model))
    masks = {layer.name: layer.weight != 0 for layer in find_layers(model)}
    path = folder / f"{name}.safetensors"
    with atomic(path) as temporary:
        save(model, temporary, masks=masks, dtype=dtype)
        if (size := temporary.stat().st_size) > LIMIT:
            raise ValueError(f"run={str(run)!r}: its packed file takes {size:,} bytes, at most {LIMIT:,} are allowed")
        load_packed(packed, temporary)
        entry = Pretrained(
            name=name,
            file=path.name,
            model=recipe.model,
            data=recipe.data,
            classes=data.classes,
            method=recipe.method,
            sparsity=round(summary.sparsity, 8),
            seed=recipe.seed,
            accuracy_last=score(packed, data, device),
            run=run.name,
            sha256=sha256(temporary),
            channels=data.shape[0],
            side=data.shape[1],
            size=size,
        )
    index = [dataclasses.asdict(one) for one in sorted([*others, entry], key=lambda one: one.name)]
    write_text(folder / INDEX, json.dumps(index, indent=2) + "\n")
    return entry


def score(model: nn.Module, data: ImageSet, device: torch.device | str = "cpu") -> float:
    """Test accuracy in percent, on all test images and in ``float32``."""
    device = torch.device(device)
    split = resident_split(data.test_images, data.test_labels, device)
    right = evaluate(model.to(device), split, normaliser(data.mean, data.std, device))
    return round(100 * float(right), 3)


def pretrained_page(entries: tuple[Pretrained, ...]) -> str:
    """All networks in Markdown, a row each."""
    header = ("name", "network", "data", "method", "sparsity", "accuracy", "bytes", "run")
    cards = [_card(entry) for entry in entries]
    inputs: list[tuple[str, ...]] = [("data", "mean", "deviation")]
    inputs += [(spec.name, _numbers(spec.mean), _numbers(spec.std)) for spec in (CIFAR10, CIFAR100)]
    return prose(
        "pretrained",
        example=entries[0].name if entries else "vgg19-cifar10-granet-0.98",
        table=markdown_table([header, *cards]) if cards else "There are none yet.\n",
        inputs=markdown_table(inputs),
        sparsity=entries[0].sparsity if entries else 0.98,
    )


def _card(entry: Pretrained) -> tuple[str, ...]:
    figures = (f"{entry.sparsity:.2%}", f"{entry.accuracy_last:.2f} %", f"{entry.size:,}")
    return f"`{entry.name}`", entry.model, entry.data, entry.method, *figures, f"`{entry.run}`"


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)
