"""The settings in which recipes differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from granet.training.recipe import Recipe

_OTHER = {"method", "model", "data", "observe", "keep"}
"""Settings that are shown elsewhere, or that no result depends on."""

Settings = Mapping[str, object]


def settings(recipe: Recipe) -> Settings:
    """What a result may depend on, besides the method, the model and the data."""
    fields = recipe.to_dict()
    method_fields: dict[str, object] = fields.pop("method_fields")
    return {name: value for name, value in fields.items() if name not in _OTHER} | method_fields


def differing(several: Sequence[Settings]) -> list[dict[str, object]]:
    """For each, the settings that are not the same in all.

    >>> differing([{"lr": 0.1, "seed": 0}, {"lr": 0.2, "seed": 0, "every": 100}])
    [{'lr': 0.1}, {'lr': 0.2, 'every': 100}]
    """
    shared = {name for name, value in several[0].items() if all(name in one and one[name] == value for one in several)}
    return [{name: value for name, value in one.items() if name not in shared} for one in several]


def shown(value: object) -> str:
    """A setting in a table or a legend: text without quotes, a list in brackets.

    >>> shown(("25%", "75%"))
    '[25%, 75%]'
    """
    return f"[{', '.join(map(shown, value))}]" if isinstance(value, list | tuple) else str(value)
