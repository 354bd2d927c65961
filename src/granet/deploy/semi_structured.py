"""2:4 on a GPU: linear layers that keep two weights of every four, where that is measured to be faster than dense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_map_only

from granet.deploy.outputs import Different, Outputs, outputs_of
from granet.error_line import first_line
from granet.names import unwrapped
from granet.weights import find_layers

Measure = Callable[[nn.Linear, int], tuple[float, float]]
"""Microseconds of a layer on so many tokens, dense and in 2:4; RuntimeError where it cannot run in 2:4."""
MULTIPLES = (32, 64)
"""Of what the two sides of a weight must be multiples in 16 bits, whichever library torch calls."""
DTYPES = (torch.bfloat16, torch.float16)
_CALLS, _ROUNDS = 20, 15
"""Calls in a captured graph, and replays of it."""


@dataclass(frozen=True)
class Layer:
    """A weight, and whether it is faster in 2:4."""

    weight: str
    shape: tuple[int, ...]
    tokens: int = 0
    """Rows of its input on the example."""
    dense: float = 0.0
    sparse: float = 0.0
    """Microseconds; 0 where it cannot be in 2:4."""
    why: str = ""
    """It cannot."""

    @property
    def gains(self) -> bool:
        return not self.why and self.sparse < self.dense

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        if self.why:
            return f"{self.weight} {shape}: no, {self.why}"
        return (
            f"{self.weight} {shape}, {self.tokens:,} tokens: {self.dense:.1f} us dense, {self.sparse:.1f} us in 2:4,"
            f" {self.dense / self.sparse:.2f}x: {'yes' if self.gains else 'no'}"
        )


@dataclass(frozen=True)
class SemiStructured:
    """What was found, layer by layer."""

    layers: tuple[Layer, ...]

    def __str__(self) -> str:
        can = sum(not layer.why for layer in self.layers)
        gain = sum(layer.gains for layer in self.layers)
        if gain:
            said = f"2:4 is faster in {gain} of the {can} layers that can have it, which are converted"
        elif can:
            said = f"no: 2:4 is faster in none of the {can} layers that can have it; nothing is converted"
        else:
            said = "no: no layer can be in 2:4; nothing is converted"
        return "\n".join([*map(str, self.layers), said])


@torch.no_grad()
def to_semi_structured(
    model: nn.Module,
    example_input: Any,
    *,
    dtype: torch.dtype = torch.bfloat16,
    tell: Callable[[SemiStructured], object] = print,
) -> nn.Module:
    """A copy of ``model`` on the GPU, in eval mode and 16 bits, with those linear layers in 2:4 that gain by it.

    Every linear layer whose weight is 2:4 along its inputs, as training with ``pattern="2:4"`` leaves it, is measured
    dense and in torch's semi-structured format on as many tokens as it has on the example, within captured CUDA graphs:
    call the copy so, or compiled. In eager mode launching takes longer than 2:4 saves. The format is for the GPU and
    the library that it was made with, so this makes no file.

    Args:
        dtype: `torch.bfloat16` or `torch.float16`.
        tell: is given what was found of every layer.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype}: must be one of {', '.join(map(str, DTYPES))}")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        raise ValueError("device: must be an NVIDIA GPU of compute capability 8.0 or more for 2:4, there is none")
    copy = deepcopy(unwrapped(model)).to("cuda", dtype).eval()
    example = tree_map_only(Tensor, partial(_on_gpu, dtype), example_input)
    dense = Outputs(copy, example)
    found = SemiStructured(tuple(survey(copy, example, captured)))
    for layer in found.layers:
        if layer.gains:
            weight = copy.get_parameter(layer.weight)
            owner = copy.get_submodule(layer.weight.rpartition(".")[0])
            owner.weight = nn.Parameter(torch.sparse.to_sparse_semi_structured(weight), requires_grad=False)
            owner.register_forward_pre_hook(_contiguous)
    try:
        dense.difference(partial(outputs_of, copy))
    except Different as what:
        raise ValueError(f"model: must give the same in 2:4, and does not ({what})") from what
    tell(found)
    return copy


def _on_gpu(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    return tensor.to("cuda", dtype if tensor.is_floating_point() else tensor.dtype)


def _contiguous(layer: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Only such inputs are made one matrix of rows by torch, and its format multiplies nothing else."""
    return tuple(tensor.contiguous() for tensor in given)


def survey(model: nn.Module, example_input: Any, measure: Measure) -> Iterator[Layer]:
    """Its weights, each measured if it can be in 2:4."""
    tokens = _tokens(model, example_input)
    for weight in find_layers(model):
        owner = model.get_submodule(weight.name.rpartition(".")[0])
        layer = Layer(weight.name, tuple(weight.weight.shape), tokens.get(owner, 0), why=_why_not(owner, tokens))
        if not layer.why:
            assert isinstance(owner, nn.Linear)
            try:
                dense, sparse = measure(owner, layer.tokens)
                layer = replace(layer, dense=dense, sparse=sparse)
            except RuntimeError as error:
                layer = replace(layer, why=first_line(error))
        yield layer


def _tokens(model: nn.Module, example_input: Any) -> dict[nn.Module, int]:
    """The rows that each linear layer has to multiply in one call."""
    counted: dict[nn.Module, int] = {}

    def count(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        counted[module] = output.numel() // output.shape[-1]

    hooks = [module.register_forward_hook(count) for module in model.modules() if isinstance(module, nn.Linear)]
    try:
        outputs_of(model, example_input)
    finally:
        for hook in hooks:
            hook.remove()
    return counted


def _why_not(owner: nn.Module, tokens: dict[nn.Module, int]) -> str:
    if isinstance(owner, _ConvNd):
        return "a convolution, and torch has 2:4 for linear layers alone"
    if not isinstance(owner, nn.Linear):
        return f"in {type(owner).__name__}, and not in a linear layer"
    if owner not in tokens:
        return "not called as a layer on the example"
    rows, columns = owner.weight.shape
    if rows % MULTIPLES[0] or columns % MULTIPLES[1]:
        return f"its sides must be multiples of {MULTIPLES[0]} and {MULTIPLES[1]}"
    groups = (owner.weight != 0).reshape(-1, 4).sum(1)
    if beyond := int((groups > 2).sum()):
        return f"not 2:4, {beyond:,} of its {len(groups):,} groups of four have more than two weights"
    return ""


def captured(layer: nn.Linear, tokens: int) -> tuple[float, float]:
    """Both in graphs of several calls, replayed in turns; the least time of each counts."""
    inputs = torch.randn(tokens, layer.in_features, device=layer.weight.device, dtype=layer.weight.dtype)
    sparse = torch.sparse.to_sparse_semi_structured(layer.weight.detach())
    graphs = [_graph(inputs, weight, layer.bias) for weight in (layer.weight, sparse)]
    least = [float("inf"), float("inf")]
    for _ in range(_ROUNDS):
        for number, graph in enumerate(graphs):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            least[number] = min(least[number], 1e3 * begin.elapsed_time(end) / _CALLS)
    return least[0], least[1]


def _graph(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> torch.cuda.CUDAGraph:
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # libraries get ready in the first calls
        for _ in range(3):
            functional.linear(inputs, weight, bias)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            functional.linear(inputs, weight, bias)
    return graph
