"""The settings in which runs of a grid differ, besides those with columns of their own in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from granet.training import Recipe
from granet.training.differences import Settings, differing, settings, shown
from granet.training.rundir import run_name

_COLUMNS = {"seed", "sparsity", "width"}  # the last one is part of the model's name


def told_apart(recipes: Sequence[Recipe]) -> dict[str, str]:
    """Run name to the settings in which it differs from other runs of its method, model and data: `every=100, lr=0.2`.

    A parent that is one of the runs is shown by its method and settings, since its name differs for every seed.
    """
    named = {run_name(recipe): recipe for recipe in recipes}
    found = {name: settings(recipe) for name, recipe in named.items()}
    alone = _texts(named, {name: {**own, "parent": ""} for name, own in found.items()})
    starts = {name: f"{recipe.method} {alone[name]}".strip() for name, recipe in named.items()}
    return _texts(
        named,
        {name: {**own, "parent": starts.get(named[name].parent, own["parent"])} for name, own in found.items()},
    )


def _texts(named: Mapping[str, Recipe], found: Mapping[str, Settings]) -> dict[str, str]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, recipe in named.items():
        groups.setdefault((recipe.method, recipe.model, recipe.data), []).append(name)
    return {
        name: ", ".join(f"{key}={shown(value)}" for key, value in own.items() if key not in _COLUMNS and value != "")
        for group in groups.values()
        for name, own in zip(group, differing([found[name] for name in group]), strict=True)
    }
