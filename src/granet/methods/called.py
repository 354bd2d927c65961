"""What a method is called, in messages and in states, which are compared by it."""

from __future__ import annotations

from weakref import WeakKeyDictionary

_NAMES: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def give_name(cls: type, name: str) -> None:
    """Call a class by that name from now on; it keeps its first, even when another class is registered under it."""
    _NAMES.setdefault(cls, name)


def method_name(method: object) -> str:
    """The registered name of a method, or its class name if it has none.

    A path by which it was found does not count: states are compared by this, wherever their method came from.
    """
    return _NAMES.get(type(method), type(method).__name__)
