"""Patterns of methods that prune once, or in rounds: a unit's score is the mean size of those of its weights."""

import pytest
import torch
from torch import Tensor, nn

import granet
from granet.patterns import parse_pattern

pytestmark = pytest.mark.filterwarnings("ignore:.*is an output of the model")


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(4, 8, 3, bias=False), nn.Flatten(), nn.Linear(8, 16, bias=False))


def first_run() -> dict[str, Tensor]:
    """Other weights than the net has now."""
    return {name: value.flip(0) for name, value in small_net().state_dict().items()}


def sparsified(name: str, pattern: str) -> tuple[nn.Sequential, granet.Sparsifier]:
    """After all steps."""
    model, loss = small_net(), nn.functional.cross_entropy
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = torch.randn(12, 4, 3, 3), torch.randint(16, (12,))
    method = granet.create_method(name, sparsity=0.5, pattern=pattern)
    data = {"batches": [(images, labels)], "loss": loss, "trained": first_run()}
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=20, **data)
    for _ in range(20):
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()
    return model, sparsifier


@pytest.mark.parametrize("pattern", ["filter", "4x1", "2:4", "fan-in"])
@pytest.mark.parametrize("name", ["gs", "lrr", "lth", "magnitude-init", "one-shot", "snip"])
def test_masks_keep_to_the_pattern(name: str, pattern: str) -> None:
    model, sparsifier = sparsified(name, pattern)
    parsed = parse_pattern(pattern)
    assert parsed is not None
    assert all(parsed.holds(layer, layer.mask) for layer in sparsifier.layers.values())
    assert sparsifier.sparsity == pytest.approx(0.5, abs=0.04)
    assert all(not model.get_parameter(name)[~mask].any() for name, mask in sparsifier.masks.items())


def units(values: Tensor, pattern: str) -> Tensor:
    """[units, weights of each]"""
    if pattern == "filter":
        return values.flatten(1)
    return values.reshape(len(values) // 4, 4, -1).transpose(1, 2).reshape(-1, 4)


@pytest.mark.parametrize("pattern", ["filter", "4x1"])
@pytest.mark.parametrize(("name", "ranked"), [("lth", first_run), ("magnitude-init", lambda: small_net().state_dict())])
def test_the_units_with_the_largest_mean_score_stay(name: str, ranked, pattern: str) -> None:
    _, sparsifier = sparsified(name, pattern)
    stay = torch.cat([units(mask, pattern).all(1) for mask in sparsifier.masks.values()])
    score = torch.cat([units(weight.abs(), pattern).mean(1) for weight in ranked().values()])
    assert 0 < stay.sum() < len(stay)
    assert score[stay].min() > score[~stay].max()
