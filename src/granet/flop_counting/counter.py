"""FLOPs of one inference pass, dense and under masks.

A multiply-add is two FLOPs. A weight that is zero need not be multiplied, so a product costs in proportion to the
active elements of its weight:

    dense = 2 * weights * positions        sparse = 2 * active * positions

where `positions` counts the places a weight is applied: outputs per channel of a convolution (inputs per channel if it
is transposed), rows of a linear layer's input, over the whole batch. Products of two activations (attention) have no
weight to leave out: their sparse FLOPs are their dense ones.

This is arithmetic that *could* be skipped. Whether it is depends on the kernel that runs the model; PyTorch's own dense
kernels skip nothing.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from granet.error_line import first_line
from granet.flop_counting.fixed import FIXED, FREE, SOFTMAX, base_name, elementwise_flops, is_elementwise, is_view
from granet.flop_counting.products import BIASES, PRODUCTS, Product, attention_scores
from granet.flop_counting.provenance import Provenance, Weight
from granet.flop_counting.report import FixedFlops, FlopsReport, LayerFlops
from granet.given_masks import Masked, given_masks
from granet.model_inputs import arguments
from granet.names import plain_name
from granet.probe.undisturbed import undisturbed


def flops(
    model: nn.Module,
    example_input: Tensor | tuple[Any, ...] | Mapping[str, Any],
    sparsifier: Masked | None = None,
    *,
    masks: Mapping[str, Tensor] | None = None,
) -> FlopsReport:
    """Count the FLOPs of `model(example_input)` by running it once, without gradients and in eval mode.

    Every operator of the pass is seen, whether a module or a plain function calls it. Counts are for the input as
    given: use a batch of one for FLOPs per example. A tuple is passed as positional arguments (a named tuple, such as a
    PackedSequence, as one argument), a mapping as keyword arguments. On the `meta` device nothing is computed or
    stored.

    The masks of `sparsifier` say which weights are active, or `masks`, boolean tensors by the names of parameters; a
    weight without a mask counts as dense. With neither, a weight is active if it is not zero (on `meta`, always). The
    model is left as it was.

    >>> report = flops(nn.Conv2d(3, 8, 3, padding=1), torch.zeros(1, 3, 4, 4))
    >>> report.dense == 2 * (4 * 4) * (8 * 3 * 3 * 3)
    True
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model={type(model).__name__}: must be a torch.nn.Module")
    model = getattr(model, "_orig_mod", model)
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError(f"model: {name!r} has no shape yet; run one forward pass before counting")
    provenance = Provenance(model, given_masks(sparsifier, masks))
    inputs = _tensors(example_input)
    if any(tensor.is_nested for tensor in inputs):
        raise ValueError("example_input: has a nested tensor, which cannot be counted; give one of one shape, padded")
    provenance.mark_data(inputs)
    counter = _Counter(provenance)
    with undisturbed(model, inputs), counter.names(model), counter:
        _run(model, example_input)
    return counter.report(model)


def _run(model: nn.Module, example_input: Tensor | tuple[Any, ...] | Mapping[str, Any]) -> None:
    try:
        positional, named = arguments(example_input, several=(tuple,))  # a detector takes a list of images
        model(*positional, **named)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        shapes = ", ".join(f"{tuple(tensor.shape)}" for tensor in _tensors(example_input)) or "none"
        told = f"must be what {type(model).__name__} takes ({first_line(error)})"
        raise ValueError(f"example_input of shape {shapes}: {told}") from error


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


