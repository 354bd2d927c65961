"""Gradients that are missing, infinite or not a number."""

import copy
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from granet.masking import take_dense
from granet.sparsifier import readings, steps_of

Kit = SimpleNamespace
STEPS = 12
METHODS = {
    "granet": granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2),
    "granet-dense": granet.GraNet(sparsity=0.8, prune_end=8, every=2),
    "gmp": granet.GMP(sparsity=0.8, prune_end=8, every=2),
    "rigl": granet.RigL(sparsity=0.7, every=2, end=10),
    "rigl-no-step": granet.RigL(sparsity=0.7, every=2, end=10, step_on_update=False),
    "set": granet.SET(sparsity=0.7, every=2),
}


class Branches(nn.Module):
    """Two branches, of which a batch may use one."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(10, 20)
        self.spare = nn.Linear(10, 20)
        self.head = nn.Linear(20, 5)

    def forward(self, x: Tensor, both: bool = False) -> Tensor:
        hidden = self.used(x) + self.spare(x) if both else self.used(x)
        return self.head(hidden.relu())


def train_branches(run: tuple[nn.Module, torch.optim.Optimizer], steps: int, both: bool = False) -> None:
    for step in range(steps):
        torch.manual_seed(step)
        run[0](torch.randn(8, 10), both).square().mean().backward()
        run[1].step()
        run[1].zero_grad()


@pytest.mark.parametrize("method", ["granet", "granet-dense", "gmp"])
@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_a_weight_without_gradient_is_left_and_the_rest_meets_the_target(method: str) -> None:
    torch.manual_seed(0)
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = granet.sparsify(model, optimizer, METHODS[method], total_steps=STEPS)
    spare = sparsifier.masks["spare.weight"].clone()
    value = model.spare.weight.detach().clone()
    with pytest.warns(UserWarning, match=r"spare\.weight.*no gradient") as caught:
        train_branches((model, optimizer), STEPS)
    assert len([w for w in caught if "no gradient" in str(w.message)]) == 1
    assert torch.equal(sparsifier.masks["spare.weight"], spare)
    assert torch.equal(model.spare.weight, value)
    # 500 weights, 100 to be kept; "spare" holds on to what it has, and each of the others keeps at least one
    rest = sum(sparsifier.layers[name].active for name in ("used.weight", "head.weight"))
    assert rest == max(100 - int(spare.sum()), 2)
    for record in sparsifier.history:
        wanted = 500 - round(500 * record.target)
        assert sum(record.active) == max(wanted, int(spare.sum()) + 2)


def test_weights_without_gradient_are_told_of_together() -> None:
    """A part that is frozen in mid-training may have a hundred layers; one more later is told of again."""
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, granet.SET(sparsity=0.5, every=1), total_steps=STEPS)
    for frozen, told in ((3, ["granet: 0.weight and 2 more"]), (3, []), (4, ["granet: 0.weight and 3 more"])):
        model[:frozen].requires_grad_(False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert [str(w.message).split(": no gradient")[0] for w in caught] == told
        assert all("exclude=('0.weight',)" in str(w.message) for w in caught)


@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_a_weight_takes_part_again_once_it_has_a_gradient() -> None:
    torch.manual_seed(0)
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, METHODS["granet-dense"], total_steps=STEPS)
    with pytest.warns(UserWarning, match="no gradient"):
        train_branches((model, optimizer), 5)
    assert sparsifier.layers["spare.weight"].sparsity == 0
    train_branches((model, optimizer), STEPS - 5, both=True)
    assert 0 < sparsifier.layers["spare.weight"].sparsity < 1
    assert sum(layer.active for layer in sparsifier.layers.values()) == 100


def test_no_gradient_anywhere_is_no_update(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, METHODS["granet"], total_steps=STEPS)
    before = kit.snapshot(model, optimizer, sparsifier)
    with pytest.warns(UserWarning, match="no gradient"):
        for _ in range(4):
            optimizer.step()
    kit.check_equal(before, kit.snapshot(model, optimizer, sparsifier))
    assert (sparsifier.step, sparsifier.history) == (4, [])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("method", METHODS)
def test_an_update_on_a_gradient_that_is_not_finite_is_skipped(kit: Kit, method: str, value: float) -> None:
    """The gradient of one active weight is spoilt at step 4; lr 0 keeps the damage out of the weights."""
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sparsifier = granet.sparsify(model, optimizer, METHODS[method], total_steps=STEPS)
    for step, batch in enumerate(kit.batches(STEPS), start=1):
        kit.backward(model, batch)
        if step in (4, 6):
            layer = sparsifier.layers["4.weight"]
            spoilt = tuple(layer.mask.nonzero()[0])
            saved = layer.weight.detach().clone()
            layer.weight.grad[spoilt] = value
            before = {name: mask.clone() for name, mask in sparsifier.masks.items()}
            if step == 4:
                with pytest.warns(UserWarning, match="step 4: a gradient is not finite"):
                    optimizer.step()
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # said once
                    optimizer.step()
            assert all(torch.equal(before[name], mask) for name, mask in sparsifier.masks.items())
            record = sparsifier.history[-1]
            assert (record.step, record.skipped, record.pruned, record.regrown) == (step, True, 0, 0)
            assert sum(record.active) == sum(int(mask.sum()) for mask in before.values())
            with torch.no_grad():
                layer.weight.copy_(saved)  # 0 * inf
        else:
            optimizer.step()
        optimizer.zero_grad()
        kit.check_zeros(sparsifier)
    assert sparsifier.step == STEPS
    assert [record.skipped for record in sparsifier.history] == [record.step in (4, 6) for record in sparsifier.history]
    kit.check_count(sparsifier)  # a later update makes up for what was skipped


@pytest.mark.parametrize("method", ["granet", "rigl", "rigl-no-step"])
@pytest.mark.parametrize("kept_before", [False, True])
def test_growth_is_not_done_on_a_gradient_spoilt_where_weights_are_off(
    kit: Kit, method: str, kept_before: bool
) -> None:
    """The optimizer never sees it, but growth would: the update is skipped and training stays sound."""
    model = kit.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sparsifier = granet.sparsify(model, optimizer, METHODS[method], total_steps=STEPS)
    for step, batch in enumerate(kit.batches(STEPS), start=1):
        kit.backward(model, batch)
        if step in (3, 4):  # no update, update
            layer = sparsifier.layers["4.weight"]
            layer.weight.grad[~layer.mask] = torch.nan
        if kept_before:
            sparsifier.mask_gradients()
        if step == 4:
            with pytest.warns(UserWarning, match="not finite"):
                optimizer.step()
        else:
            optimizer.step()
        optimizer.zero_grad()
        kit.check_zeros(sparsifier)
    assert [record.step for record in sparsifier.history if record.skipped] == [4]
    assert all(value.isfinite().all() for value in kit.snapshot(model, optimizer, sparsifier).values())


@pytest.mark.parametrize("method", [METHODS["rigl"], granet.SNFS(sparsity=0.7, every=2)], ids=["rigl", "snfs"])
def test_a_gradient_that_comes_again_after_a_step_not_taken_is_masked_again(kit: Kit, method: granet.Method) -> None:
    """In the same tensor: what grows begins at zero all the same."""
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
    for batch in kit.batches(4):
        before = {name: mask.clone() for name, mask in sparsifier.masks.items()}
        for _ in range(2):
            optimizer.zero_grad(set_to_none=False)
            kit.backward(model, batch)
            sparsifier.mask_gradients()
        optimizer.zero_grad(set_to_none=False)
        kit.backward(model, batch)
        optimizer.step()
        assert not any(layer.weight[~before[name]].any() for name, layer in sparsifier.layers.items())


@pytest.mark.parametrize("fused", [False, True])
def test_inactive_weights_stay_zero_under_gradients_of_nan(kit: Kit, fused: bool) -> None:
    """0 * nan is nan: masking by multiplication of floats would let it in."""
    model = kit.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)
    sparsifier = granet.sparsify(model, optimizer, METHODS["granet"], total_steps=STEPS)
    kit.train(model, optimizer, 3)
    with pytest.warns(UserWarning, match="not finite"):
        for _ in range(4):
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, torch.nan)
            optimizer.step()
            kit.check_zeros(sparsifier)
            for layer in sparsifier.layers.values():
                for key in ("exp_avg", "exp_avg_sq"):
                    assert torch.count_nonzero(optimizer.state[layer.weight][key][~layer.mask]) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_gradient_that_is_huge_but_finite_is_no_reason_to_skip(kit: Kit, dtype: torch.dtype) -> None:
    """Its sum overflows, no element does."""
    model = kit.net(dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sparsifier = granet.sparsify(model, optimizer, METHODS["granet"], total_steps=STEPS)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, torch.finfo(dtype).max)
        optimizer.step()
    assert [record.skipped for record in sparsifier.history] == [False]


@pytest.mark.filterwarnings("ignore:granet. step .. a gradient is not finite")
def test_a_gradient_that_comes_after_the_others_were_taken_is_looked_at_too(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where copying the gradients tells whether they are finite, as on a GPU, that is about those alone."""
    monkeypatch.setattr(readings, "take_dense", lambda *given: (take_dense(*given)[0], torch.tensor(True)))
    model = kit.net()
    method = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=4, every=1)
    sparsifier = granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), method, total_steps=5)
    (batch,) = kit.batches(1)
    kit.backward(model, batch)
    late, model[4].weight.grad = model[4].weight.grad, None
    sparsifier.mask_gradients()
    model[4].weight.grad = torch.full_like(late, torch.nan)
    steps_of(sparsifier).taken()
    assert [record.skipped for record in sparsifier.history] == [True]


