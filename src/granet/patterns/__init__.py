"""Patterns of weights that are kept or dropped together; their units, for methods that do more than rank."""

from granet.patterns.patterns import FILTERS, Blocks, Groups, Pattern, check_fit, parse_pattern
from granet.patterns.units import SINGLE, Units, units_of

__all__ = [
    "FILTERS",
    "SINGLE",
    "Blocks",
    "Groups",
    "Pattern",
    "Units",
    "check_fit",
    "parse_pattern",
    "units_of",
]
