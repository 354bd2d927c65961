"""A run that is saved, and resumed in a fresh process, equals the run that was never interrupted, bit for bit."""

import copy
import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import granet
from bits import Parts, differences
from granet.distributions import kept

STEPS, SAVED = 200, 100
METHODS: dict[str, granet.Method] = {
    "granet": granet.GraNet(sparsity=0.9, initial_sparsity=0.4, prune_end="75%", every=9),
    "granet-dense": granet.GraNet(sparsity=0.9, prune_end="75%", every=9),
    "granet-uniform": granet.GraNet(sparsity=0.7, prune_end="75%", every=9, distribution="uniform"),
    "gmp": granet.GMP(sparsity=0.9, prune_end="75%", every=9),
    "rigl": granet.RigL(sparsity=0.8, every=9, step_on_update=False),
    "rigl-itop": granet.RigLITOP(sparsity=0.8, every=9),
    "set": granet.SET(sparsity=0.8, every=9),
    "static": granet.Static(sparsity=0.8),
    "granet-mean": granet.GraNet(sparsity=0.9, initial_sparsity=0.4, prune_end="75%", every=9, grow_batch_count=9),
    "deep-r": granet.DeepR(sparsity=0.8, l1=1e-3, noise=0.1, log_every=9),
    "dsr": granet.DSR(sparsity=0.8, every=9, regrow=0.3, threshold=0.03),
    "snfs": granet.SNFS(sparsity=0.8, every=9),
    "snfs-fixed": granet.SNFSFixed(sparsity=0.8, every=9),
}
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.02, initial_accumulator_value=0.3),
    "muon": lambda p: torch.optim.Muon(p, lr=0.01),
}
CASES = [(method, optimizer) for method in METHODS for optimizer in ("sgd", "adamw")]
CASES += [("granet", "adagrad"), *([("granet", "muon")] if hasattr(torch.optim, "Muon") else [])]


class Run(Parts):
    def __init__(self, method: str, optimizer: str, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(10, 24, bias=False), nn.ReLU(), nn.Linear(24, 6, bias=False))
        if optimizer != "muon":
            self.model.insert(1, nn.BatchNorm1d(24))
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.sparsifier = granet.sparsify(self.model, self.optimizer, METHODS[method], total_steps=STEPS, seed=seed)

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(12, 10, generator=generator)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), x[:, :6].argmax(1)).backward()
            self.optimizer.step()


def resume(folder: Path) -> None:
    """What the fresh process does: another seed everywhere, so that nothing is right by luck."""
    for method, optimizer in CASES:
        run = Run(method, optimizer, seed=5)
        run.load(torch.load(folder / f"{method}-{optimizer}.pt", weights_only=True))
        run.train(SAVED, STEPS)
        torch.save(run.state(), folder / f"{method}-{optimizer}-resumed.pt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs to the end, saved half way, and the same resumed from there by a process of its own."""
    folder = tmp_path_factory.mktemp("runs")
    for method, optimizer in CASES:
        run = Run(method, optimizer)
        run.train(0, SAVED)
        torch.save(run.state(), folder / f"{method}-{optimizer}.pt")
        run.train(SAVED, STEPS)
        torch.save(run.state(), folder / f"{method}-{optimizer}-whole.pt")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, __file__, str(folder)], env=environment, check=True, timeout=300)
    return folder


@pytest.mark.parametrize(("method", "optimizer"), CASES)
def test_a_resumed_run_equals_an_uninterrupted_one(folder: Path, method: str, optimizer: str) -> None:
    half, whole, resumed = (
        torch.load(folder / f"{method}-{optimizer}{part}.pt", weights_only=True) for part in ("", "-whole", "-resumed")
    )
    assert not differences(whole, resumed)
    assert [state["sparsifier"]["step"] for state in (half, whole)] == [SAVED, STEPS]
    last = {"static": 0, "rigl": 149, "snfs-fixed": 149}.get(method, STEPS - 1)
    assert [record["step"] for record in whole["sparsifier"]["history"]] == list(range(9, last + 1, 9))
    moved = differences(half["sparsifier"]["masks"], whole["sparsifier"]["masks"])
    assert bool(moved) == (method != "static")


@pytest.mark.parametrize("method", METHODS)
def test_saving_changes_nothing(method: str) -> None:
    quiet, saved = Run(method, "sgd"), Run(method, "sgd")
    quiet.train(0, 30)
    for step in range(30):
        saved.train(step, step + 1)
        saved.state()
    assert not differences(quiet.state(), saved.state())


