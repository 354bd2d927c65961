"""Holding at zero what the masks say is inactive: weights, their gradients and their optimizer state."""

from __future__ import annotations

from torch import Tensor, optim
from torch.optim import LBFGS, Optimizer

from granet.channels import Followers, Held
from granet.masking import zero_inactive
from granet.net import Change
from granet.sparsifier.optimizer_state import OptimizerState
from granet.weights import SparseLayer

ELEMENTWISE = {
    *(optim.ASGD, optim.Adadelta, optim.Adagrad, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam),
    *(optim.RMSprop, optim.Rprop, optim.SGD),
}
"""Optimizers that move each weight by its own gradient and state alone. Subclasses may do anything."""


class Zeros:
    """The zeros of some layers and, where whole filters are dropped, of the parameters that follow these.

    With masked gradients the optimizers above leave inactive weights at zero. Others may move them, if not at once
    (Muon mixes the gradients of a matrix), so the weights are masked after each of their steps. L-BFGS also mixes the
    gradients of several steps; it is restarted when masks change, so that all of these are masked alike.
    """

    def __init__(self, followers: Followers, optimizer: Optimizer) -> None:
        self.followers = followers
        self.layers = followers.held
        """Every parameter that has zeros: the layers, and what follows them."""
        self._optimizer = optimizer
        self._state = OptimizerState(optimizer)

    def mask_gradients(self, masked: bool) -> None:
        """Zero the gradients of inactive weights; ``masked`` says that this is done already for the layers."""
        zero_inactive(
            (layer.weight.grad, layer.mask)
            for layer in self.layers
            if layer.weight.grad is not None and not (masked and isinstance(layer, SparseLayer))
        )

    # Bringing weights, optimizer state and what depends on the layers in line with masks.

    def apply(self, change: Change, held: Held) -> None:
        """Write a change of the masks, and all that follows from it."""
        change.write_weights()
        change.write_survivors()
        self.followers.hold("layers")
        self.write()
        change.write_masks()
        if self.followers:
            self.followers.hold(held)
            self.write()

    def begin_anew(self) -> None:
        """Masks have changed: let L-BFGS forget the curvature that it saw along weights that are gone.

        Otherwise it would take the masks' changes to weights and gradients for its own last step.
        """
        if isinstance(self._optimizer, LBFGS):
            self._optimizer.state.clear()

    def after_step(self) -> None:
        """Zero the inactive weights that the optimizer may have moved."""
        divides_by_zero = any(group.get("eps") == 0 for group in self._optimizer.param_groups)  # without a gradient
        if divides_by_zero or type(self._optimizer) not in ELEMENTWISE:
            self.write()

    def write(self) -> None:
        """Zero inactive weights, and reset their optimizer state to that of a weight never trained."""
        zeroed: list[tuple[Tensor, Tensor]] = [(layer.weight, layer.mask) for layer in self.layers]
        for layer, tensor, fresh in self._state.of(self.layers):
            if fresh:
                tensor.detach().masked_fill_(~layer.mask, fresh)
            else:
                zeroed.append((tensor, layer.mask))
        zero_inactive(zeroed)
        self.followers.zero_means()
