"""Values that are refused: an error names the field, the value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from granet.plain_numbers import plain


def check_share(field: str, value: float) -> None:
    """A share of weights in [0, 1)."""
    if not _is_number(value):
        raise ValueError(f"{field}={value!r}: must be a number in [0, 1)")
    if not 0 <= value < 1:
        raise ValueError(f"{field}={value!r}: must be in [0, 1)")


def check_ratio(field: str, value: float) -> None:
    """A share of what is there, which may be all of it: in [0, 1]."""
    if not _is_number(value):
        raise ValueError(f"{field}={value!r}: must be a number in [0, 1]")
    if not 0 <= value <= 1:
        raise ValueError(f"{field}={value!r}: must be in [0, 1]")


def check_rate(field: str, value: float) -> None:
    """A share of weights to prune, in (0, 1)."""
    if not _is_number(value) or not 0 < value < 1:
        raise ValueError(f"{field}={value!r}: must be in (0, 1)")


def check_items(field: str, values: Sequence[object], kinds: tuple[type, ...], words: str) -> None:
    """All values of a list field are of these kinds, which ``words`` describes in errors; a bool is no number."""
    if any(not isinstance(value, kinds) or isinstance(value, bool) for value in values):
        raise ValueError(f"{field}={list(values)!r}: must hold {words}")


def check_choice(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{field}={value!r}: must be one of {', '.join(allowed)}")


def check_count(field: str, value: int) -> None:
    """A whole number of things, at least one."""
    value = plain(value)
    if type(value) is not int or value < 1:
        raise ValueError(f"{field}={value!r}: must be a whole number, 1 or more")


def check_number(field: str, value: float, *, least: float | None = None, above: float | None = None) -> None:
    """A finite number; ``least`` or more, or more than ``above``."""
    good, allowed = _is_number(value) and math.isfinite(value), "a finite number"
    if least is not None:
        good, allowed = good and value >= least, f"a number, {least:g} or more"
    if above is not None:
        good, allowed = good and value > above, f"a number above {above:g}"
    if not good:
        raise ValueError(f"{field}={value!r}: must be {allowed}")


def check_switch(field: str, value: bool) -> None:
    """Nothing but True and False: any text, ``"no"`` among them, would count as True."""
    if not isinstance(value, bool):
        raise ValueError(f"{field}={value!r}: must be True or False")


def _is_number(value: object) -> bool:
    """Whether it is one of Python's own; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
