"""Where the dimensions of a tensor go in operators that move or pick them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx

from granet.channels.constants import SAME
from granet.channels.exported import argument, operator_of, shape_of


def picked(node: fx.Node, places: Mapping[int, int] | None = None) -> frozenset[int]:
    """The dimensions of a view of which one index is picked later, as of query, key and value made by one product."""
    shape = shape_of(node)
    if shape is None:
        return frozenset()
    places = places or {place: place for place in range(len(shape))}
    found: set[int] = set()
    for user in node.users:
        operator = operator_of(user)
        if operator in ("select", "unbind", "split", "split_with_sizes", "chunk"):
            at = 1 if operator in ("select", "unbind") else 2
            found |= {places.get(int(argument(user, at, "dim", 0)) % len(shape), -1)}
        elif operator in ("permute", "transpose", "unsqueeze", "squeeze") or operator in SAME:
            order = order_of(user, operator, len(shape))
            found |= picked(user, {new: places.get(old, -1) for new, old in enumerate(order)})
    return frozenset(found - {-1})


def order_of(node: fx.Node, operator: str, rank: int) -> list[int]:
    """Which dimension of what it reads each dimension of the output is; -1 for a new one."""
    order = list(range(rank))
    if operator == "permute":
        return [int(dim) % rank for dim in argument(node, 1, "dims")]
    if operator == "transpose":
        one, other = int(node.args[1]), int(node.args[2])  # type: ignore[arg-type]
        order[one], order[other] = order[other], order[one]
    elif operator == "unsqueeze":
        order.insert(int(node.args[1]) % (rank + 1), -1)  # type: ignore[arg-type]
    elif operator == "squeeze":
        sizes = shape_of(node.args[0])
        dims = argument(node, 1, "dim", list(range(rank)))
        gone = {dim % rank for dim in (dims if isinstance(dims, list | tuple) else [dims])}
        return [place for place in order if place not in gone or sizes is None or sizes[place] != 1]
    return order
