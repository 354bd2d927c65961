"""An exponential moving average of a model's weights, as sparse as the model itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from granet.masking import zero_inactive


class Average:
    """A second model that follows a first one: average <- decay * average + (1 - decay) * weight, after each step.

    The running statistics of norms are averaged likewise. Where a mask is False the average is zero, so a connection
    that returns begins at zero here too. If the model is dense until training ends, so is the average, which is then
    masked only to be evaluated.
    """

    def __init__(
        self, twin: nn.Module, model: nn.Module, decay: float, masks: Mapping[str, Tensor], dense: bool = False
    ) -> None:
        """``twin`` is a model of the same kind, whose values do not matter; ``dense``: the model is, until the end."""
        self.model = twin.requires_grad_(False)
        self.model.load_state_dict(model.state_dict())
        self._decay, self._dense = decay, dense
        state, source = self.model.state_dict(keep_vars=True), model.state_dict(keep_vars=True)
        self._masked = [(state[name], mask) for name, mask in masks.items()]
        for name, mask in masks.items():  # a norm has more to add to a dropped filter than its bias
            mean = f"{name.removesuffix('bias')}running_mean"
            if mean in state:
                self._masked.append((state[mean], mask))
        once = list({id(value): name for name, value in state.items()}.values())  # a tied weight has several names
        followed = [name for name in once if state[name].is_floating_point()]
        self._averages = [state[name].detach() for name in followed]
        self._values = [source[name].detach() for name in followed]
        copied = [name for name in once if name not in followed]
        self._counters, self._counted = [state[name] for name in copied], [source[name] for name in copied]

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(self._averages, self._values, 1 - self._decay)
        if not self._dense:
            self.mask()
        if self._counters:
            torch._foreach_copy_(self._counters, self._counted)

    def mask(self) -> None:
        """Be zero where the masks say."""
        zero_inactive(self._masked)

    @contextmanager
    def masked(self) -> Iterator[None]:
        """In this context it is as sparse as the masks say, whether or not it is afterwards."""
        kept = [tensor.clone() for tensor, _ in self._masked] if self._dense else []
        self.mask()
        try:
            yield
        finally:
            for (tensor, _), value in zip(self._masked, kept, strict=False):
                tensor.copy_(value)
