"""Silent channels: those that are zero whatever the input, because filters are dropped.

A filter that is dropped together with its bias outputs zero, and so do activations, pooling, joins and sums of zeros. A
weight that reads a silent channel has no effect and gets no gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

Rule = Literal["dropped", "all", "any", "join", "blocks", "through"]
"""How a step follows from its parts; :meth:`Step.silent` says what each means."""


@dataclass(frozen=True)
class Step:
    """How the silent channels of a tensor come from those of others."""

    rule: Rule
    parts: tuple[int, ...] = ()
    """Numbers of earlier steps."""
    width: int = 0
    """How many channels there are now, where the parts do not say."""
    module: str = ""
    """``dropped``: the layer or norm whose channels these are; empty if none of them is silent."""
    groups: int = 1
    """``through``: the groups of a layer without bias; a filter is silent if all channels of its group are."""

    def silent(self, parts: Sequence[Tensor], dropped: Mapping[str, Tensor], device: torch.device) -> Tensor:
        match self.rule:
            case "dropped":
                known = dropped.get(self.module)
                return torch.zeros(self.width, dtype=torch.bool, device=device) if known is None else known.to(device)
            case "all":
                return torch.stack(tuple(parts)).all(0)
            case "any":
                return torch.stack(tuple(parts)).any(0)
            case "join":
                return torch.cat(tuple(parts))
            case "blocks":  # each channel becomes as many columns, side by side
                return parts[0].repeat_interleave(self.width // len(parts[0]))
            case "through":
                return parts[0].view(self.groups, -1).all(1).repeat_interleave(self.width // self.groups)


@dataclass(frozen=True)
class Flow:
    """Where the layers of a model get their channels from."""

    steps: tuple[Step, ...] = ()
    reads: Mapping[str, int] = field(default_factory=dict)
    """Layer to the step that says which of its input channels are silent, whenever it is called."""

    def silent_inputs(self, dropped: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """Layer to a bool for each of its input channels; the host does not wait for the device.

        ``dropped`` has a bool for each output channel: for a layer, whether its filter is dropped and adds nothing; for
        a batch norm, whether it keeps zeros zero. Modules that are missing do neither.
        """
        silent: list[Tensor] = []
        for step in self.steps:
            silent.append(step.silent([silent[part] for part in step.parts], dropped, device))
        return {layer: silent[step] for layer, step in self.reads.items()}
