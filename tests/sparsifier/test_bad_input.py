"""Wrong values raise ValueError that names the field, the value and what is allowed, and leave everything as it was."""

import copy
import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import granet

Kit = SimpleNamespace
GOOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)


def says(*parts: str) -> str:
    """A pattern for a message with all of these in this order."""
    return ".*".join(re.escape(part) for part in parts)


@pytest.mark.parametrize("name", ["granet", "gmp", "rigl", "rigl-itop", "set", "static"])
@pytest.mark.parametrize("value", [1.0, 1, -0.1, 1.5, float("nan"), float("inf"), "0.9", None])
def test_sparsity_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=says(f"sparsity={value!r}", "[0, 1)")):
        granet.create_method(name, sparsity=value)


@pytest.mark.parametrize("value", [1.0, -0.1, "half"])
@pytest.mark.parametrize("field", ["initial_sparsity", "last_density"])
def test_shares_out_of_range(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=says(f"{field}={value!r}", "[0, 1)")):
        granet.create_method("granet", sparsity=0.9, **{field: value})


@pytest.mark.parametrize("value", [1.01, -0.1, "half", float("nan")])
@pytest.mark.parametrize(
    ("name", "field"),
    [("granet", "regrow"), ("granet", "regrow_end"), ("set", "regrow"), ("snfs", "momentum")],
)
def test_shares_that_may_be_all(name: str, field: str, value: Any) -> None:
    assert getattr(granet.create_method(name, sparsity=0.9, **{field: 1.0}), field) == 1
    with pytest.raises(ValueError, match=says(f"{field}={value!r}", "[0, 1]")):
        granet.create_method(name, sparsity=0.9, **{field: value})


@pytest.mark.parametrize(
    ("name", "field"),
    [("granet", "regrow"), ("str", "s_init"), ("str", "s_decay"), ("vd", "kl_scale"), ("deep-r", "l1")],
)
@pytest.mark.parametrize("value", [True, False])
def test_a_bool_is_no_number(name: str, field: str, value: bool) -> None:
    with pytest.raises(ValueError, match=says(f"{field}={value}", "number")):
        granet.create_method(name, sparsity=0.9, **{field: value})


@pytest.mark.parametrize("value", ["no", "false", None, 0, 1])
@pytest.mark.parametrize(("name", "field"), [("gmp", "dense_first"), ("rigl", "step_on_update")])
def test_what_is_neither_true_nor_false(name: str, field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=says(f"{field}={value!r}", "True or False")):
        granet.create_method(name, sparsity=0.9, **{field: value})


def test_initial_above_final() -> None:
    with pytest.raises(ValueError, match=says("initial_sparsity=0.9", "sparsity=0.5")):
        granet.GraNet(sparsity=0.5, initial_sparsity=0.9)


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match=says("method='grannet'", "granet, ", "did you mean 'granet'")):
        granet.create_method("grannet", sparsity=0.9)
    with pytest.raises(ValueError, match=says("regrown=0.5", "regrow")):
        granet.create_method("granet", sparsity=0.9, regrown=0.5)
    with pytest.raises(ValueError, match=says("distribution='erdos'", "uniform, er, erk")):
        granet.Static(sparsity=0.9, distribution="erdos")
    with pytest.raises(ValueError, match=says("distribution='layer'", "global, uniform")):
        granet.GMP(sparsity=0.9, distribution="layer")
    with pytest.raises(ValueError, match=says("sparsity", "[0, 1)")):
        granet.create_method("granet")


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"every": 0}, ("every=0", "at least one")),
        ({"every": "0%"}, ("every='0%'", "at least one")),
        ({"every": -1}, ("every=-1", "negative")),
        ({"every": 2.5}, ("every=2.5", "optimizer steps", "'30ep'", "'50%'")),
        ({"every": True}, ("every=True", "optimizer steps")),
        ({"every": "12x"}, ("every='12x'", "'30ep'")),
        ({"prune_end": "120%"}, ("prune_end='120%'", "'100%'")),
        ({"start": "soon"}, ("start='soon'", "'30ep'")),
    ],
)
def test_times_that_are_wrong_in_themselves(fields: dict[str, Any], parts: tuple[str, ...]) -> None:
    """No method takes them, however long training may be."""
    (name,) = fields
    having = [info for info in granet.list_methods() if name in {field.name for field in dataclasses.fields(info.cls)}]
    assert len(having) > 3
    for info in having:
        with pytest.raises(ValueError, match=says(*parts)):
            granet.create_method(info.name, sparsity=0.9, **fields)


