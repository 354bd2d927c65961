"""Observers by name: what is refused, in one line; and what is written about them."""

from pathlib import Path

import pytest
import torch
from torch import nn

from granet.observers import OBSERVERS, Observers, Watched, without_masks
from granet.observers.gradient_norm import GradientNorm  # noqa: F401 (named in a test)
from refusals import refused


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rank", ("observe", "rank")),
        ("overlap", ("observe", "overlap")),
        ("dormant", ("observe", "dormant")),
        ("nowhere:Mine", ("observe", "nowhere:Mine", "'nowhere'")),
        ("torch.nn:Linear", ("observe", "torch.nn:Linear")),
        ("granet.observers:Observer", ("observe", "granet.observers:Observer", "epoch()")),
    ],
)
def test_what_is_missing_is_named(name: str, says: tuple) -> None:
    with refused(*says):
        Observers([name], nn.Linear(2, 2))


def test_a_model_without_activations() -> None:
    with refused("observe", "effective_rank"):
        Observers(["effective_rank"], nn.Linear(2, 2), images=torch.ones(1, 2))


def test_a_name_is_used_once() -> None:
    own = "granet.observers.gradient_norm:GradientNorm"
    observers = Observers([own, own, "gradient_norm"], nn.Linear(2, 2))
    assert list(observers.state()) == ["GradientNorm", "gradient_norm"]
    with pytest.raises(ValueError, match="must not have the name of another one, 'GradientNorm'"):
        Observers([own, f"{__name__}:GradientNorm"], nn.Linear(2, 2))


class Outputs(nn.Module):
    """Two inputs, the second by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 4)

    def forward(self, one: torch.Tensor, *, other: torch.Tensor) -> torch.Tensor:
        return self.layer(one + other).relu()


def test_a_model_with_several_inputs() -> None:
    model = Outputs()
    batch = {"one": torch.ones(3, 2), "other": torch.ones(3, 2)}
    observers = Observers(["dormant"], model, images=batch)
    silent = (model(**batch) == 0).all(0).double().mean().item()
    assert observers.epoch()["dormant.silent"] == silent
    outputs = Watched(model, images=batch).run()
    assert torch.equal(outputs, model(**batch)) and not outputs.requires_grad and model.training


def test_a_state_of_other_observers() -> None:
    with refused("state", ..., "'gradient_norm'"):
        Observers(["gradient_norm"], nn.Linear(2, 2)).load({})


def test_those_that_need_no_masks() -> None:
    assert without_masks(tuple(OBSERVERS)) == ("dormant", "gradient_norm", "effective_rank")


def test_every_observer_and_its_cost_are_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "observers.md").read_text(encoding="utf-8")
    for name, observer in OBSERVERS.items():
        assert f"| `{name}` |" in text and observer.cost in text, name
