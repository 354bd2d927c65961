"""Observers by name: what is refused, in one line; and what is written about them."""

from pathlib import Path

import pytest
import torch
from torch import nn

from granet.observers import OBSERVERS, Observers, without_masks


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rank", r"observe='rank': must be one of overlap, ever_active"),
        ("overlap", r"observe='overlap': watches masks; give it the sparsifier"),
        ("dormant", r"observe='dormant': looks at activations; give it a batch"),
    ],
)
def test_what_is_missing_is_named(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Observers([name], nn.Linear(2, 2))


def test_a_model_without_activations() -> None:
    with pytest.raises(ValueError, match=r"observe='effective_rank': finds no activation .* in Linear"):
        Observers(["effective_rank"], nn.Linear(2, 2), images=torch.ones(1, 2))


def test_a_state_of_other_observers() -> None:
    with pytest.raises(ValueError, match=r"state: has nothing of 'gradient_norm'"):
        Observers(["gradient_norm"], nn.Linear(2, 2)).load({})


def test_those_that_need_no_masks() -> None:
    assert without_masks(tuple(OBSERVERS)) == ("dormant", "gradient_norm", "effective_rank")


def test_every_observer_and_its_cost_are_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "observers.md").read_text(encoding="utf-8")
    for name, observer in OBSERVERS.items():
        assert f"| `{name}` |" in text and observer.cost in text, name