@dataclass
class _Row:
    """What is counted so far for one row."""

    weight: Weight | None
    dense: int = 0
    sparse: int = 0


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that runs and books its FLOPs under the module that is running."""

    supports_higher_order_operators = True

    def __init__(self, provenance: Provenance) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._provenance = provenance
        self._running = [""]
        self._rows: dict[tuple[str, str, str | None, int | None], _Row] = {}
        self._fixed: dict[tuple[str, str], int] = {}
        self._unknown: dict[str, None] = {}

    @contextmanager
    def names(self, model: nn.Module) -> Iterator[None]:
        """Keep track of which module of `model` is running."""
        handles = []
        for raw, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # it takes no hooks; its weights are known by name
            handles.append(module.register_forward_pre_hook(partial(self._enter, plain_name(raw)), prepend=True))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, name: str, _module: nn.Module, _arguments: Any) -> None:
        self._running.append(name)

    def _leave(self, _module: nn.Module, _arguments: Any, _output: Any) -> None:
        self._running.pop()

    def report(self, model: nn.Module) -> FlopsReport:
        """All that was counted; warns of operators that were not."""
        unknown = tuple(self._unknown)
        if not any(row.dense for row in self._rows.values()):
            found = f" (operators without a formula: {', '.join(unknown)})" if unknown else ""
            raise ValueError(f"model={type(model).__name__}: its forward pass must have products to count{found}")
        if unknown:
            warnings.warn(f"granet: flops counts these operators as zero: {', '.join(unknown)}", stacklevel=3)
        rows = []
        for (name, kind, parameter, _), row in self._rows.items():
            size, active, shape = (row.weight.size, row.weight.total, row.weight.shape) if row.weight else (0, 0, ())
            rows.append(LayerFlops(name, size, active, row.dense, row.sparse, kind, parameter, shape))
        fixed = tuple(FixedFlops(name, kind, count) for (name, kind), count in self._fixed.items())
        return FlopsReport(tuple(rows), fixed, unknown)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing compiled runs in this mode; without this PyTorch would import its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        schema = getattr(operator, "_schema", None)
        name = base_name(schema) if schema is not None else str(operator)
        if schema is not None and not (name in PRODUCTS or name in FIXED or name in FREE):
            with self:  # an operator composed of others is counted as those
                result = operator.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = operator(*args, **kwargs)
        inputs, outputs = _tensors((args, dict(kwargs))), _tensors(result)
        self._book(operator, name, args, inputs, outputs)
        return result

    def _book(
        self, operator: Any, name: str, arguments: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]
    ) -> None:
        schema = getattr(operator, "_schema", None)
        if formula := PRODUCTS.get(name):
            for product in formula(arguments, outputs):
                self._book_product(product)
                if product.kind == "attention":
                    self._book_fixed("softmax", SOFTMAX * attention_scores(arguments))
            if name in BIASES and isinstance(arguments[BIASES[name]], Tensor):
                self._book_fixed("bias", outputs[0].numel())
            if self._provenance.is_data(inputs):
                self._provenance.mark_data(outputs)
            return
        if priced := FIXED.get(name):
            kind, price = priced
            self._book_fixed(kind, price(arguments, outputs))
        elif inputs and name not in FREE and not (schema is not None and is_view(schema)):
            if schema is not None and is_elementwise(operator):
                self._book_fixed("elementwise", elementwise_flops(outputs))
            else:
                self._unknown.setdefault(name)
        self._provenance.follow(inputs, outputs, _written(schema, arguments))

    def _book_product(self, product: Product) -> None:
        weight = self._weight(product)
        complex_numbers = any(t is not None and t.is_complex() for t in (product.left, product.right))
        dense = product.flops * (4 if complex_numbers else 1)  # a complex multiply-add is four real ones
        module = self._running[-1]
        parameter, size = (weight.parameter, weight.size) if weight else (None, None)
        key = (self._layer_name(module, parameter), product.kind, parameter, size)  # a weight may have no name
        row = self._rows.setdefault(key, _Row(weight))
        row.dense += dense
        row.sparse += dense * weight.active // weight.used if weight and weight.used else dense

    def _weight(self, product: Product) -> Weight | None:
        """The operand that is the weight. If both could be: the one with a mask, then a parameter before a buffer, then
        the second."""
        operands = (self._provenance.weight(operand) for operand in (product.right, product.left))
        weights = [weight for weight in operands if weight is not None]
        return min(weights, key=lambda weight: (not weight.masked, weight.buffer), default=None)

    def _layer_name(self, module: str, parameter: str | None) -> str:
        """A weight is listed under its layer's name, a tied one under that of the layer that is running."""
        if parameter is None:
            return module
        names = self._provenance.aliases[parameter]
        name = next((name for name in names if name.rpartition(".")[0] == module), names[0])
        name = re.sub(r"\bparametrizations\.(\w+)\.original\d*$", r"\1", name)
        return "" if name == "weight" else name.removesuffix(".weight")

    def _book_fixed(self, kind: str, count: int) -> None:
        key = self._running[-1], kind
        self._fixed[key] = self._fixed.get(key, 0) + count


def _written(schema: Any, arguments: Sequence[Any]) -> list[Tensor]:
    """The arguments that the operator writes to."""
    if schema is None:
        return []
    marked = zip(schema.arguments, arguments, strict=False)
    return _tensors([value for argument, value in marked if argument.alias_info and argument.alias_info.is_write])
