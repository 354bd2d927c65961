"""A proposal for the next masks of a net: how it is opened, thinned, grown and committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from granet.distributions import least
from granet.net.change import Change, intersect
from granet.net.given_scores import check_numbers, check_shape, without_gradient
from granet.patterns import Blocks, Pattern, Units
from granet.probe import Probe
from granet.scores import Score, gradient, magnitude
from granet.selection import Candidates, Ranking, rank
from granet.tensors.row import Row, nonzero, row_of, sizes
from granet.tensors.transfer import constant, to_device
from granet.weights import SparseLayer, gradients_of, lay_in_a_row


class ProposedMasks:
    """Layers with masks, and a proposal for their next masks.

    The number of active weights of each layer is decided first, as an integer; selection then meets it exactly. All
    counts are int64 tensors on the device, one entry for each layer, so that proposing and committing never make the
    host wait.

    Moves change the proposal alone, and :meth:`commit` returns it as a value: the layers' masks tell what was active at
    first until that value is written.
    """

    def __init__(self, layers: Sequence[SparseLayer], floor: int = 1, pattern: Pattern | None = None) -> None:
        self.layers = list(layers)
        self.numel = sum(layer.numel for layer in self.layers)
        self.floor, self.pattern = floor, pattern
        self.device = self.layers[0].weight.device
        self._quanta = [pattern.quantum(layer) if pattern else 1 for layer in self.layers]
        self.floors = [least(layer.numel, floor, q) for layer, q in zip(self.layers, self._quanta, strict=True)]
        """What each layer keeps at least."""
        self.active = to_device([layer.numel for layer in self.layers], self.device)
        """Active weights of each layer, as committed."""
        self._index: Tensor | None = None
        self.memory: dict[str, Tensor] = {}
        """What the method keeps between updates about the net as a whole."""
        self.start: Mapping[str, Tensor] | None = None
        """The state that the model should begin with instead of its own; a method may set it in ``begin``."""
        self.dense_gradients = True
        """Whether the layers' gradients include those of inactive weights; masked gradients are zero there."""

    probe: Probe
    """Batches, a loss and a finished first run to look at; exists only during a method's ``begin``."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [layer.identity.shape for layer in self.layers]

    # A proposal is opened at a mask update, changed by the method's moves, then committed.

    def open(self, draw: int, movable: Sequence[SparseLayer] | None = None, accept: Tensor | None = None) -> None:
        """Begin a proposal from the present masks; only ``movable`` layers may change in it, by default all.

        Where ``accept`` (a bool tensor without dimensions) is false, no move changes anything: the device decides
        whether there is an update, and the host need not know.
        """
        self.draw = draw
        """The number of this proposal, for random scores."""
        self.accept = torch.tensor(True, device=self.device) if accept is None else accept
        self.movable = self.layers if movable is None else list(movable)
        all_move = len(self.movable) == len(self.layers)
        self._index = None if all_move else constant([layer.index for layer in self.movable], self.device)
        masks = self._flat_masks
        self._masks = masks if all_move else [masks[layer.index] for layer in self.movable]
        self._proposed: Sequence[Tensor] = self._present()
        self.counts = self.of_movable(self.active)
        """Active weights of each movable layer, as proposed."""
        self._thinning: tuple[Score, Ranking] | None = None
        """A selection that was put off: the proposed weights, ranked by a score, still to be thinned to ``counts``."""
        self._survivors: Sequence[Tensor] = ()
        """The weights that no :meth:`zero_pruned` found switched off; empty if there was none."""
        self._moved: Sequence[Tensor] = ()
        self.pruned = self.regrown = constant(0, self.device)

    @torch.no_grad()
    def commit(self) -> Change:
        """End the proposal; the net counts its weights as active from now on."""
        self._finish_thinning()
        masks = self._weight_by_weight()
        if self._survivors:
            intersect(self._survivors, masks)
        change = Change(self.movable, self._masks, masks, self._survivors or masks, self._moved)
        lost = self.of_movable(self.active).sum() - self.counts.sum()
        self.pruned = torch.maximum(self.pruned, lost)  # what drop() and remove() took and no move gave back
        if self._index is None:
            self.active = self.counts
        else:
            self.active = self.active.index_copy(0, self._index, self.counts)
        if self._tracks_ever_active:
            for layer, mask in zip(self.movable, masks, strict=True):
                layer.memory["ever_active"].logical_or_(mask.view(layer.weight.shape))
        del self._masks, self._proposed, self._survivors, self._moved
        return change

    @torch.no_grad()
    def zero_pruned(self) -> None:
        """Let the weights switched off so far start afresh even if they come back in this proposal.

        Nothing is written yet: weights keep their values, and scores see those.
        """
        if self._thinning is not None:
            self._thinning[1].select(self.counts)  # without finishing it: a later move may thin further
        if self._survivors:
            intersect(self._survivors, self._weight_by_weight())
        else:
            self._survivors = flat_copies(self._weight_by_weight())

    def move_weights(self, values: Sequence[Tensor]) -> None:
        """Give the weights of the movable layers these values, before those that do not survive become zero."""
        self._moved = values

    @property
    def room(self) -> Tensor:
        """Inactive weights of each movable layer, as proposed."""
        return constant([layer.numel for layer in self.movable], self.device) - self.counts

    @cached_property
    def _flat_masks(self) -> Sequence[Tensor]:
        """Every layer's mask, flat, or in its own shape where its memory layout is another one."""
        masks = [layer.mask for layer in self.layers]
        flat = [mask.view(-1) if mask.is_contiguous() else mask for mask in masks]
        return row_of(flat) or flat

    def __getstate__(self) -> dict[str, Any]:
        """Without views of the masks, which pickling would cut off from them."""
        return {name: value for name, value in self.__dict__.items() if name != "_flat_masks"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        lay_in_a_row(self.layers)

    def of_movable(self, numbers: Tensor) -> Tensor:
        """Of numbers for all layers, such as a method may keep, those of the movable ones."""
        return numbers if self._index is None else numbers[self._index]

    # Every weight that was ever active, for methods that ask for it (ITOP).

    def track_ever_active(self) -> None:
        """From now on remember which weights have been active at some time."""
        for layer in self.layers:
            layer.memory["ever_active"] = torch.zeros_like(layer.mask)

    @property
    def _tracks_ever_active(self) -> bool:
        return "ever_active" in self.layers[0].memory

    @property
    def ever_active(self) -> Tensor | None:
        """How many weights have been active at some time; None if that is not tracked."""
        if not self._tracks_ever_active:
            return None
        return nonzero((layer.memory["ever_active"] for layer in self.layers), self.device).sum()

    # Thinning twice in a row by the same score (prune, then drop) is the same as thinning once to the second number, so
    # a selection is put off until a move needs its outcome.

    def _begin_thinning(self, score: Score) -> Ranking:
        """Rank the proposed weights by that score; they will be thinned to what ``self.counts`` is by then."""
        if self._thinning is None or self._thinning[0] is not score:
            self._finish_thinning()
            self._thinning = score, self._rank(score, "active")
        return self._thinning[1]

    def _begin_regenerating(self, drop: Score) -> None:
        """As above, before as many as go grow again."""
        self._begin_thinning(drop)

    def _finish_thinning(self) -> None:
        """Carry out the selection that was put off, if any, so that the proposed masks have ``self.counts``."""
        if self._thinning is not None:
            self._thinning[1].select(self.counts)
            self._thinning = None

    # What a pattern other than single weights does in its own way.

    @property
    def _unit_sizes(self) -> Tensor:
        """For each layer, the weights of a unit: a proposed mask has one entry for each unit."""
        return constant([1] * len(self.movable), self.device)

    def _by_unit(self, layer: SparseLayer, mask: Tensor) -> Tensor:
        """A mask of the layer with one entry for each unit, as scores have."""
        return mask

    def _present(self) -> Sequence[Tensor]:
        """The masks that a proposal begins with, a flat copy of each."""
        return flat_copies(self._masks)

    def _weight_by_weight(self) -> Sequence[Tensor]:
        """The proposed masks, flat, with an entry for each weight."""
        return self._proposed

    def _scores(self, score: Score) -> Sequence[Tensor]:
        if score is gradient:  # as the row they are kept in: cutting it apart takes longer than launching the search
            return gradients_of(self.movable)
        if score is magnitude:  # the weights themselves: under no_grad there is no need to detach each
            return [layer.weight for layer in self.movable]
        return [self._score_of(layer, score) for layer in self.movable]

    def _rank(self, score: Score, candidates: Candidates) -> Ranking:
        return rank(self._scores(score), self._proposed, candidates)

    # What moves and others need, whatever the pattern.

    def check_mask(self, layer: SparseLayer, mask: Tensor) -> None:
        """ValueError if the layer cannot have that mask."""
        if self.pattern is not None and not self.pattern.holds(layer, mask):
            raise ValueError(f"it breaks pattern={self.pattern.text!r}")

    @property
    def units(self) -> Units:
        """What is kept or dropped whole."""
        return Units(self.pattern if isinstance(self.pattern, Blocks) else None)

    def _score_of(self, layer: SparseLayer, score: Score) -> Tensor:
        """The score of a layer, which a user's own function may have made."""
        values = score(layer, self.draw)
        check_shape(layer, values)
        if values.device.type == "cpu" or hasattr(self, "probe"):  # in training a GPU would make the host wait for it
            check_numbers(layer, values, self.accept)
        return values

    def _rank_to_grow(self, score: Score) -> Ranking:
        """Inactive weights ranked by that score, which may read gradients only if those include inactive weights."""
        return self._rank(score if self.dense_gradients else without_gradient(score), "inactive")

    def _portion(self, ratio: float, rounding: Callable[[Tensor], Tensor], sizes: Tensor) -> Tensor:
        """That share of each layer's active weights, in whole pieces of these sizes."""
        if not -1e-9 < ratio < 1 + 1e-9:  # a method's own schedule may be off by rounding
            raise ValueError(f"ratio={ratio!r}: must be in [0, 1], a share of the active weights")
        share = min(max(float(ratio), 0.0), 1.0)
        return rounding((self.counts // sizes).double() * share).long() * sizes * self.accept

    @property
    def quanta(self) -> Tensor:
        """For each layer, the number that its count of active weights is a multiple of."""
        return constant([self._quanta[layer.index] for layer in self.movable], self.device)

    @property
    def _floors(self) -> Tensor:
        return constant([self.floors[layer.index] for layer in self.movable], self.device)


def flat_copies(masks: Sequence[Tensor]) -> Sequence[Tensor]:
    """A flat copy of each mask, in logical order; those on one device are copied together."""
    if isinstance(masks, Row):
        return masks.clone()
    flat = [mask.reshape(-1) for mask in masks]
    if len({mask.device for mask in flat}) != 1:
        return [mask.clone() for mask in flat]
    whole = torch.cat(flat)
    return Row(whole, torch.split(whole, list(sizes(flat))))
