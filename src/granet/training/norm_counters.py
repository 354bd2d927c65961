"""The counters of batch norms, counted up together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def counted_apart(model: nn.Module) -> Iterator[list[Tensor]]:
    """Batch norms do not count their batches here; their counters are yielded, to be counted up all at once.

    Counting one by one takes a kernel for each, although nothing reads the counters of norms with a momentum.
    """
    norms = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        and module.momentum is not None
        and module.num_batches_tracked is not None
    ]
    counters = [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]
    try:
        for norm in norms:
            norm.num_batches_tracked = None
        yield counters
    finally:
        for norm, counter in zip(norms, counters, strict=True):
            norm.num_batches_tracked = counter
