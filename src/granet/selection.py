"""Exact selection of the largest scores, without sorting and without concatenating the layers' tensors.

Scores are ranked by absolute value through their bits: with the sign bit cleared, the bits of an IEEE float read as an
integer grow with the value, so the k-th largest is found digit by digit from histograms (a radix select). Every case
is defined, and the same on every device:

- equal scores: the earlier position wins, and among layers the earlier layer;
- -0.0 equals 0.0; NaN ranks above infinity, and all NaNs are equal;
- bfloat16, float16 and float32 compare as float32 (exactly), float64 as itself.

Where ranks hold parts of the weights, what they count is summed over them before it is used. All then know the same
threshold; ties go by the position in the whole weight, whose digits follow those of the key in the search.

The counts are tensors, because after a global prune only the device knows how many weights a layer has left; reading
them on the host would make it wait. Tensors are visited in logical order, whatever their memory layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from granet.kernels import runs_kernels
from granet.tensors.part import Part, Reduce, identity
from granet.tensors.row import kinds

CHUNK = 1 << 17
"""Elements handled at once: temporaries stay small and in cache."""

Candidates = Literal["active", "inactive"]
"""Which weights of a layer are ranked: the active ones, to be thinned out, or the inactive ones, to grow."""


class Ranking(Protocol):
    """The candidates of some layers, ordered by score."""

    def select(self, counts: Tensor) -> None:
        """Let exactly ``counts[layer]`` candidates win in each layer, those with the largest scores (at most all).

        If the candidates were the active weights, the winners may be thinned again, to fewer.
        """
        ...

    def global_counts(self, total: Tensor, floors: Tensor) -> Tensor:
        """How many candidates each layer keeps when the ``total`` largest of all layers together are kept.

        A layer keeps at least ``floors[layer]`` of them (all it has, if fewer); the other layers then give up as many,
        so the sum is still ``total``. A total beyond what there is, or below the sum of the floors, is met as nearly as
        possible.
        """
        ...


def rank(
    scores: Sequence[Tensor],
    masks: Sequence[Tensor],
    candidates: Candidates,
    *,
    parts: Sequence[Part] | None = None,
    reduce: Reduce = identity,
) -> Ranking:
    """Rank the active or the inactive weights of each layer, by the absolute value of their scores.

    ``masks`` are flat bool tensors that a selection overwrites: candidates that win become True, the others False.

    With ``parts``, scores and masks are those of parts of the layers, and ``reduce`` sums over the ranks that hold the
    others. All ranks must then ask for the same numbers, which are those of whole layers.
    """
    if _use_triton(scores):
        from granet.kernels.selection import TritonRanking

        return TritonRanking(scores, masks, candidates, parts, reduce)
    return TorchRanking(scores, masks, candidates, parts, reduce)


def _use_triton(scores: Sequence[Tensor]) -> bool:
    found = kinds(scores)
    devices = {device for device, _ in found}
    return len(devices) == 1 and runs_kernels(*devices) and torch.float64 not in {dtype for _, dtype in found}


class TorchRanking:
    """The plain path, on any device; on a CUDA device it makes the host wait, which the Triton path avoids.

    Keys are computed again, a chunk at a time, whenever they are needed: that takes less memory than storing them. Only
    the histogram of the first digit is stored and, for each layer, the few keys that share the prefix last asked for.
    """

    def __init__(
        self,
        scores: Sequence[Tensor],
        masks: Sequence[Tensor],
        candidates: Candidates,
        parts: Sequence[Part] | None = None,
        reduce: Reduce = identity,
    ) -> None:
        wide = any(score.dtype == torch.float64 for score in scores)
        self._digits: tuple[int, ...] = (12, 11, 10, 10, 10, 10) if wide else (12, 10, 9)
        self._float, self._int = (torch.float64, torch.int64) if wide else (torch.float32, torch.int32)
        infinity = torch.tensor(float("inf"), dtype=self._float, device="cpu")
        self._nan = int(infinity.view(self._int)) + 1  # one key for all NaNs
        self._scores, self._masks = scores, masks
        self._parts, self._reduce = parts, reduce
        self._ranks_active = candidates == "active"
        self._first: Tensor | None = None
        self._few: dict[int, tuple[int, int, Tensor]] = {}

    def select(self, counts: Tensor) -> None:
        threshold, left, tied = _search(self._histogram, self._digits, counts)
        self._mark(threshold, left if self._parts is None else self._first_ties(self._parts, threshold, left, tied))

    def global_counts(self, total: Tensor, floors: Tensor) -> Tensor:
        prefix = torch.zeros_like(floors)
        above = torch.zeros_like(floors)
        for shift, width in _walk(self._digits):
            at_least = _at_least(self._histogram(prefix, shift, width), above)
            if shift + width == sum(self._digits):
                floors = torch.minimum(floors, at_least[:, 0])
                total = total.clamp(max=at_least[:, 0].sum())
            kept = torch.maximum(at_least, floors[:, None]).sum(0)
            digit = (kept[:-1] >= total).sum() - 1
            reached, above = at_least[:, digit], at_least[:, digit + 1]
            prefix = (prefix << width) | digit
        return fill(torch.maximum(above, floors), torch.maximum(reached, floors), total)

    def _histogram(self, prefix: Tensor, shift: int, width: int) -> Tensor:
        """[layers, 2**width]: candidates by the digit at ``shift``, among keys that begin with the layer's prefix."""
        if shift + width == sum(self._digits):
            if self._first is None:
                rows = [self._leading(i, shift, width).to(prefix.device) for i in range(len(prefix))]
                self._first = self._reduce(torch.stack(rows))
            return self._first
        found = (self._starting(layer, begins, shift + width) for layer, begins in enumerate(prefix.tolist()))
        return self._reduce(_histogram(found, shift, width, prefix.device))

    def _first_ties(self, parts: Sequence[Part], threshold: Tensor, left: Tensor, tied: Tensor) -> Tensor:
        """How many of the ties that win are here: the ``left`` earliest of the whole layer's ``tied`` ones win."""
        contested = (left < tied).tolist()
        if not any(contested):
            return left  # all of them win, here as elsewhere
        end = max(part.whole for part in parts)
        early = [  # the largest come first, as with keys
            end - parts[layer].places(self._equal(layer, key)) if contested[layer] else left.new_empty(0)
            for layer, key in enumerate(threshold.tolist())
        ]

        def histogram(prefix: Tensor, shift: int, width: int) -> Tensor:
            found = (few[few >> shift + width == begins] for few, begins in zip(early, prefix.tolist(), strict=True))
            return self._reduce(_histogram(found, shift, width, prefix.device))

        latest, _, _ = _search(histogram, (10,) * -(-end.bit_length() // 10), left)
        own = [(few >= last).sum().to(left.device) for few, last in zip(early, latest.tolist(), strict=True)]
        return torch.where(left < tied, torch.stack(own), left)

    def _equal(self, layer: int, key: int) -> Tensor:
        """The positions here of the candidates with that key."""
        found = [_where((keys == key) & candidates) for candidates, keys in self._chunks(layer)]
        return torch.cat([positions + i * CHUNK for i, positions in enumerate(found)])

    def _mark(self, threshold: Tensor, ties: Tensor) -> None:
        """Write the outcome: keys above the layer's threshold win, and the first ``ties`` of those equal to it."""
        for layer, (least, left) in enumerate(zip(threshold.tolist(), ties.tolist(), strict=True)):
            all_win = least > 0 and left >= len(self._starting(layer, least, 0))
            for mask, (candidates, keys) in zip(
                torch.split(self._masks[layer], CHUNK), self._chunks(layer), strict=True
            ):
                wins = keys >= least if all_win else keys > least
                if left and not all_win:
                    first = _where((keys == least) & candidates)[:left]
                    left -= len(first)
                    wins[first] = True
                if self._ranks_active:
                    mask.copy_(wins)
                else:
                    mask |= wins

    def _leading(self, layer: int, shift: int, width: int) -> Tensor:
        """The histogram of a layer's first digit."""
        row = torch.zeros(1 << width, dtype=torch.int64, device=self._scores[layer].device)
        for _, keys in self._chunks(layer):
            row += (keys >> shift).bincount(minlength=1 << width)
        active = self._masks[layer].count_nonzero()
        # Positions that are no candidates have the key 0.
        row[0] -= self._masks[layer].numel() - active if self._ranks_active else active
        return row

    def _starting(self, layer: int, prefix: int, shift: int) -> Tensor:
        """The keys of a layer's candidates that begin with ``prefix``, the digits from ``shift`` on.

        A walk asks for short prefixes first, so what is stored has the shortest prefix there is.
        """
        known_shift, known_prefix, few = self._few.get(layer, (0, -1, None))
        if few is not None and prefix >> known_shift - shift == known_prefix:
            return few[_where(few >> shift == prefix)]
        found = []
        for candidates, keys in self._chunks(layer):
            hits = keys >> shift == prefix
            found.append(keys[_where(hits if prefix else hits & candidates)])
        few = torch.cat(found)
        self._few[layer] = (shift, prefix, few)
        return few

    def _chunks(self, layer: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Which positions are candidates, and their keys, a chunk at a time; a key is 0 where there is no candidate."""
        largest = torch.iinfo(self._int).max
        flat, masks = self._scores[layer].reshape(-1), self._masks[layer]
        for scores, mask in zip(torch.split(flat, CHUNK), torch.split(masks, CHUNK), strict=True):
            candidates = mask if self._ranks_active else ~mask
            bits = scores.to(self._float).view(self._int) & largest  # without the sign
            yield candidates, bits.clamp_(max=self._nan).mul_(candidates)


def _where(condition: Tensor) -> Tensor:
    return condition.nonzero().squeeze(1)


def _search(
    histogram: Callable[[Tensor, int, int], Tensor], digits: Sequence[int], counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The ``counts[layer]``-th largest value of each layer; how many equal to it are among those; how many there are.

    With a count of 0 it is larger than all values.
    """
    prefix = torch.zeros_like(counts)
    above = torch.zeros_like(counts)  # values known to rank above everything that begins with prefix
    for shift, width in _walk(digits):
        at_least = _at_least(histogram(prefix, shift, width), above)
        if shift + width == sum(digits):
            counts = counts.clamp(max=at_least[:, 0])
        digit = (at_least[:, :-1] >= counts[:, None]).sum(1) - 1
        reached, above = at_least.gather(1, torch.stack([digit, digit + 1], 1)).unbind(1)
        prefix = (prefix << width) | digit
    return prefix, counts - above, reached - above


def _walk(digits: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(shift, width) of each digit of a number, from the most significant one."""
    shift = sum(digits)
    for width in digits:
        shift -= width
        yield shift, width


def _histogram(values: Iterable[Tensor], shift: int, width: int, device: torch.device) -> Tensor:
    """[layers, 2**width]: the values of each layer by the digit at ``shift``."""
    digits = ((some >> shift) & ((1 << width) - 1) for some in values)
    return torch.stack([some.bincount(minlength=1 << width).to(device) for some in digits])


def _at_least(histogram: Tensor, above: Tensor) -> Tensor:
    """[layers, bins + 1]: candidates whose digit is d or more; the last column holds only those already above."""
    below = torch.nn.functional.pad(histogram.cumsum(1), (1, 0))
    return (above + below[:, -1])[:, None] - below


def fill(least: Tensor, most: Tensor, total: Tensor) -> Tensor:
    """Counts between ``least`` and ``most`` that add up to ``total``; earlier layers are filled up first."""
    spare = most - least
    before = spare.cumsum(0) - spare
    return least + (total - least.sum() - before).clamp(min=0).minimum(spare)
