"""The width multiplier of the Small-Dense baseline."""

from __future__ import annotations

from collections.abc import Sequence


def scale_channels(channels: Sequence[int], width: float) -> tuple[int, ...]:
    """Every hidden width times `width`, rounded, at least 1; input channels and classes are never scaled.

    For ResNet-50 RigL's authors use 0.465, 0.34, 0.26 and 0.231 against sparsities 0.8, 0.9, 0.95 and 0.965. These
    equate storage, a one-bit mask included: the small network has (1 - s) + 1/32 of the dense parameters, to 3 %. Equal
    storage is neither equal weight counts nor equal FLOPs.

    >>> scale_channels((64, 128, 256, 512), 0.34)
    (22, 44, 87, 174)
    """
    if not 0 < width < float("inf"):
        raise ValueError(f"width={width}: the width multiplier must be a positive number")
    return tuple(max(1, round(count * width)) for count in channels)
