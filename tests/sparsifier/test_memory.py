"""What methods remember besides masks: saved together with them, and refused where it does not fit."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from granet.net import SparseNet
from refusals import refused

Kit = SimpleNamespace
Run = tuple[nn.Module, torch.optim.Optimizer, granet.Sparsifier]
STEPS = 16
METHODS = {
    "deep-r": granet.DeepR(sparsity=0.7, l1=0.02, noise=0.05, log_every=3),
    "dsr": granet.DSR(sparsity=0.7, every=3, regrow=0.2, threshold=0.02),
    "snfs": granet.SNFS(sparsity=0.7, every=3),
    "snfs-fixed": granet.SNFSFixed(sparsity=0.7, every=3),
    "rigl-mean": granet.RigL(sparsity=0.7, every=3, grow_batch_count=3),
    "itop": granet.RigLITOP(sparsity=0.7, every=3),
}
KEPT = {
    "deep-r": {"sign"},
    "dsr": {"threshold"},
    "snfs": {"momentum"},
    "snfs-fixed": {"momentum"},
    "rigl-mean": {"gradient_mean"},
    "itop": {"ever_active"},
}


def start(kit: Kit, name: str, seed: int = 0) -> Run:
    model = kit.net(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, granet.sparsify(model, optimizer, METHODS[name], total_steps=STEPS, seed=seed)


def memory(sparsifier: granet.Sparsifier) -> dict[str, Tensor]:
    state = sparsifier.state_dict()["memory"]
    return {f"{place}/{name}": tensor for place, kept in state.items() for name, tensor in kept.items()}


def everything(kit: Kit, run: Run) -> dict[str, Tensor]:
    return kit.snapshot(*run) | {f"memory {name}": tensor for name, tensor in memory(run[2]).items()}


@pytest.mark.parametrize("name", METHODS)
def test_a_state_holds_what_the_method_keeps(kit: Kit, name: str) -> None:
    run = start(kit, name)
    kit.train(*run[:2], 7)
    assert {key.rpartition("/")[2] for key in memory(run[2])} == KEPT[name]
    assert all(tensor.device.type == "cpu" for tensor in memory(run[2]).values())


@pytest.mark.parametrize("name", METHODS)
def test_removed_it_remembers_and_moves_nothing_more(kit: Kit, name: str) -> None:
    run = start(kit, name)
    kit.train(*run[:2], 5)
    run[2].remove()
    before = memory(run[2]) | {f"mask {key}": mask.clone() for key, mask in run[2].masks.items()}
    with pytest.warns(UserWarning, match="not zero though they should be"):
        kit.train(*run[:2], 5)
        after = memory(run[2])
    kit.check_equal(before, after | {f"mask {key}": mask for key, mask in run[2].masks.items()})


@dataclass(frozen=True, kw_only=True)
class Keeps(granet.RigL):
    """Puts something into a memory, when training begins or at an update."""

    keep: Callable[[SparseNet], None]
    later: bool = False
    every: int = 2

    def begin(self, net: SparseNet) -> None:
        super().begin(net)
        if not self.later:
            self.keep(net)

    def update(self, net: SparseNet, clock: granet.Clock) -> None:
        super().update(net, clock)
        self.keep(net)


def a_number(net: SparseNet) -> None:
    net.memory["count"] = 3  # type: ignore[assignment]


def a_list(net: SparseNet) -> None:
    net.layers[1].memory["seen"] = [0.5]  # type: ignore[assignment]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("keep", "says"),
    [
        (a_number, "net.memory['count']=3"),
        (a_list, "4.weight: layer.memory['seen']=[0.5]"),
    ],
)
def test_what_is_no_tensor_is_refused_before_it_is_to_be_saved(
    kit: Kit, keep: Callable[[SparseNet], None], says: str, later: bool
) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused(says):
        granet.sparsify(model, optimizer, Keeps(sparsity=0.5, keep=keep, later=later), total_steps=STEPS)
        assert later
        kit.train(model, optimizer, 2)


def another_tensor(net: SparseNet) -> None:
    net.memory["count"] = torch.zeros(())


def a_longer_one(net: SparseNet) -> None:
    net.memory["count"] = torch.zeros(len(net.memory))


def another_type(net: SparseNet) -> None:
    layer = net.layers[0]
    layer.memory["seen"] = torch.zeros(2, dtype=torch.int32 if "seen" in layer.memory else torch.int64)


def none_any_more(net: SparseNet) -> None:
    if net.memory.pop("count", None) is None:
        net.memory["count"] = torch.zeros(())


@pytest.mark.parametrize(
    ("keep", "later", "entry"),
    [
        (another_tensor, True, "net.memory['count']"),
        (a_longer_one, False, "net.memory['count']"),
        (another_type, False, "0.weight: layer.memory['seen']"),
        (none_any_more, False, "net.memory['count']"),
    ],
)
def test_what_could_not_be_loaded_is_refused_at_the_first_update(
    kit: Kit, keep: Callable[[SparseNet], None], later: bool, entry: str
) -> None:
    """A state has to fit the memory of a training that has only begun."""
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, Keeps(sparsity=0.5, keep=keep, later=later), total_steps=STEPS)
    with refused(entry, ..., "begin()"):
        kit.train(model, optimizer, 2)


def test_a_tensor_may_be_replaced_by_one_of_its_kind(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, Keeps(sparsity=0.5, keep=another_tensor), total_steps=STEPS)
    kit.train(model, optimizer, 4)
    sparsifier.load_state_dict(sparsifier.state_dict())


def without(state: dict[str, Any]) -> None:
    del state["memory"]


def misplaced(state: dict[str, Any]) -> None:
    state["memory"]["0.weight"]["other"] = state["memory"]["0.weight"].pop(next(iter(state["memory"]["0.weight"])))


def misshapen(state: dict[str, Any]) -> None:
    kept = state["memory"]["0.weight"]
    for name in kept:
        kept[name] = torch.zeros(3)


def no_tensor(state: dict[str, Any]) -> None:
    kept = state["memory"]["0.weight"]
    for name in kept:
        kept[name] = "text"


def of_another_type(state: dict[str, Any]) -> None:
    kept = state["memory"]["0.weight"]
    for name in kept:
        kept[name] = kept[name].double()


def no_mapping(state: dict[str, Any]) -> None:
    state["memory"] = list(state["memory"])


@pytest.mark.parametrize("spoil", [without, misplaced, misshapen, of_another_type, no_tensor, no_mapping])
@pytest.mark.parametrize("name", ["deep-r", "snfs", "itop"])
def test_a_memory_that_does_not_fit_is_refused_whole(kit: Kit, name: str, spoil: Any) -> None:
    run, other = start(kit, name), start(kit, name, seed=1)
    kit.train(*other[:2], 7)
    state = copy.deepcopy(other[2].state_dict())
    spoil(state)
    before = everything(kit, run)
    with pytest.raises(ValueError, match=r"state\['memory'\]"):
        run[2].load_state_dict(state)
    kit.check_equal(before, everything(kit, run))
    assert run[2].step == 0


def test_methods_without_memory_keep_none(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.RigL(sparsity=0.5, every=3), total_steps=STEPS)
    kit.train(model, optimizer, 5)
    state = sparsifier.state_dict()
    assert state["memory"] == {}
    del state["memory"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsifier.load_state_dict(state)  # as saved before there was any memory
