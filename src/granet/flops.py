"""Inference FLOPs of a network, dense and with the zeros of its sparse weights left out.

Every convolution and linear layer applies each of its weights once per position, so its cost is

    dense  = 2 * positions * weights            (one multiply and one add each)
    sparse = 2 * positions * active weights

where a position is an output pixel of a convolution, an input pixel of a transposed convolution, or a row of a linear
layer's input, over the whole batch. Grouped convolutions need no special case: their weight tensor is smaller. As is
usual, taps that fall on zero padding count, and biases, norms, activations and pooling do not.

This is arithmetic that *could* be skipped. Whether it is depends on the kernel that runs the model; PyTorch's own dense
kernels skip nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_Conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_Transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_Counted = (*_Conv, *_Transposed, nn.Linear)


@dataclass(frozen=True)
class LayerFlops:
    """One layer's share. `name` is the layer's name in the model; a layer called twice counts twice in one row."""

    name: str
    weights: int
    active: int
    dense: int
    sparse: int


@dataclass(frozen=True)
class FlopsReport:
    """FLOPs of one forward pass: the whole model by `dense`, `sparse` and `ratio`, each layer by `rows`."""

    rows: tuple[LayerFlops, ...]

    @property
    def dense(self) -> int:
        """FLOPs when every weight is used."""
        return sum(row.dense for row in self.rows)

    @property
    def sparse(self) -> int:
        """FLOPs when only active weights are used."""
        return sum(row.sparse for row in self.rows)

    @property
    def ratio(self) -> float:
        """`sparse / dense`: the share of the arithmetic that is left."""
        return self.sparse / self.dense


def flops(
    model: nn.Module, example_input: Tensor | tuple[Any, ...], masks: Mapping[str, Tensor] | None = None
) -> FlopsReport:
    """Count the FLOPs of `model(example_input)` by running it once, without gradients and in eval mode.

    Counts are for the input as given: use a batch of one for FLOPs per example. A tuple is passed as positional
    arguments. Only calls of convolution and linear *modules* are seen; products that a model computes with functions
    (attention scores, for one) are not.

    `masks` maps parameter names to boolean tensors, as `Sparsifier.masks` does; a layer without a mask counts as dense.
    With `masks=None` a weight is active if it is not zero. The mode and the buffers of the model are left as they were.

    >>> report = flops(nn.Conv2d(3, 8, 3, padding=1), torch.zeros(1, 3, 4, 4))
    >>> report.dense == 2 * (4 * 4) * (8 * 3 * 3 * 3)
    True
    """
    model = getattr(model, "_orig_mod", model)  # inside torch.compile, where module hooks run
    active = _active_counts(model, masks)
    names: dict[nn.Module, str] = {
        module: name for name, module in model.named_modules() if isinstance(module, _Counted)
    }
    positions = dict.fromkeys(names, 0)

    def count(module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Tensor) -> None:
        source = inputs[0] if inputs else keywords["input"]
        positions[module] += _positions(module, source, output)

    handles = [module.register_forward_hook(count, with_kwargs=True) for module in names]
    arguments = example_input if isinstance(example_input, tuple) else (example_input,)
    try:
        with _undisturbed(model), torch.no_grad():
            model(*arguments)
    finally:
        for handle in handles:
            handle.remove()

    rows = []
    for module, name in names.items():
        if calls := positions[module]:
            weight = module.weight
            assert isinstance(weight, Tensor)
            left = active.get(id(weight), weight.numel()) if masks is not None else int(torch.count_nonzero(weight))
            rows.append(LayerFlops(name, weight.numel(), left, 2 * calls * weight.numel(), 2 * calls * left))
    if not rows:
        raise ValueError(f"model is {type(model).__name__}; its forward pass must call a convolution or linear module")
    return FlopsReport(tuple(rows))


def _positions(module: nn.Module, source: Tensor, output: Tensor) -> int:
    """How often this call applied each weight of `module`."""
    if isinstance(module, nn.Linear):
        return source.numel() // module.in_features
    if isinstance(module, _Transposed):
        return source.numel() // module.in_channels
    assert isinstance(module, _Conv)
    return output.numel() // module.out_channels


def _active_counts(model: nn.Module, masks: Mapping[str, Tensor] | None) -> dict[int, int]:
    """Active weights by the identity of the parameter, so that a tied weight finds its mask under any of its names."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    counts = {}
    for name, mask in (masks or {}).items():
        parameter = parameters.get(name.removeprefix("_orig_mod."))
        if parameter is None:
            raise ValueError(f"masks has {name!r}; its names must be parameter names of the model")
        if mask.shape != parameter.shape:
            raise ValueError(
                f"masks[{name!r}] has shape {tuple(mask.shape)}; it must have the parameter's, {tuple(parameter.shape)}"
            )
        counts[id(parameter)] = int(torch.count_nonzero(mask))
    return counts


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards every module's own mode and every buffer's values are back."""
    modes = {module: module.training for module in model.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        with torch.no_grad():
            for buffer, saved in buffers:
                buffer.copy_(saved)