WRONG_TIMES: dict[str, tuple[granet.Method, dict[str, Any], tuple[str, ...]]] = {
    "end before start": (granet.GMP(sparsity=0.9, start=50, prune_end=20, every=5), {},
                         ("prune_end=20", "after start=50")),
    "end at start": (granet.GMP(sparsity=0.9, start=50, prune_end="50%", every=5), {}, ("prune_end='50%'", "start=50")),
    "end after the end": (granet.GMP(sparsity=0.9, prune_end=101, every=5), {}, ("prune_end=101", "total_steps=100")),
    "rigl's end after the end": (granet.RigL(sparsity=0.9, end=101), {}, ("end=101", "total_steps=100")),
    "every too long": (granet.GraNet(sparsity=0.9, every=1000), {}, ("every=1000", "total_steps=100")),
    "epochs of unknown length": (granet.GMP(sparsity=0.9, prune_end="3ep", every=5), {},
                                 ("prune_end='3ep'", "steps_per_epoch")),
    "no total": (granet.GMP(sparsity=0.9, every=5), {"total_steps": None}, ("total_steps=None", "prune_end")),
    "no total for a time in steps": (granet.GMP(sparsity=0.9, prune_end=50, every=5), {"total_steps": None},
                                     ("total_steps=None",)),
    "total of 0": (GOOD, {"total_steps": 0}, ("total_steps=0", "positive whole number")),
    "total of 2.5": (GOOD, {"total_steps": 2.5}, ("total_steps=2.5", "positive whole number")),
    "epochs of 0 steps": (GOOD, {"steps_per_epoch": 0}, ("steps_per_epoch=0", "positive whole number")),
}  # fmt: skip

WRONG_ARGUMENTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "method's name": ({"method": "granet"}, ("method='granet'", "granet.GraNet(")),
    "method's class": ({"method": granet.GraNet}, ("method=", "must be a method")),
    "no method": ({"method": None}, ("method=None", "must be a method")),
    "seed of True": ({"seed": True}, ("seed=True", "whole number")),
    "floor of True": ({"floor": True}, ("floor=True", "whole number")),
    "seed": ({"seed": 0.5}, ("seed=0.5", "whole number")),
    "include nothing": ({"include": ("conv*",)}, ("include='conv*'", "0.weight, 4.weight, 6.weight")),
    "one of two globs": ({"include": ("0.*", "conv*")}, ("include='conv*'", "0.weight")),
    "include none": ({"include": ()}, ("include=()", "0.weight")),
    "exclude nothing": ({"exclude": "head.*"}, ("exclude='head.*'", "0.weight, 4.weight, 6.weight")),
    "exclude all": ({"exclude": "*"}, ("exclude=", "'*'", "0.weight")),
    "exclude each": ({"exclude": ("0.*", "4.*", "6.*")}, ("exclude=", "0.*")),
    "a glob of another type": ({"include": (3,)}, ("include=3", "glob")),
    "globs of another type": ({"include": None}, ("include=None", "globs")),
    "include a bias": ({"include": ("0.bias",)}, ("include='0.bias'", "matches no sparsifiable weight")),
    "also nothing": ({"also": "head.*"}, ("also='head.*'", "matches no parameter", "0.weight, 4.weight, 6.weight")),
    "also a bias": ({"also": "0.bias"}, ("also='0.bias'", "two or more dimensions")),
    "floor": ({"floor": -1}, ("floor=-1", "0 or more")),
    "floor of 1.5": ({"floor": 1.5}, ("floor=1.5", "whole number")),
    "floor above the budget": ({"floor": 200}, ("sparsity=0.8", "floor=200")),
    "no optimizer": ({"optimizer": None}, ("optimizer=None", "torch.optim.Optimizer")),
    "an optimizer's class": ({"optimizer": torch.optim.SGD}, ("optimizer=", "torch.optim.Optimizer")),
    "no share for the layers": (
        {"method": granet.GMP(sparsity=0.98, prune_end=8, every=2, distribution="uniform", dense_first=True)},
        ("dense_first=True",),
    ),
}  # fmt: skip


def refused(kit: Kit, parts: tuple[str, ...], **arguments: Any) -> None:
    """sparsify() raises, and neither model nor optimizer shows that it was called."""
    model = kit.net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    kit.train(model, optimizer, 2)
    model_before, optimizer_before = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    arguments = {"optimizer": optimizer, "method": GOOD, "total_steps": 100} | arguments
    with pytest.raises(ValueError, match=says(*parts)):
        granet.sparsify(model, **arguments)
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    for name, value in model.state_dict().items():
        assert torch.equal(value, model_before[name])
    for index, state in optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, optimizer_before["state"][index][key]) for key, value in state.items())
    assert optimizer.state_dict()["param_groups"] == optimizer_before["param_groups"]


@pytest.mark.parametrize("case", WRONG_TIMES)
def test_times(kit: Kit, case: str) -> None:
    method, arguments, parts = WRONG_TIMES[case]
    refused(kit, parts, method=method, **arguments)


@pytest.mark.parametrize("case", WRONG_ARGUMENTS)
def test_arguments(kit: Kit, case: str) -> None:
    arguments, parts = WRONG_ARGUMENTS[case]
    refused(kit, parts, **arguments)


def test_a_model_with_nothing_to_sparsify() -> None:
    model = nn.Sequential(nn.Embedding(4, 4), nn.LayerNorm(4))
    with pytest.raises(ValueError, match=says("model", "no sparsifiable weight in Sequential", "also=")):
        granet.sparsify(model, torch.optim.SGD(model.parameters()), GOOD, total_steps=100)


