"""A look at a model before its first step: its gradients on a few batches, and a finished first run.

Looking changes nothing. The model is called with stand-ins for its parameters and buffers, so weights, gradients and
batch-norm statistics stay as they are; train or eval mode and torch's random state are put back afterwards. Only the
batches are used up, if they come from an iterator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from granet.error_line import first_line
from granet.model_inputs import arguments, each_tensor
from granet.names import plain_name, unwrapped
from granet.probe.modes import in_mode, uncompiled
from granet.probe.trained import checked_state
from granet.weights import SparseLayer

Batch = tuple[Any, Any]
Loss = Callable[[Any, Any], Tensor]
Tensors = dict[str, Tensor]
"""Parameter name to tensor."""


class Probe:
    """What a method may look at in ``begin``; errors name the method."""

    def __init__(
        self,
        method: str,
        model: nn.Module,
        layers: Sequence[SparseLayer],
        batches: Iterable[Batch] | None = None,
        loss: Loss | None = None,
        trained: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.model = unwrapped(model)
        self._batches, self._loss, self._trained = batches, loss, trained
        self.layers = list(layers)
        self._device = layers[0].weight.device
        names = {id(parameter): plain_name(name) for name, parameter in self.model.named_parameters()}
        self._key = {layer.name: names[id(layer.weight)] for layer in layers}

    # What the user handed over.

    def draw(self, count: int) -> list[Batch]:
        """The first ``count`` batches, on the model's device."""
        if self._batches is None:
            raise ValueError(
                f"batches=None: {self.method} needs {count} of (inputs, targets); "
                "pass batches=loader, and a loss= where the method needs one"
            )
        if not isinstance(self._batches, Iterable):
            raise ValueError(f"batches={self._batches!r}: {self.method} needs an iterable of (inputs, targets)")
        with self._random_state_kept():
            drawn = list(islice(self._batches, count))
        for batch in drawn:
            if not isinstance(batch, list | tuple) or len(batch) != 2:
                raise ValueError(f"batches: {self.method} needs pairs of (inputs, targets), not {type(batch).__name__}")
        if len(drawn) < count:
            raise ValueError(f"batches: {self.method} needs {count} of them, there are {len(drawn)}")
        return [(self._moved(inputs), self._moved(targets)) for inputs, targets in drawn]

    def trained_state(self) -> Tensors:
        """The state of the finished first run, with the same entries as the model's own state."""
        return checked_state(self.method, self.model, self._trained)

    def state_to_start_from(self) -> Tensors:
        """The state of the finished first run; where none is given the model as it stands is that run."""
        if self._trained is not None:
            return self.trained_state()
        return checked_state(self.method, self.model, self.model.state_dict())

    def finite_weights(self, state: Tensors) -> Tensors:
        """The sparsified weights in such a state."""
        weights = {layer.name: state[self._key[layer.name]].to(layer.weight.device) for layer in self.layers}
        return self.finite(weights, "model" if self._trained is None else "trained")

    def finite(self, scores: Tensors, field: str) -> Tensors:
        """``scores``, or a ValueError if one is NaN or infinite: such weights cannot be ranked."""
        for name, score in scores.items():
            if not bool(score.isfinite().all()):
                raise ValueError(f"{field}: {self.method}'s score of {name!r} must be finite everywhere")
        return scores

    # Calling the model.

    def state(self) -> Tensors:
        """Stand-ins for all parameters and buffers: the parameters' own values, detached, and copies of the buffers."""
        parameters = {plain_name(name): value.detach() for name, value in self.model.named_parameters()}
        return parameters | {plain_name(name): value.clone() for name, value in self.model.named_buffers()}

    def with_weights(self, state: Tensors, weights: Mapping[str, Tensor]) -> Tensors:
        """A state with other sparsified weights."""
        return state | {self._key[name]: weight for name, weight in weights.items()}

    def weights_of(self, state: Mapping[str, Tensor]) -> Tensors:
        """The sparsified weights in a state."""
        return {name: state[key] for name, key in self._key.items()}

    def call(self, state: Tensors, inputs: Any, then: Callable[[Any], Any] = lambda outputs: outputs) -> Any:
        """What ``then`` makes of the model's outputs with that state.

        Take derivatives there, while the state is still in place: a model with checkpointed activations runs again in
        the backward pass.
        """
        stand_ins = {f"model.{name}": state[first] for name, first in self._places().items()}
        own = _float_types([*self.model.parameters(), *self.model.buffers()])

        def forward(*given: Any, **named: Any) -> Any:
            with self._types_explained(own, state, inputs):
                outputs = self.model(*given, **named)
            return then(outputs)

        return functional_call(_Calling(self.model, forward), stand_ins, *arguments(inputs), tie_weights=False)

    @contextmanager
    def _types_explained(self, own: list[str], state: Tensors, inputs: Any) -> Iterator[None]:
        """Where weights and inputs are not all of the type that the model has, an error about types is a ValueError."""
        try:
            yield
        except RuntimeError as error:
            weights, given = _float_types(state), _float_types(inputs)
            if "type" not in str(error) or len({*own, *weights, *given}) == 1:
                raise
            raise ValueError(
                f"model: {self.method} calls it with weights of {' and '.join(weights)} and inputs of "
                f"{' and '.join(given)}, and it fails ({first_line(error)}); batches must have the type that "
                "the model takes, and where it casts it must be to that of its weights, as in x.to(self.weight.dtype)"
            ) from error

    def _places(self) -> dict[str, str]:
        """Every place in the model that holds a tensor, and the plain first name of that tensor.

        A module with two names occurs once: otherwise torch would swap its tensors twice and leave the stand-ins in it.
        """
        tensors = [*self.model.named_parameters(), *self.model.named_buffers()]
        first = {id(tensor): plain_name(name) for name, tensor in tensors}
        return {
            f"{prefix}.{short}" if prefix else short: first[id(tensor)]
            for prefix, module in self.model.named_modules()
            for short, tensor in [*module._parameters.items(), *module._buffers.items()]
            if tensor is not None
        }

    @contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """Run the model in training or evaluation mode; afterwards every module and the random state are as before.

        Compiled parts run uncompiled, since they have no second derivatives.
        """
        with self._random_state_kept(), uncompiled(), in_mode(self.model, training):
            yield

    # Derivatives of the loss.

    def gradient(self, batches: Sequence[Batch], temperature: float = 1.0) -> Tensors:
        """dL/dw in training mode, summed over the batches, in float64; ``temperature`` divides the model's outputs."""
        return self._sum(batches, temperature, _grad)

    def hessian_product(self, batches: Sequence[Batch], vector: Tensors, temperature: float = 1.0) -> Tensors:
        """Hv, with H the Hessian of the loss summed over the batches: the gradient of (dL/dw) . v for constant v.

        Computed one batch at a time, so memory does not grow with their number. Attention uses the plain formula, since
        fused kernels have no second derivative.
        """

        def product(loss: Tensor, weights: Sequence[Tensor]) -> Sequence[Tensor]:
            gradients = _grad(loss, weights, create_graph=True)
            along = [(g * v.to(g.dtype)).sum() for g, v in zip(gradients, vector.values(), strict=True)]
            return _grad(torch.stack(along).sum(), weights)

        with sdpa_kernel(SDPBackend.MATH):
            return self._sum(batches, temperature, product)

    def _sum(
        self,
        batches: Sequence[Batch],
        temperature: float,
        derivative: Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]],
    ) -> Tensors:
        state = self.state()
        weights = {name: weight.requires_grad_() for name, weight in self.weights_of(state).items()}
        total = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
        with self.mode(training=True), torch.enable_grad():
            for inputs, targets in batches:

                def parts_of(outputs: Any, targets: Any = targets) -> Sequence[Tensor]:
                    return derivative(self._checked_loss(outputs, targets, temperature), list(weights.values()))

                for entry, part in zip(total.values(), self.call(state, inputs, parts_of), strict=True):
                    entry.add_(part)
        return total

    def _checked_loss(self, outputs: Any, targets: Any, temperature: float) -> Tensor:
        if temperature != 1:
            if not isinstance(outputs, Tensor):
                raise ValueError(
                    f"temperature={temperature}: {self.method} divides by it one tensor of outputs, not "
                    f"{type(outputs).__name__}; with 1 the model may return anything"
                )
            outputs = outputs / temperature
        if not callable(self._loss):
            raise ValueError(f"loss={self._loss!r}: {self.method} needs a function; pass loss=loss_fn")
        loss = self._loss(outputs, targets)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
            raise ValueError(f"loss: {self.method} needs one number that depends on the model's weights, got {got}")
        return loss.reshape(())

    def _moved(self, value: Any) -> Any:
        return each_tensor(lambda tensor: tensor.to(self._device), value)

    @contextmanager
    def _random_state_kept(self) -> Iterator[None]:
        with torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else []):
            yield


class _Calling(nn.Module):
    """A model, and a function that calls it; torch puts stand-ins into the model for as long as that runs."""

    def __init__(self, model: nn.Module, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.forward = model, forward


def _float_types(value: Any) -> list[str]:
    """Which floating-point types its tensors have."""
    found: set[str] = set()

    def note(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            found.add(str(tensor.dtype).removeprefix("torch."))
        return tensor

    each_tensor(note, value)
    return sorted(found)


def full_precision(tensor: Tensor) -> Tensor:
    """Half precision becomes float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _grad(output: Tensor, weights: Sequence[Tensor], create_graph: bool = False) -> Sequence[Tensor]:
    """Zeros for weights that the output does not depend on."""
    if not output.requires_grad:
        return [torch.zeros_like(weight) for weight in weights]
    return torch.autograd.grad(output, weights, create_graph=create_graph, allow_unused=True, materialize_grads=True)
