"""What `benchmarks/sparse_inference.py` measures is what it says: masks of these counts, densities of those runs."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import granet
from benchmarks.sparse_inference import LOGS, NETWORKS, PUBLISHED, RUNS, SPARSITIES, draw, sparse
from granet.weights import find_layers


def test_every_network_and_sparsity_has_a_run_of_granet_that_began_dense() -> None:
    assert PUBLISHED.keys() | RUNS.keys() == {(name, sparsity) for name in NETWORKS for sparsity in SPARSITIES}
    assert not PUBLISHED.keys() & RUNS.keys()
    models = {name: granet.create_model(name, num_classes=10, width=0.125) for name in NETWORKS}
    layers = {name: [layer.name for layer in find_layers(model)] for name, model in models.items()}
    published = {entry.name: entry.run for entry in granet.list_pretrained()}
    for (name, sparsity), run in (RUNS | {place: published[net] for place, net in PUBLISHED.items()}).items():
        log = json.loads((LOGS / f"{run}.json").read_text(encoding="utf-8"))
        recipe, fields = log["recipe"], log["recipe"]["method_fields"]
        assert recipe["method"] == "granet" and recipe["model"].startswith(name)
        assert (fields["sparsity"], fields["initial_sparsity"]) == (sparsity, 0.0)
        assert [layer["name"] for layer in log["layers"]] == layers[name]


def test_masks_have_exactly_the_densities_and_outputs_keep_their_size() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 90), nn.Linear(90, 10))
    size = float(model[0].weight.detach().square().sum())
    draw(model, {"0.weight": 0.25, "1.weight": 1.0})
    assert int(model[0].weight.count_nonzero()) == 2250 and int(model[1].weight.count_nonzero()) == 900
    assert float(model[0].weight.detach().square().sum()) == pytest.approx(size, rel=0.1)


@pytest.mark.slow
def test_uniform_masks_leave_the_first_convolution_dense() -> None:
    model = sparse("vgg19", "uniform", 0.98)
    first, *others = (layer.weight for layer in find_layers(model))
    assert int(first.count_nonzero()) == first.numel() and not model.training
    assert all(int(weight.count_nonzero()) == round(0.02 * weight.numel()) for weight in others)
