"""Patterns: which weights are kept or dropped together.

Every pattern looks at a weight as output neurons: [out, in, kernel ...]. As text it is one of

- ``weight``: single weights, each on its own;
- ``4x1``, ``1x4``, ``16x16``: blocks of rows x columns of the matrix [out, in * kernel], kept or dropped whole;
- ``filter``: all weights of an output channel, kept or dropped whole (Li et al., 2017, arXiv 1608.08710);
- ``2:4``, ``1:4``: of every M consecutive weights along the input exactly N stay. In a convolution the M are input
  channels at one place of the kernel, so they are neighbours in the channels-last matrix [out, kernel * in] that sparse
  tensor cores multiply by (Mishra et al., 2021, arXiv 2104.08378);
- ``fan-in``: every output neuron of a layer has the same number of weights (Lasby et al., 2023, arXiv 2305.02299).

So a layer's count of active weights is a multiple of its quantum: the size of a block, or the number of groups.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from granet.weights import SparseLayer


@dataclass(frozen=True)
class Blocks:
    """Rectangles of the matrix [out, in * kernel], kept or dropped whole; the score of one is its mean |score|.

    The mean ranks blocks of one size as the sum does, and makes blocks of different sizes comparable. It is summed in
    double precision and compared as float32.
    """

    text: str
    rows: int
    columns: int | None
    """None means all: a filter is a block of one whole row."""

    def misfit(self, layer: SparseLayer) -> str | None:
        """Why the pattern does not divide that layer, if so."""
        _, (rows, *inputs) = layer.identity.orientation.matrices(layer.identity.shape)
        if rows % self.rows:
            return f"{rows} rows (outputs) are no multiple of {self.rows}"
        if math.prod(inputs) % self._columns(layer):
            return f"{math.prod(inputs)} columns (inputs x kernel) are no multiple of {self.columns}"
        return None

    def quantum(self, layer: SparseLayer) -> int:
        """The number of weights in a block."""
        return self.rows * self._columns(layer)

    def pool(self, layer: SparseLayer, score: Tensor) -> Tensor:
        """The scores of the blocks, flat, row by row."""
        blocks = self.split(layer, score)
        total: Tensor = torch.linalg.vector_norm(blocks, 1, dim=(1, 3), dtype=torch.float64)
        return total.div_(self.quantum(layer)).to(torch.promote_types(score.dtype, torch.float32)).view(-1)

    def units(self, layer: SparseLayer, mask: Tensor) -> Tensor:
        """Which blocks are active."""
        return self.split(layer, mask)[:, 0, :, 0].reshape(-1).clone()

    def spread(self, layer: SparseLayer, units: Tensor) -> Tensor:
        """The mask of the weights, from that of the blocks."""
        shape = layer.identity.neurons
        blocks = units.view(shape[0] // self.rows, 1, -1, 1).expand(-1, self.rows, -1, self._columns(layer))
        return layer.stored(blocks.reshape(shape).contiguous())

    def holds(self, layer: SparseLayer, mask: Tensor) -> bool:
        """Whether every block of the mask is all active or all inactive."""
        return torch.equal(self.spread(layer, self.units(layer, mask)), mask)

    def _columns(self, layer: SparseLayer) -> int:
        return self.columns or math.prod(layer.identity.neurons[1:])

    def split(self, layer: SparseLayer, tensor: Tensor) -> Tensor:
        """[rows of blocks, rows of a block, columns of blocks, columns of a block]."""
        neurons = layer.neurons(tensor)
        return neurons.reshape(len(neurons) // self.rows, self.rows, -1, self._columns(layer))


@dataclass(frozen=True)
class Groups:
    """Groups of weights; all groups of a layer have the same number of active ones."""

    text: str
    size: int | None
    """The number of weights in a group; None: all weights of an output neuron."""
    keep: int | None
    """How many weights of a group stay in the end; None: as many as the layer's budget allows."""

    @property
    def kind(self) -> str:
        return "N:M" if self.size else self.text

    def check_sparsity(self, sparsity: float) -> None:
        """ValueError if the pattern fixes a different sparsity."""
        if self.size and self.keep:
            fixed = 1 - self.keep / self.size
            if not math.isclose(sparsity, fixed, abs_tol=1e-6):
                raise ValueError(f"sparsity={sparsity!r}: must be {fixed:.7g}, which pattern={self.text!r} fixes")

    def misfit(self, layer: SparseLayer) -> str | None:
        """Why the pattern does not divide that layer, if so."""
        inputs = layer.identity.neurons[1]
        return f"{inputs} inputs are no multiple of {self.size}" if self.size and inputs % self.size else None

    def quantum(self, layer: SparseLayer) -> int:
        """The number of groups in the layer."""
        return layer.numel // self.size if self.size else layer.identity.neurons[0]

    def split(self, layer: SparseLayer, tensor: Tensor) -> Tensor:
        """[groups, weights of a group]."""
        neurons = layer.neurons(tensor)
        return neurons.movedim(1, -1).reshape(-1, self.size) if self.size else neurons.flatten(1)

    def join(self, layer: SparseLayer, groups: Tensor) -> Tensor:
        """What :meth:`split` took apart, in the shape of the weight."""
        outputs, inputs, *kernel = layer.identity.neurons
        if self.size:
            return layer.stored(groups.reshape(outputs, *kernel, inputs).movedim(-1, 1))
        return layer.stored(groups.reshape(outputs, inputs, *kernel))

    def holds(self, layer: SparseLayer, mask: Tensor) -> bool:
        """Whether every group of the mask has as many active weights as the first."""
        active = self.split(layer, mask).sum(1)
        return bool((active == active[0]).all())


Pattern = Blocks | Groups
FILTERS = Blocks("filter", 1, None)


def parse_pattern(text: str) -> Pattern | None:
    """The pattern written that way; None for single weights.

    >>> parse_pattern("2:4")
    Groups(text='2:4', size=4, keep=2)
    >>> parse_pattern("filter")
    Blocks(text='filter', rows=1, columns=None)
    """
    if text == "weight":
        return None
    if text == "filter":
        return FILTERS
    if text == "fan-in":
        return Groups(text, None, None)
    if isinstance(text, str):
        if (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)) is not None:
            return Blocks(text, int(match[1]), int(match[2]))
        match = re.fullmatch(r"([1-9]\d*):([1-9]\d*)", text)
        if match is not None and int(match[1]) < int(match[2]):
            return Groups(text, int(match[2]), int(match[1]))
    raise ValueError(
        f"pattern={text!r}: must be weight, filter, fan-in, blocks of rows x columns such as 4x1, "
        "or N:M with N below M such as 2:4"
    )


def check_fit(pattern: Pattern, layers: Sequence[SparseLayer]) -> None:
    """ValueError that names a layer that the pattern does not divide, and how to leave all such layers dense."""
    misfits = {layer.name: (layer, why) for layer in layers if (why := pattern.misfit(layer)) is not None}
    if misfits:
        layer, why = next(iter(misfits.values()))
        raise ValueError(
            f"pattern={pattern.text!r}: does not divide {layer.name!r} of shape {list(layer.weight.shape)}: {why}; "
            f"leave dense what it does not divide with exclude={tuple(misfits)!r}"
        )
