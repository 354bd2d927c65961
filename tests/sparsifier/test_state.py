"""What is in a state, and what is said when a model is sparsified that is sparse already."""

import copy
import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import granet
from granet.distributions import kept

STEPS = 200
METHODS: dict[str, granet.Method] = {
    "granet": granet.GraNet(sparsity=0.9, initial_sparsity=0.4, prune_end="75%", every=9),
    "granet-dense": granet.GraNet(sparsity=0.9, prune_end="75%", every=9),
    "gmp": granet.GMP(sparsity=0.9, prune_end="75%", every=9),
    "rigl": granet.RigL(sparsity=0.8, every=9, step_on_update=False),
    "set": granet.SET(sparsity=0.8, every=9),
    "static": granet.Static(sparsity=0.8),
}


def trained(method: str) -> tuple[nn.Module, granet.Sparsifier]:
    """30 steps of a training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 24, bias=False), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 6, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)
    sparsifier = granet.sparsify(model, optimizer, METHODS[method], total_steps=STEPS)
    for _ in range(30):
        x = torch.randn(12, 10)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), x[:, :6].argmax(1)).backward()
        optimizer.step()
    return model, sparsifier


@pytest.mark.parametrize("method", ["granet", "rigl", "set"])
@pytest.mark.filterwarnings("ignore:granet. training ends at step .*, before the last update")
def test_a_model_that_is_loaded_before_it_is_sparsified_is_warned_of(method: str) -> None:
    """The random masks of the start zero what the masks to be loaded would keep."""
    model, sparsifier = trained(method)
    sparsifier.remove()
    with pytest.warns(
        UserWarning, match=r"^granet: 0\.weight and 1 more: sparse already, .* drop other weights; to resume"
    ):
        granet.sparsify(model, torch.optim.SGD(model.parameters()), METHODS[method], total_steps=STEPS)


@pytest.mark.parametrize("method", ["granet-dense", "gmp"])
@pytest.mark.filterwarnings("ignore:granet. training ends at step .*, before the last update")
def test_a_sparse_model_under_a_method_that_starts_dense_is_warned_of(method: str) -> None:
    model, sparsifier = trained(method)
    sparsifier.remove()
    before = copy.deepcopy(model)
    with pytest.warns(UserWarning, match=r"^granet: 0\.weight and 1 more: sparse already, .* keep every weight"):
        granet.sparsify(model, torch.optim.SGD(model.parameters()), METHODS[method], total_steps=STEPS)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))


def test_first_masks_that_fit_to_a_loaded_model_are_not_warned_of() -> None:
    model, sparsifier = trained("static")
    again = copy.deepcopy(model)
    granet.sparsify(again, torch.optim.SGD(again.parameters()), METHODS["static"], total_steps=STEPS)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    magnitude = granet.OneShot(sparsity=sparsifier.sparsity)
    granet.sparsify(again, torch.optim.SGD(again.parameters()), magnitude, trained=model.state_dict())


def test_a_layer_that_begins_at_zero_is_not_warned_of() -> None:
    model = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20))
    nn.init.zeros_(model[1].weight)
    with torch.no_grad():
        model[0].weight[0] = 0  # one in twenty
    granet.sparsify(model, torch.optim.SGD(model.parameters()), granet.SET(sparsity=0.8, every=1), total_steps=9)


def test_layers_are_told_apart_by_name_whatever_their_order() -> None:
    """A model whose layers are made in another order has the same names."""

    def start(names: str) -> granet.Sparsifier:
        torch.manual_seed(0)
        model = nn.ModuleDict({name: nn.Linear(6, 9 if name == "a" else 4) for name in names})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sparsifier = granet.sparsify(model, optimizer, granet.SET(sparsity=0.5, every=1), total_steps=4)
        for weight in model.parameters():
            weight.grad = torch.ones_like(weight)
        optimizer.step()
        return sparsifier

    there, here = start("ab"), start("ba")
    here.load_state_dict(there.state_dict())
    assert list(there.active) != list(here.active)
    assert there.active == here.active
    assert here.history[-1].active == tuple(here.active.values()) == there.history[-1].active[::-1]


def test_a_mask_takes_one_bit_a_weight() -> None:
    _, sparsifier = trained("granet")
    for name, packed in sparsifier.state_dict()["masks"].items():
        layer = sparsifier.layers[name]
        assert packed.dtype == torch.uint8
        assert packed.untyped_storage().nbytes() == -(-layer.numel // 8)
        bits = [int(byte) >> place & 1 for byte in packed for place in range(8)][: layer.numel]
        assert bits == layer.mask.flatten().int().tolist()


def test_numbers_of_numpy_leave_a_plain_state(tmp_path: Path) -> None:
    """As `labels.size // batch_size` gives them; a file of the state is to be read with `weights_only=True`."""
    method = granet.GraNet(
        sparsity=np.float64(0.5), every=np.int64(3), prune_end=np.int32(30), grow_batch_count=np.uint8(2)
    )
    assert repr(method) == repr(granet.GraNet(sparsity=0.5, every=3, prune_end=30, grow_batch_count=2))
    model = nn.Linear(10, 6)
    options = {"total_steps": np.int64(40), "steps_per_epoch": np.int64(10), "seed": np.int64(3), "floor": np.int64(2)}
    sparsifier = granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), method, **options)
    torch.save(sparsifier.state_dict(), tmp_path / "state.pt")
    sparsifier.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert sparsifier.updates == range(3, 40, 3)


NUMBERS: dict[str, Callable[[float], Any]] = {"float64": np.float64, "float32": np.float32, "tensor": torch.tensor}


@dataclass(frozen=True, kw_only=True)
class Interpolated(granet.GMP):
    """A schedule of one's own, made with another library."""

    number: str

    def target(self, clock: granet.Clock) -> Any:
        return NUMBERS[self.number](np.interp(clock.progress, [0, 0.5, 1], [0, self.sparsity, self.sparsity]))


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_targets_of_numpy_or_torch_leave_a_plain_state(tmp_path: Path, number: str) -> None:
    model = nn.Linear(4096, 4352, bias=False)  # more weights than float32 can count one by one
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsity = float(np.float32(0.7))
    method = Interpolated(sparsity=sparsity, every=1, prune_end=4, number=number)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=4)
    for _ in range(2):
        model.weight.grad = torch.zeros_like(model.weight)
        optimizer.step()
    torch.save(sparsifier.state_dict(), tmp_path / "state.pt")
    sparsifier.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert [record.target for record in sparsifier.history] == [sparsity / 2, sparsity]
    assert sparsifier.layers["weight"].active == kept(model.weight.numel(), sparsity)
    json.dumps([dataclasses.asdict(record) for record in sparsifier.history])


def test_zeros_inside_a_filter_are_not_warned_of() -> None:
    """They read filters that are gone; pruning further filters loses nothing that was to be resumed."""
    torch.manual_seed(0)
    linear, relu = torch.nn.Linear, torch.nn.ReLU()
    model = torch.nn.Sequential(linear(20, 20), relu, linear(20, 20), relu, linear(20, 5))
    with torch.no_grad():
        model[0].weight[::2] = 0
        model[2].weight[:, ::2] = 0
    filters = functools.partial(granet.sparsify, model, exclude=("4.weight",))
    filters(torch.optim.SGD(model.parameters()), granet.PruneOnce(rate=0.5, pattern="filter")).remove()
    with pytest.warns(UserWarning, match=r"^granet: 0\.weight and 1 more: sparse already"):
        filters(torch.optim.SGD(model.parameters()), granet.Static(sparsity=0.5, pattern="filter"))
