"""Observers by name, and several of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from granet.observers.activations import look_at_activations
from granet.observers.base import Observer, Watched
from granet.observers.dead_filters import DeadFilters
from granet.observers.dormant import Dormant
from granet.observers.effective_rank import EffectiveRank
from granet.observers.ever_active import EverActive
from granet.observers.gradient_norm import GradientNorm
from granet.observers.overlap import Overlap
from granet.observers.survival import Survival
from granet.sparsifier import Sparsifier

OBSERVERS: Mapping[str, type[Observer]] = {
    "overlap": Overlap,
    "ever_active": EverActive,
    "survival": Survival,
    "dead_filters": DeadFilters,
    "dormant": Dormant,
    "gradient_norm": GradientNorm,
    "effective_rank": EffectiveRank,
}


class Observers:
    """The observers of these names, switched on for a model in training.

    Those that watch masks need ``sparsifier``; those that look at activations need ``images``, a batch for the model.
    Call `after_step` after each ``optimizer.step()``, before the gradients are cleared, and `epoch` at the end of each
    epoch; its keys are ``"observer.figure"``.
    """

    def __init__(
        self,
        names: Iterable[str],
        model: nn.Module,
        sparsifier: Sparsifier | None = None,
        images: Tensor | None = None,
    ) -> None:
        self._sparsifier = sparsifier
        self._step = sparsifier.step if sparsifier is not None else 0
        watched = Watched(model, sparsifier, images)
        self._observers: dict[str, Observer] = {}
        for name in dict.fromkeys(names):
            check_observer(name)
            if OBSERVERS[name].needs_masks and sparsifier is None:
                raise ValueError(f"observe={name!r}: watches masks; give it the sparsifier")
            if OBSERVERS[name].needs_images:
                _check_activations(name, watched)
            self._observers[name] = OBSERVERS[name](watched)

    def after_step(self) -> None:
        """An optimizer step is done."""
        updated = False
        if self._sparsifier is not None:
            if self._sparsifier.step == self._step:
                return  # the step was skipped, as a gradient scaler does if a gradient is not finite
            self._step = self._sparsifier.step
            updated = self._step in self._sparsifier.updates
        for observer in self._observers.values():
            observer.after_step(updated)

    def epoch(self) -> dict[str, float]:
        """The available figures of the epoch just done."""
        return {f"{name}.{key}": value for name, one in self._observers.items() for key, value in one.epoch().items()}

    def state(self) -> dict[str, dict[str, Any]]:
        """What they need to continue: tensors and plain values."""
        return {name: observer.state() for name, observer in self._observers.items()}

    def load(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Continue from that state; load the sparsifier first."""
        self._step = self._sparsifier.step if self._sparsifier is not None else 0
        for name, observer in self._observers.items():
            if name not in state:
                raise ValueError(f"state: has nothing of {name!r}; it was saved without this observer")
            observer.load(state[name])


def check_observer(name: str) -> None:
    """ValueError unless there is one of that name."""
    if name not in OBSERVERS:
        raise ValueError(f"observe={name!r}: must be one of {', '.join(OBSERVERS)}")


def without_masks(names: Sequence[str]) -> tuple[str, ...]:
    """Those of them that also have something to say about a dense model."""
    return tuple(name for name in names if not OBSERVERS[name].needs_masks)


def need_images(names: Sequence[str]) -> bool:
    """Whether any of them runs the model on a batch."""
    return any(OBSERVERS[name].needs_images for name in names)


def _check_activations(name: str, watched: Watched) -> None:
    if watched.images is None:
        raise ValueError(f"observe={name!r}: looks at activations; give it a batch of images")
    if not look_at_activations(watched, lambda units: None):
        raise ValueError(
            f"observe={name!r}: finds no activation such as ReLU or GELU in {type(watched.model).__name__}"
        )
