"""The names that fields had before: files that were written with them are still read.

The names of runs are made with them too, so that the folders and results of earlier runs are found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from granet.distributions import DISTRIBUTIONS, PRUNING_DISTRIBUTIONS
from granet.methods.base import Method
from granet.methods.by_gradient import GrowsByGradient
from granet.methods.gmp import Gradual
from granet.methods.granet import GraNet
from granet.methods.grasp import GraSP
from granet.methods.gs import GS
from granet.methods.prune_once import PruneOnce
from granet.methods.sis import SIS
from granet.methods.snip import SNIP

_FORMER: Mapping[type, Mapping[str, str]] = {
    Gradual: {"prune_end": "end", "distribution": "scope"},
    GraNet: {"initial_distribution": "distribution"},
    GrowsByGradient: {"grow_batch_count": "grow_batches"},
    GS: {"prune_end": "end"},
    PruneOnce: {"distribution": "scope"},
    **{cls: {"batch_count": "batches"} for cls in (GraSP, SIS, SNIP)},
}
"""A class to the names that its fields have now, each with the one it had; classes derived from it have them too."""
STUDY = {"scopes": "distributions"}
"""Former names of the fields of a study of plasticity."""

ALL = frozenset(former for names in _FORMER.values() for former in names.values())
_START_ONLY = tuple(name for name in DISTRIBUTIONS if name not in PRUNING_DISTRIBUTIONS)


def present(cls: type[Method] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a method, or of training without one, under the names that they have now.

    A name that is now that of another field (``distribution`` of `GraNet` was that of its start alone) is a former one
    where others stand beside it that are no names any more, or where its value is one that only the start can have.

    >>> present(GS, {"end": "75%", "rounds": 3})
    {'prune_end': '75%', 'rounds': 3}
    >>> present(GraNet, {"distribution": "uniform", "end": "75%"})
    {'initial_distribution': 'uniform', 'prune_end': '75%'}
    """
    names = {former: name for name, former in _former(cls).items()}
    gone = {former: name for former, name in names.items() if former not in names.values()}
    written_before = any(former in fields for former in gone) or fields.get("distribution") in _START_ONLY
    return renamed(names if written_before else gone, fields)


def renamed(names: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with their former names replaced; ValueError for one that stands under both."""
    for former, name in names.items():
        if former in values and name in values and name not in names:
            raise ValueError(f"{former}={values[former]!r}: must be left out, {name}={values[name]!r} says the same")
    return {names.get(name, name): value for name, value in values.items()}


def first_written(cls: type[Method] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a method under the names that they had first.

    >>> first_written(GS, {"prune_end": "75%", "rounds": 3})
    {'end': '75%', 'rounds': 3}
    """
    names = _former(cls)
    return {names.get(name, name): value for name, value in fields.items()}


def _former(cls: type[Method] | None) -> dict[str, str]:
    if cls is None:
        return {}
    names = {name: former for parent in cls.__mro__ for name, former in _FORMER.get(parent, {}).items()}
    own = {field.name for field in dataclasses.fields(cls)}  # a method of one's own may have such a field itself
    return {name: former for name, former in names.items() if former not in own or former in names}