def test_what_was_kept_before_a_state_is_loaded_is_forgotten() -> None:
    layer = nn.Linear(5, 4, bias=False)
    method = granet.RigL(sparsity=0.5, every=1, regrow=0.2)
    sparsifier = granet.sparsify(layer, torch.optim.SGD(layer.parameters(), lr=0.1), method, total_steps=8)
    mask = sparsifier.masks["weight"]
    *_, earlier, later = (tuple(spot) for spot in (~mask).nonzero())
    for spot in (earlier, later):
        layer.weight.grad = torch.zeros(4, 5)
        layer.weight.grad[spot] = 1.0
        if spot is earlier:
            sparsifier.mask_gradients()
            sparsifier.load_state_dict(sparsifier.state_dict())
    steps_of(sparsifier).taken()
    assert sparsifier.history[-1].regrown == 1
    assert mask[later] and not mask[earlier]


@pytest.mark.parametrize("clear", [None, "to none", "to zero"])
@pytest.mark.parametrize("method", [METHODS["granet"], METHODS["rigl"], granet.SNFS(sparsity=0.7, every=2)], ids=repr)
def test_masking_between_two_backward_passes_changes_nothing(
    kit: Kit, method: granet.Method, clear: str | None
) -> None:
    """What is added to a masked gradient is added to the dense one; what replaces it replaces it."""
    runs = []
    for early in (False, True):
        model = kit.net().eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
        for first, second in zip(kit.batches(STEPS), kit.batches(STEPS, seed=2), strict=True):
            optimizer.zero_grad()
            kit.backward(model, first)
            if early:
                sparsifier.mask_gradients()
            if clear is not None:
                optimizer.zero_grad(set_to_none=clear == "to none")
            kit.backward(model, second)
            optimizer.step()
        runs.append((kit.snapshot(model, optimizer, sparsifier), sparsifier.history))
    kit.check_equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]