def test_a_state_is_a_copy() -> None:
    run = Run("granet", "sgd")
    run.train(0, 20)
    state = run.sparsifier.state_dict()
    packed = {name: mask.clone() for name, mask in state["masks"].items()}
    updates = len(state["history"])
    run.train(20, 40)
    assert all(torch.equal(mask, packed[name]) for name, mask in state["masks"].items())
    assert (state["step"], len(state["history"])) == (20, updates)


@pytest.mark.parametrize("order", ["model first", "sparsifier first"])
def test_the_order_of_loading_does_not_matter(order: str) -> None:
    run, other = Run("granet", "adamw"), Run("granet", "adamw", seed=5)
    run.train(0, 40)
    state = copy.deepcopy(run.state())
    if order == "sparsifier first":
        other.sparsifier.load_state_dict(state["sparsifier"])
        other.optimizer.load_state_dict(state["optimizer"])
        other.model.load_state_dict(state["model"])
    else:
        other.load(state)
    assert not differences(other.state(), state)
    assert other.sparsifier.target_sparsity == run.sparsifier.target_sparsity
    other.train(40, 80)
    run.train(40, 80)
    assert not differences(run.state(), other.state())


@pytest.mark.parametrize("method", ["granet", "set"])
def test_going_back_in_the_same_process(method: str) -> None:
    run = Run(method, "adamw")
    run.train(0, 40)
    saved = copy.deepcopy(run.state())
    run.train(40, 80)
    after = copy.deepcopy(run.state())
    run.load(saved)
    assert not differences(run.state(), saved)
    run.train(40, 80)
    assert not differences(run.state(), after)


@pytest.mark.parametrize("method", ["granet", "rigl", "set"])
def test_a_model_that_is_loaded_before_it_is_sparsified_is_warned_of(method: str) -> None:
    """The random masks of the start zero what the masks to be loaded would keep."""
    run = Run(method, "sgd")
    run.train(0, 30)
    run.sparsifier.remove()
    with pytest.warns(
        UserWarning, match=r"^granet: 0\.weight and 1 more: sparse already, .* drop other weights; to resume"
    ):
        granet.sparsify(run.model, torch.optim.SGD(run.model.parameters()), METHODS[method], total_steps=STEPS)


@pytest.mark.parametrize("method", ["granet-dense", "gmp"])
def test_a_sparse_model_under_a_method_that_starts_dense_is_warned_of(method: str) -> None:
    run = Run(method, "sgd")
    run.train(0, 30)
    run.sparsifier.remove()
    before = copy.deepcopy(run.model)
    with pytest.warns(UserWarning, match=r"^granet: 0\.weight and 1 more: sparse already, .* keep every weight"):
        granet.sparsify(run.model, torch.optim.SGD(run.model.parameters()), METHODS[method], total_steps=STEPS)
    assert all(torch.equal(a, b) for a, b in zip(run.model.parameters(), before.parameters(), strict=True))


@pytest.mark.filterwarnings("error")
def test_first_masks_that_fit_to_a_loaded_model_are_not_warned_of() -> None:
    method = "static"
    run = Run(method, "sgd")
    run.train(0, 30)
    again = copy.deepcopy(run.model)
    granet.sparsify(again, torch.optim.SGD(again.parameters()), METHODS[method], total_steps=STEPS)
    assert all(torch.equal(a, b) for a, b in zip(run.model.parameters(), again.parameters(), strict=True))
    magnitude = granet.OneShot(sparsity=run.sparsifier.sparsity)
    granet.sparsify(again, torch.optim.SGD(again.parameters()), magnitude, trained=run.model.state_dict())


@pytest.mark.filterwarnings("error")
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
    run = Run("granet", "sgd")
    for name, packed in run.sparsifier.state_dict()["masks"].items():
        layer = run.sparsifier.layers[name]
        assert packed.dtype == torch.uint8
        assert packed.untyped_storage().nbytes() == -(-layer.numel // 8)
        bits = [int(byte) >> place & 1 for byte in packed for place in range(8)][: layer.numel]
        assert bits == layer.mask.flatten().int().tolist()


if __name__ == "__main__":
    resume(Path(sys.argv[1]))


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


@pytest.mark.filterwarnings("error")
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