def test_a_model_that_is_frozen(kit: Kit) -> None:
    """The message must not list the weights as there to be sparsified."""
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters())
    model.requires_grad_(False)
    with pytest.raises(ValueError, match=says("requires_grad")):
        granet.sparsify(model, optimizer, GOOD, total_steps=100)


def test_a_lazy_model() -> None:
    model = nn.LazyLinear(4)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(ValueError, match=says("'weight'", "forward pass")):
        granet.sparsify(model, optimizer, GOOD, total_steps=100)


@pytest.mark.parametrize("missing", ["all", "one"])
def test_an_optimizer_of_other_parameters(kit: Kit, missing: str) -> None:
    model, other = kit.net(), kit.net()
    held = list(other.parameters()) if missing == "all" else [p for p in model.parameters() if p is not model[4].weight]
    optimizer = torch.optim.SGD(held)
    weights = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=says("optimizer", "0.weight" if missing == "all" else "4.weight")):
        granet.sparsify(model, optimizer, GOOD, total_steps=100)
    assert not optimizer._optimizer_step_pre_hooks
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


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
    with pytest.raises(ValueError, match=says("optimizer=Wrapper", "calls no hooks", "give that one")):
        granet.sparsify(model, Wrapper(optimizer), GOOD, total_steps=100)
    sparsifier = granet.sparsify(model, optimizer, GOOD, total_steps=100)
    kit.train(model, Wrapper(optimizer), 2)
    assert sparsifier.step == 2


@pytest.mark.parametrize("through", ["the same", "another"])
def test_a_weight_is_sparsified_once(kit: Kit, through: str) -> None:
    """Another optimizer would train what the first one holds at zero."""
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters())
    other = torch.optim.SGD(model.parameters()) if through == "another" else optimizer
    first = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5), exclude="0.*")
    with pytest.raises(ValueError, match=says("model", "'4.weight'", "remove()")):
        granet.sparsify(model, other, granet.Static(sparsity=0.5))
    granet.sparsify(model, other, granet.Static(sparsity=0.5), include="0.*")  # another weight is another matter
    first.remove()
    second = granet.sparsify(model, other, granet.Static(sparsity=0.5), include="4.*")
    first.remove()  # once more, which frees nothing of the second
    with pytest.raises(ValueError, match=says("model", "'4.weight'", "remove()")):
        granet.sparsify(model, optimizer, granet.Static(sparsity=0.5), include="4.*")
    copied = copy.deepcopy((model, other, second))
    with pytest.raises(ValueError, match=says("model", "'4.weight'", "remove()")):
        granet.sparsify(copied[0], torch.optim.SGD(copied[0].parameters()), GOOD, total_steps=100)


def test_a_sparsifier_that_nobody_has_any_more_holds_nothing(kit: Kit) -> None:
    """As one that a function made for itself, before the garbage collector has come by."""
    model = kit.net()
    for _ in range(2):
        optimizer = torch.optim.SGD(model.parameters())
        granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
        kit.train(model, optimizer, 2)
        del optimizer


@pytest.mark.parametrize("model", [None, "resnet20", nn.Parameter(torch.ones(2, 2))])
def test_what_is_no_model(model: Any) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2, 2))])
    with pytest.raises(ValueError, match=says("model=", "torch.nn.Module")):
        granet.sparsify(model, optimizer, GOOD, total_steps=100)


@pytest.mark.parametrize("method", [GOOD, granet.Static(sparsity=0.5), granet.MagnitudeInit(sparsity=0.5)])
def test_a_model_without_weights_yet(method: granet.Method) -> None:
    model = nn.Linear(4, 4, device="meta")
    with pytest.raises(ValueError, match=says("'weight'", "meta device")):
        granet.sparsify(model, torch.optim.SGD(model.parameters()), method, total_steps=100)


def test_names_that_are_no_text() -> None:
    with pytest.raises(ValueError, match=says("method=", "must be one of")):
        granet.create_method([])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=says("distribution=", "must be one of")):
        granet.RigL(sparsity=0.9, distribution=[])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("member", "given", "message"),
    [
        ("updates", None, "updates: gave NoneType; must be a range of optimizer steps"),
        ("updates", {1, 2}, "updates: gave set; must be a range of optimizer steps"),
        ("target", None, "target: gave None; must be a sparsity"),
        ("target", "half", "target: gave 'half'; must be a sparsity"),
    ],
)
def test_what_a_method_of_ones_own_forgets_to_return(member: str, given: Any, message: str) -> None:
    own = type("Own", (granet.Static,), {member: lambda self, clock: given})
    model = nn.Linear(4, 4)
    with pytest.raises(ValueError, match=re.escape(message)):
        granet.sparsify(model, torch.optim.SGD(model.parameters()), own(sparsity=0.5), total_steps=100)
    assert model.weight.count_nonzero() == 16
