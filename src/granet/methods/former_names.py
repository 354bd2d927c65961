"""The names that fields of methods had before: files that were written with them are still read.

The names of runs are made with them too, so that the folders and results of earlier runs are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from granet.methods.base import Method
from granet.methods.by_gradient import GrowsByGradient
from granet.methods.gmp import Gradual
from granet.methods.grasp import GraSP
from granet.methods.gs import GS
from granet.methods.sis import SIS
from granet.methods.snip import SNIP

_FORMER: Mapping[type, Mapping[str, str]] = {
    Gradual: {"prune_end": "end"},
    GS: {"prune_end": "end"},
    GrowsByGradient: {"grow_batch_count": "grow_batches"},
    **{cls: {"batch_count": "batches"} for cls in (GraSP, SIS, SNIP)},
}
"""A class to the names that its fields have now, each with the one it had; classes derived from it have them too."""

ALL = frozenset(former for names in _FORMER.values() for former in names.values())


def present(cls: type[Method] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a method, or of training without one, under the names that they have now.

    >>> present(GS, {"end": "75%", "rounds": 3})
    {'prune_end': '75%', 'rounds': 3}
    """
    names = {former: name for name, former in _former(cls).items()}
    for former, name in names.items():
        if former in fields and name in fields:
            raise ValueError(f"{former}={fields[former]!r}: must be left out, {name}={fields[name]!r} says the same")
    return {names.get(name, name): value for name, value in fields.items()}


def first_written(cls: type[Method] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a method under the names that they had first.

    >>> first_written(GS, {"prune_end": "75%", "rounds": 3})
    {'end': '75%', 'rounds': 3}
    """
    names = _former(cls)
    return {names.get(name, name): value for name, value in fields.items()}


def _former(cls: type[Method] | None) -> dict[str, str]:
    parents = () if cls is None else cls.__mro__
    return {name: former for parent in parents for name, former in _FORMER.get(parent, {}).items()}
