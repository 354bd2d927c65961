"""How many examples a property is tried on."""

from __future__ import annotations

from hypothesis import settings


def examples(usual: int) -> int:
    """As many as usual, or in proportion to what the chosen profile wants in place of 100."""
    return usual * settings.default.max_examples // 100
