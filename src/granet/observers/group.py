"""Observers by name, and several of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import isabstract
from typing import Any

from torch import nn

from granet.import_path import imported
from granet.net import Change
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

    Those that watch masks need ``sparsifier``; those that look at activations need ``images``, a batch for the model
    (a tuple is several inputs, a dict named ones). Call `after_step` after each ``optimizer.step()``, before the
    gradients are cleared, and `epoch` at the end of each epoch; its keys are ``"observer.figure"``.
    """

    def __init__(
        self,
        names: Iterable[str],
        model: nn.Module,
        sparsifier: Sparsifier | None = None,
        images: Any = None,
    ) -> None:
        self._sparsifier = sparsifier
        self._step = sparsifier.step if sparsifier is not None else 0
        self._changed = False
        if sparsifier is not None:
            sparsifier.on_change(self._note_change)
        watched = Watched(model, sparsifier, images)
        self._observers: dict[str, Observer] = {}
        for name in dict.fromkeys(names):
            cls = find_observer(name)
            label = name.rpartition(":")[2].replace(".", "_")
            if label in self._observers:
                raise ValueError(f"observe={name!r}: must not have the name of another one, {label!r}")
            if cls.needs_masks and sparsifier is None:
                raise ValueError(f"observe={name!r}: watches masks; give it the sparsifier")
            if cls.needs_images and images is None:
                raise ValueError(f"observe={name!r}: runs the model; give it a batch of images")
            if cls.needs_activations and not look_at_activations(watched, lambda units: None):
                raise ValueError(
                    f"observe={name!r}: needs an activation such as ReLU or GELU, {type(model).__name__} has none"
                )
            self._observers[label] = cls(watched)

    def after_step(self) -> None:
        """An optimizer step is done."""
        if self._sparsifier is not None:
            if self._sparsifier.step == self._step:
                return  # the step was skipped, as a gradient scaler does if a gradient is not finite
            self._step = self._sparsifier.step
        changed, self._changed = self._changed, False
        for observer in self._observers.values():
            observer.after_step(changed)

    def _note_change(self, change: Change) -> None:
        self._changed = True

    def epoch(self) -> dict[str, float]:
        """The available figures of the epoch just done."""
        return {
            f"{name}.{key}": float(value) for name, one in self._observers.items() for key, value in one.epoch().items()
        }

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


def find_observer(name: str) -> type[Observer]:
    """The observer of that name; one that is ``package.module:Class`` is imported."""
    check_observer(name)
    if name in OBSERVERS:
        return OBSERVERS[name]
    cls = imported("observe", name)
    if not (isinstance(cls, type) and issubclass(cls, Observer)) or isabstract(cls):
        raise ValueError(
            f"observe={name!r}: must be a class made from granet.observers.Observer, with an epoch() method"
        )
    return cls


def check_observer(name: str) -> None:
    """ValueError unless there is one of that name; what is in a module of the user's own is not looked up."""
    if name not in OBSERVERS and ":" not in name:
        raise ValueError(
            f"observe={name!r}: must be one of {', '.join(OBSERVERS)}, or package.module:Class of your own"
        )


def without_masks(names: Sequence[str]) -> tuple[str, ...]:
    """Those of them that also have something to say about a dense model."""
    return tuple(name for name in names if not find_observer(name).needs_masks)


def need_images(names: Sequence[str]) -> bool:
    """Whether any of them runs the model on a batch."""
    return any(find_observer(name).needs_images for name in names)
