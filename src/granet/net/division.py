"""Dividing a whole number of weights among layers, in proportion to shares and within each layer's room."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from granet.selection import fill


def divide(total: Tensor, shares: Tensor, room: Tensor, quanta: Tensor | None = None) -> Tensor:
    """Whole numbers in proportion to ``shares``, none above ``room``, that add up to ``total``.

    What a full layer cannot take goes to the others, in proportion again: layer l gets min(room_l, lambda * share_l)
    with the one lambda for which that sums to ``total``. Fractions are rounded by largest remainder, the earlier layer
    first among equals. Layers without a share get something only when all others are full; a total beyond all room
    fills everything. Where all shares are zero, room takes their place. Shares that are negative or not finite count as
    zero.

    With ``quanta``, each layer gets a multiple of its own quantum (its room must be one, too), and the sum is as near
    to ``total`` as rounding up the largest remainders allows; without, it is exact.

    All arguments and the result are tensors on one device; the host never waits.

    >>> divide(torch.tensor(10), torch.tensor([3.0, 1.0, 1.0]), torch.tensor([4, 9, 9])).tolist()
    [4, 3, 3]
    >>> divide(torch.tensor(10), torch.tensor([3.0, 2.0]), torch.tensor([12, 30]), torch.tensor([4, 3])).tolist()
    [8, 3]
    """
    quanta = torch.ones_like(room) if quanta is None else quanta
    shares = shares.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(min=0)
    shares = torch.where(shares.sum() > 0, shares, room.double())
    exact = torch.minimum(_level(total, shares, room) * shares, room.double())
    result = rounded(exact, quanta, total)
    return result + nearest_multiple(fill(result, room, total) - result, quanta)


def rounded(exact: Tensor, quanta: Tensor, total: Tensor) -> Tensor:
    """Multiples of ``quanta``: all numbers rounded down, then up where the remainder is largest.

    As many are rounded up as bring the sum nearest to ``total``; the earlier comes first among equals. Where the next
    quantum is too large, `distributions.counts` goes on to smaller ones; here nobody may wait to see which these are.
    """
    down = (exact / quanta).floor().long() * quanta
    added = torch.where(exact > down, quanta, 0)  # by rounding up
    order = ((exact - down) / quanta).argsort(descending=True, stable=True)
    sums = pad(added[order].cumsum(0), (1, 0)) + down.sum()
    return down + added * (order.argsort() < (sums - total).abs().argmin())


def nearest_multiple(numbers: Tensor, quanta: Tensor | int) -> Tensor:
    """The multiples of ``quanta`` nearest to these whole numbers; of two, the smaller."""
    return (numbers + (quanta - 1) // 2) // quanta * quanta


def _level(total: Tensor, shares: Tensor, room: Tensor) -> Tensor:
    """The lambda of :func:`divide`.

    Layers fill up in the order of room / share. With those before layer k (in that order) full, the others would get
    lambda_k = (total - room before k) / (shares from k on) for each unit of share. If layer k then overflows, it is
    full as well. The first that does not overflow gives the answer.
    """
    fills_at = torch.where(shares > 0, room / shares, torch.inf)
    order = fills_at.argsort(stable=True)
    fills_at, shares, room = fills_at[order], shares[order], room[order]
    before = room.cumsum(0) - room
    from_here_on = shares.flip(0).cumsum(0).flip(0)
    highest = torch.where(shares > 0, fills_at, 0.0).max()  # fills every layer that has a share
    levels = torch.where(from_here_on > 0, (total - before) / from_here_on, highest)
    first = (levels >= fills_at).cumprod(0).sum()
    return torch.cat([levels, highest[None]]).gather(0, first[None])[0]
