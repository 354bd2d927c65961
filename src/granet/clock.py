"""Times as users write them, turned into optimizer steps.

A time is a number of optimizer steps (``1000``), of epochs (``"30ep"``) or a share of training (``0.5`` or ``"50%"``,
so that ``1.0`` is its end and ``1`` its first step). Modules below this one count in optimizer steps; none of them
knows what an epoch is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from granet.plain_numbers import plain

Time = int | float | str

_TEXT = re.compile(r"(?P<amount>\d+(\.\d+)?)(?P<unit>ep|%)")


def parse_time(time: Time, field: str) -> tuple[int | Fraction, str]:
    """The amount of a time and its unit, ``"ep"``, ``"%"`` or ``""`` for steps; ValueError that names ``field``.

    Finds everything that can be wrong with a time before the length of training is known.
    """
    time = plain(time)
    if type(time) is int:
        if time < 0:
            raise ValueError(f"{field}={time!r}: must not be negative")
        return time, ""
    text = share_as_text(time)
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        allowed = "optimizer steps (1000), epochs ('30ep') or a share (0.5 or '50%')"
        raise ValueError(f"{field}={time!r}: must be {allowed}")
    amount = Fraction(match["amount"])  # as written: 0.29 * 100 is 28.999... in floating point
    if match["unit"] == "%" and amount > 100:
        raise ValueError(f"{field}={time!r}: must be at most '100%'")
    return amount, match["unit"]


def share_as_text(time: Time) -> Time:
    """``time``, with a share that is given as a number written as text: both are then the same value.

    >>> [share_as_text(time) for time in (0.5, 0.29, 1.0, 1, "30ep")]
    ['50%', '29%', '100%', 1, '30ep']
    """
    time = plain(time)
    if isinstance(time, float) and 0 <= time <= 1:
        return f"{(100 * Decimal(repr(abs(time)))).normalize():f}%"  # as written: 0.29 * 100 is 28.999... otherwise
    return time


def in_epochs(value: object) -> bool:
    """Whether it is a time that is given in epochs.

    >>> [in_epochs(value) for value in ("30ep", "50%", 1000, "deep")]
    [True, False, False, False]
    """
    match = _TEXT.fullmatch(value) if isinstance(value, str) else None
    return match is not None and match["unit"] == "ep"


@dataclass(frozen=True)
class Clock:
    """One moment of a training run: how many optimizer steps are done, and of how many.

    >>> clock = Clock(step=0, total_steps=56_320, steps_per_epoch=352)
    >>> [clock.steps(time) for time in (1000, "80ep", "50%", 0.5)]
    [1000, 28160, 28160, 28160]
    """

    step: int
    total_steps: int | None = None
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        for name in ("total_steps", "steps_per_epoch"):
            value = plain(getattr(self, name))
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name}={value!r}: must be a positive whole number of optimizer steps")
            object.__setattr__(self, name, value)

    def steps(self, time: Time, field: str = "time") -> int:
        """The optimizer step that ``time`` stands for, rounded down; ``field`` names it in an error."""
        amount, unit = parse_time(time, field)
        if unit == "%":
            amount *= Fraction(self.total(field), 100)
        elif unit == "ep":
            if self.steps_per_epoch is None:
                raise ValueError(f"{field}={time!r}: a time in epochs needs steps_per_epoch")
            amount *= self.steps_per_epoch
        return int(amount)

    def total(self, field: str = "schedule") -> int:
        """The length of training; ValueError that names ``field`` if it is not known."""
        if self.total_steps is None:
            raise ValueError(f"total_steps=None: {field} needs the number of optimizer steps of the whole training")
        return self.total_steps

    @property
    def progress(self) -> float:
        """The share of training that is done, in [0, 1]."""
        return min(1.0, self.step / self.total())
