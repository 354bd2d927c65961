"""How much of a model is sparse weights, and which large matrices are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn
from torch.nn.parameter import is_lazy

from granet.error_line import and_more
from granet.weights.candidates import candidates_of
from granet.weights.choice import Choice, is_matrix
from granet.weights.layer import SparseLayer

LARGE = 0.01
"""The share of all parameters from which on a matrix outside is named."""
_REST = 0.1
"""The share of all parameters from which on matrices of unknown kinds are worth a warning."""
_CHOSEN = ("excluded", "frozen")


@dataclass(frozen=True)
class Outside:
    """A large matrix that stays dense."""

    name: str
    numel: int
    why: str


@dataclass(frozen=True)
class Coverage:
    """The share of a model's parameters that is sparse weights; a tied parameter counts once."""

    covered: int
    total: int
    outside: tuple[Outside, ...] = ()
    """The large matrices that are not, from the largest."""

    @property
    def share(self) -> float:
        return self.covered / self.total

    def __str__(self) -> str:
        said = f"{self.share:.1%} of {self.total:,} parameters"
        return f"{said}; outside: {self.named_outside}" if self.outside else said

    @property
    def named_outside(self) -> str:
        """The large matrices outside, with the reason and their share of all parameters."""
        names = [f"{one.name} ({one.why}, {one.numel / self.total:.1%})" for one in self.outside]
        return ", ".join(names[:6]) + and_more(names, 6)

    @property
    def surprise(self) -> str:
        """One line about what a user may take for sparse and is not; empty where nothing is worth it.

        Embeddings alone are not: nobody expects them to be sparse. What is tied to one may be expected to.
        """
        unasked = [one for one in self.outside if one.why not in _CHOSEN]
        unknown = sum(one.numel for one in unasked if one.why == "not a known weight")
        if unknown <= _REST * self.total and not any(one.why.startswith("tied") for one in unasked):
            return ""
        return (
            f"covers {self.share:.1%} of the model's parameters; outside: "
            f"{Coverage(self.covered, self.total, tuple(unasked)).named_outside}; "
            "also=(glob, ...) adds them, and exclude=(glob, ...) leaves them out without a word"
        )


def coverage_of(
    model: nn.Module,
    layers: Sequence[SparseLayer],
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
) -> Coverage:
    """What these layers cover of the model."""
    choice = Choice.of(include, exclude, ())
    inside = {id(layer.weight) for layer in layers}
    parameters = [one for one in candidates_of(model) if not is_lazy(one.parameter)]
    total = sum(one.parameter.numel() for one in parameters)
    large = [
        Outside(one.names[0], one.parameter.numel(), choice.why_not(one))
        for one in parameters
        if id(one.parameter) not in inside and is_matrix(one) and one.parameter.numel() >= LARGE * total
    ]
    return Coverage(sum(layer.numel for layer in layers), total, tuple(sorted(large, key=lambda one: -one.numel)))
