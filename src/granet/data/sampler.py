"""Which image comes when: a seeded permutation per epoch, shared out among ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Sampler


def epoch_permutation(count: int, *, seed: int, epoch: int) -> Tensor:
    """0 .. count - 1 in an order that is a function of `seed` and `epoch` alone, so a resumed run goes on with it.

    >>> epoch_permutation(5, seed=1, epoch=0).tolist() == epoch_permutation(5, seed=1, epoch=0).tolist()
    True
    """
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
    return torch.randperm(count, generator=generator)


class EpochSampler(Sampler[tuple[int, int]]):
    """(epoch, index) keys for `ImageFolder`, in a new order each epoch; call `set_epoch` before each.

    With several ranks each takes every `ranks`-th key of one common order, all equally many; the at most `ranks - 1`
    images left over are not used in that epoch.
    """

    def __init__(self, count: int, *, seed: int = 0, rank: int = 0, ranks: int = 1) -> None:
        if not 0 <= rank < ranks:
            raise ValueError(f"rank={rank}: must be from 0 to {ranks - 1}")
        self.count, self.seed, self.rank, self.ranks, self.epoch = count, seed, rank, ranks, 0

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch's."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count // self.ranks

    def __iter__(self) -> Iterator[tuple[int, int]]:
        order = epoch_permutation(self.count, seed=self.seed, epoch=self.epoch)
        shared = order[: len(self) * self.ranks]
        for index in shared[self.rank :: self.ranks].tolist():
            yield self.epoch, index