def test_weights_are_hooked_while_there_are_copies_of_their_gradients(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, METHODS["rigl"], total_steps=STEPS)
    weights = [layer.weight for layer in sparsifier.layers.values()]
    for step, batch in enumerate(kit.batches(6), start=1):
        kit.backward(model, batch)
        sparsifier.mask_gradients()
        assert all(bool(weight._backward_hooks) == (step in sparsifier.updates) for weight in weights)
        optimizer.step()
        assert not any(weight._backward_hooks for weight in weights)
        optimizer.zero_grad()


def test_no_hook_is_armed_for_a_step_that_no_backward_pass_can_come_between(kit: Kit) -> None:
    hooked = []

    class Looks(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            loss = super().step(closure)
            hooked.append([bool(weight._backward_hooks) for weight in weights])
            return loss

    model = kit.net()
    optimizer = Looks(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, METHODS["rigl"], total_steps=STEPS)
    weights = [layer.weight for layer in sparsifier.layers.values()]
    for batch in kit.batches(4):
        kit.backward(model, batch)
        optimizer.step()
    assert len(sparsifier.history) == 2
    assert not any(map(any, hooked))


def test_a_closure_that_adds_to_the_gradients_of_its_first_call_adds_to_the_dense_ones(kit: Kit) -> None:
    """Though they were masked in between."""

    class Twice(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            closure()
            return super().step(closure)

    runs = []
    for by_closure in (True, False):
        model = kit.net().eval()
        optimizer = (Twice if by_closure else torch.optim.SGD)(model.parameters(), lr=0.1)
        sparsifier = granet.sparsify(model, optimizer, METHODS["rigl"], total_steps=STEPS)
        for first, second in zip(kit.batches(STEPS), kit.batches(STEPS, seed=2), strict=True):
            both = iter((first, second))
            optimizer.zero_grad()
            if by_closure:
                optimizer.step(lambda model=model, both=both: kit.backward(model, next(both)))
            else:
                for batch in both:
                    kit.backward(model, batch)
                optimizer.step()
        runs.append((kit.snapshot(model, optimizer, sparsifier), sparsifier.history))
    kit.check_equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert sum(record.regrown for record in sparsifier.history) > 0


@pytest.mark.parametrize("replayed", [False, True])
def test_gradients_that_come_without_a_backward_pass_let_weights_grow(kit: Kit, replayed: bool) -> None:
    """Set by hand, or written by a CUDA graph to where they were: no hook is called."""
    runs = []
    for by_autograd in (True, False):
        model = kit.net().eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        method = granet.GraNet(sparsity=0.8, prune_end=8, every=1)
        sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
        for step, batch in enumerate(kit.batches(STEPS)):
            twin = copy.deepcopy(model)
            kit.backward(twin, batch)
            if by_autograd:
                optimizer.zero_grad()
                kit.backward(model, batch)
            else:
                for one, other in zip(model.parameters(), twin.parameters(), strict=True):
                    one.grad = one.grad.copy_(other.grad) if replayed and step > 0 else other.grad
            optimizer.step()
        runs.append((kit.snapshot(model, optimizer, sparsifier), sparsifier.history))
    kit.check_equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert sum(record.regrown for record in sparsifier.history) > 0


@pytest.mark.parametrize("anew", [False, True])
def test_gradients_set_by_hand_replace_the_kept_ones_if_they_are_dense(anew: bool) -> None:
    """No backward pass tells of them. Masked, as they were, they may have been clipped."""
    layer = nn.Linear(5, 4, bias=False)
    method = granet.RigL(sparsity=0.5, every=1, regrow=0.2)
    sparsifier = granet.sparsify(layer, torch.optim.SGD(layer.parameters(), lr=0.1), method, total_steps=8)
    mask = sparsifier.masks["weight"].clone()
    first, *_, second = (tuple(spot) for spot in (~mask).nonzero())
    layer.weight.grad = torch.zeros(4, 5)
    layer.weight.grad[first] = 1.0
    sparsifier.mask_gradients()
    layer.weight.grad = layer.weight.grad.clone()
    if anew:
        layer.weight.grad[second] = 1.0
    sparsifier.mask_gradients()
    steps_of(sparsifier).taken()
    grown = sparsifier.masks["weight"] & ~mask
    assert grown.sum() == 1
    assert grown[second if anew else first]
