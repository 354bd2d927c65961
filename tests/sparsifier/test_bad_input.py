"""What `sparsify` refuses, and leaves as it was."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import granet
from quick import slow_but_for
from refusals import refused

Kit = SimpleNamespace
GOOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)


WRONG: list[tuple[dict[str, Any], str, Any, str]] = [
    ({"method": granet.GMP(sparsity=0.9, prune_end="3ep", every=5)}, "prune_end", "3ep", "steps_per_epoch"),
    ({"method": granet.GMP(sparsity=0.9, every=5), "total_steps": None}, "total_steps", None, "prune_end"),
    ({"method": granet.GMP(sparsity=0.9, prune_end=50, every=5), "total_steps": None}, "total_steps", None, ""),
    ({"method": granet.GMP(sparsity=0.98, prune_end=8, every=2, distribution="uniform", dense_first=True)},
     "last_density=0.2, dense_first", True, ""),
    ({"include": ("conv*",)}, "include", "conv*", "0.weight, 4.weight, 6.weight"),
    ({"include": ("0.*", "conv*")}, "include", "conv*", "0.weight"),
    ({"include": ("0.bias",)}, "include", "0.bias", ""),
    ({"include": (3,)}, "include", 3, "glob"),
    ({"include": ()}, "include=(), exclude", (), "0.weight"),
    ({"exclude": "head.*"}, "exclude", "head.*", "0.weight, 4.weight, 6.weight"),
    ({"exclude": "*"}, "include=('*',), exclude", ("*",), "0.weight"),
    ({"exclude": ("0.*", "4.*", "6.*")}, "include=('*',), exclude", ("0.*", "4.*", "6.*"), "0.weight"),
    ({"also": "head.*"}, "also", "head.*", "0.weight, 4.weight, 6.weight"),
    ({"also": "0.bias"}, "also", "0.bias", ""),
    ({"floor": 200}, "sparsity", 0.8, "floor=200"),
    *(({field: value}, field, value, "") for field, values in {
        "method": ("granet", granet.GraNet, None), "optimizer": (None, torch.optim.SGD), "seed": (0.5, True),
        "floor": (-1, 1.5, True), "include": (None,), "total_steps": (0, 2.5), "steps_per_epoch": (0,),
    }.items() for value in values),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "field", "value", "tells"), WRONG)
def test_arguments(kit: Kit, arguments: dict[str, Any], field: str, value: Any, tells: str) -> None:
    model = kit.net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    kit.train(model, optimizer, 2)
    with refused(field, value, tells, unchanged=(model, optimizer)):
        granet.sparsify(model, **{"optimizer": optimizer, "method": GOOD, "total_steps": 100} | arguments)


@pytest.mark.parametrize(
    ("make", "tells"),
    [
        (lambda: nn.Sequential(nn.Embedding(4, 4), nn.LayerNorm(4)), "also="),
        (lambda: nn.Linear(4, 4).requires_grad_(False), "requires_grad"),
        (lambda: nn.LazyLinear(4), "'weight'"),
        (lambda: nn.Linear(4, 4, device="meta"), "'weight'"),
    ],
)
@pytest.mark.parametrize("method", [GOOD, granet.Static(sparsity=0.5), granet.MagnitudeInit(sparsity=0.5)], ids=repr)
def test_models(make: Callable[[], nn.Module], tells: str, method: granet.Method) -> None:
    model = make()
    with refused("model", ..., tells):
        granet.sparsify(model, torch.optim.SGD(model.parameters()), method, total_steps=100)


@pytest.mark.parametrize("model", [None, "resnet20", nn.Parameter(torch.ones(2, 2))], ids=["None", "text", "weight"])
def test_what_is_no_model(model: Any) -> None:
    with refused("model", model):
        granet.sparsify(model, torch.optim.SGD([nn.Parameter(torch.ones(2, 2))]), GOOD, total_steps=100)


def test_an_optimizer_of_other_parameters(kit: Kit) -> None:
    model, other = kit.net(), kit.net()
    for held, first in (
        (list(other.parameters()), "'0.weight'"),
        ([p for p in model.parameters() if p is not model[4].weight], "'4.weight'"),
    ):
        optimizer = torch.optim.SGD(held)
        with refused("optimizer", ..., first, unchanged=(model, optimizer)):
            granet.sparsify(model, optimizer, GOOD, total_steps=100)


@pytest.mark.parametrize("borrowed", [[], ["_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"]])
def test_a_wrapper_whose_step_calls_no_hooks(kit: Kit, borrowed: list[str]) -> None:
    """Libraries wrap optimizers in a subclass that skips Optimizer.__init__, some with the places for hooks."""

    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.inner = inner
            self.param_groups, self.state, self.defaults = inner.param_groups, inner.state, inner.defaults
            for name in borrowed:
                setattr(self, name, {})

        def step(self, closure: Any = None) -> Any:
            return self.inner.step(closure)

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.inner.zero_grad(set_to_none)

    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters())
    wrapper = Wrapper(optimizer)
    with refused("optimizer", wrapper, unchanged=(model, optimizer)):
        granet.sparsify(model, wrapper, GOOD, total_steps=100)
    sparsifier = granet.sparsify(model, optimizer, GOOD, total_steps=100)
    kit.train(model, Wrapper(optimizer), 2)
    assert sparsifier.step == 2


@pytest.mark.parametrize("through", slow_but_for(["another"], ["the same", "another"]))
def test_a_weight_is_sparsified_once(kit: Kit, through: str) -> None:
    """Another optimizer would train what the first one holds at zero."""
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters())
    other = torch.optim.SGD(model.parameters()) if through == "another" else optimizer
    first = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5), exclude="0.*")
    with refused("model", ..., "'4.weight'", "remove()"):
        granet.sparsify(model, other, granet.Static(sparsity=0.5))
    granet.sparsify(model, other, granet.Static(sparsity=0.5), include="0.*")  # another weight is another matter
    first.remove()
    second = granet.sparsify(model, other, granet.Static(sparsity=0.5), include="4.*")
    first.remove()  # once more, which frees nothing of the second
    with refused("model", ..., "'4.weight'", "remove()"):
        granet.sparsify(model, optimizer, granet.Static(sparsity=0.5), include="4.*")
    copied = copy.deepcopy((model, other, second))
    with refused("model", ..., "'4.weight'", "remove()"):
        granet.sparsify(copied[0], torch.optim.SGD(copied[0].parameters()), GOOD, total_steps=100)


def test_a_sparsifier_that_nobody_has_any_more_holds_nothing(kit: Kit) -> None:
    """As one that a function made for itself, before the garbage collector has come by."""
    model = kit.net()
    for _ in range(2):
        optimizer = torch.optim.SGD(model.parameters())
        granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
        kit.train(model, optimizer, 2)
        del optimizer


@pytest.mark.parametrize(
    ("member", "given", "told"),
    [("updates", None, "NoneType"), ("updates", {1, 2}, "set"), ("target", None, None), ("target", "half", "'half'")],
)
def test_what_a_method_of_ones_own_forgets_to_return(member: str, given: Any, told: Any) -> None:
    own = type("Own", (granet.Static,), {member: lambda self, clock: given})
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    with refused(member, ..., f"gave {told};", unchanged=(model, optimizer)):
        granet.sparsify(model, optimizer, own(sparsity=0.5), total_steps=100)
