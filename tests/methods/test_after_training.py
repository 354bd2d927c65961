"""Lottery tickets, learning-rate rewinding, one-shot pruning and SIS: masks and starts from a finished first run."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import granet
from quick import slow_but_for
from refusals import refused

SPARSE = ("0.weight", "4.weight", "6.weight")


def net(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(54, 8), nn.ReLU(), nn.Linear(8, 4)
    ).to(dtype)


def batch(i: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(i)
    x = torch.randn(64, 2, 5, 5, generator=generator)
    return x.to(dtype), x.flatten(1)[:, :4].argmax(1)


def trained(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The state of a finished, dense first run from seed 0."""
    model = net(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for i in range(30):
        x, y = batch(i)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.to(dtype).state_dict()


def begin(model: nn.Module, method: granet.Method, **given: Any) -> granet.Sparsifier:
    return granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), method, **given)


def largest(state: dict[str, Tensor], sparsity: float) -> dict[str, np.ndarray]:
    sizes = [state[name].numel() for name in SPARSE]
    joined = np.concatenate([state[name].double().abs().numpy().ravel() for name in SPARSE])
    mask = np.zeros(len(joined), bool)
    mask[np.argsort(-joined, kind="stable")[: len(joined) - round(len(joined) * sparsity)]] = True
    parts = np.split(mask, np.cumsum(sizes)[:-1])
    return {name: part.reshape(state[name].shape) for name, part in zip(SPARSE, parts, strict=True)}


@pytest.mark.parametrize("method", [granet.LTH, granet.LRR, granet.OneShot])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", [0, 7])
def test_the_mask_is_the_trained_one_and_the_start_is_as_defined(
    method: type[granet.Method], dtype: torch.dtype, seed: int
) -> None:
    """A ticket starts from the model's own values (of any seed), the others from the trained ones."""
    state = trained(dtype)
    model = net(seed, dtype)
    sparsifier = begin(model, method(sparsity=0.8), trained=state, floor=0)
    expected = largest(state, 0.8)
    source = net(seed, dtype).state_dict() if method is granet.LTH else state
    for name, value in model.state_dict().items():
        mask = torch.from_numpy(expected[name]) if name in expected else torch.ones((), dtype=torch.bool)
        assert torch.equal(value, source[name] * mask), name
        if name in expected:
            assert torch.equal(sparsifier.masks[name], mask)
    assert len(sparsifier.method.updates(granet.Clock(0))) == 0


def test_a_sparse_first_run_hands_on_its_own_mask() -> None:
    first = net()
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1, momentum=0.9)
    run = granet.sparsify(first, optimizer, granet.GraNet(sparsity=0.8, prune_end=20, every=2), total_steps=30)
    for i in range(30):
        x, y = batch(i)
        optimizer.zero_grad()
        functional.cross_entropy(first(x), y).backward()
        optimizer.step()
    assert all((layer.weight[layer.mask] != 0).all() for layer in run.layers.values())
    for method in (granet.LTH(sparsity=0.8), granet.LRR(sparsity=0.8)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ticket = begin(net(), method, trained=first.state_dict())
        assert all(torch.equal(ticket.masks[name], mask) for name, mask in run.masks.items())


def test_asking_for_more_weights_than_a_sparse_run_has_is_said() -> None:
    state = trained()
    for name in SPARSE:
        state[name][:] = 0
        state[name].view(-1)[:3] = 1
    with pytest.warns(UserWarning, match=r"keeps \d+ weights, but only 9 are not zero"):
        begin(net(), granet.LTH(sparsity=0.5), trained=state)


def test_the_first_run_is_read_and_never_written() -> None:
    state = trained()
    copies = {name: value.clone() for name, value in state.items()}
    model = net(1)
    begin(model, granet.LRR(sparsity=0.8), trained=state)
    storages = [p.data_ptr() for p in model.parameters()]
    assert not set(storages) & {value.data_ptr() for value in state.values()}
    assert all(torch.equal(value, copies[name]) for name, value in state.items())


def test_a_model_may_be_its_own_first_run() -> None:
    model = net()
    model.load_state_dict(trained())
    begin(model, granet.OneShot(sparsity=0.8), trained=model.state_dict(), floor=0)
    for name, mask in largest(trained(), 0.8).items():
        assert torch.equal(model.state_dict()[name], trained()[name] * torch.from_numpy(mask))


def test_a_compiled_model_takes_a_plain_state_and_the_other_way_round() -> None:
    plain, compiled = net(1), torch.compile(net(2), backend="eager")
    begin(compiled, granet.LRR(sparsity=0.8), trained=trained())
    begin(plain, granet.LRR(sparsity=0.8), trained={f"_orig_mod.{name}": value for name, value in trained().items()})
    values = compiled.state_dict()
    assert all(torch.equal(value, values[f"_orig_mod.{name}"]) for name, value in plain.state_dict().items())


# SIS.


def outputs(state: dict[str, Tensor]) -> Tensor:
    model = net(dtype=torch.float64)
    model.load_state_dict(state)
    logits: Tensor = model.eval()(batch(50, torch.float64)[0]).detach()
    return logits


def sis(**fields: Any) -> tuple[nn.Sequential, granet.Sparsifier]:
    model = net(3, torch.float64)
    given = {"batches": [batch(50, torch.float64), batch(51, torch.float64)], "trained": trained(torch.float64)}
    return model, begin(model, granet.SIS(batch_count=2, iterations=60, **fields), **given)


def test_sis_keeps_the_outputs_the_better_the_smaller_the_tolerance() -> None:
    state = trained(torch.float64)
    original = outputs(state)
    errors, shares = [], []
    for tolerance in (0.02, 0.1, 0.4):
        model, sparsifier = sis(tolerance=tolerance)
        errors.append(float((outputs(model.state_dict()) - original).norm() / original.norm()))
        shares.append(sparsifier.sparsity)
        assert sparsifier.target_sparsity == sparsifier.sparsity
        for name, value in model.state_dict().items():
            if name not in SPARSE:
                assert torch.equal(value, state[name])
            else:
                assert torch.equal(sparsifier.masks[name], value != 0)
    assert errors == sorted(errors)
    assert errors[0] < 0.1
    assert shares == sorted(shares)
    assert shares[0] > 0
    assert shares[2] > 0.3


def strayed(name: str, weight: Tensor) -> float:
    """How far a layer's z leaves what its ReLU allows, relative to weights of zero; the worse of the two batches."""
    first, last = {"0.weight": (0, 2), "4.weight": (4, 5), "6.weight": (6, 7)}[name]  # with its batch norm
    model = net(dtype=torch.float64)
    model.load_state_dict(trained(torch.float64))
    model.eval()
    ratios = []
    for i in (50, 51):
        inputs = model[:first](batch(i, torch.float64)[0])
        z, new, none = (
            torch.func.functional_call(model[first:last], {name: w}, (inputs,))
            for w in (model.get_parameter(name), weight, torch.zeros_like(weight))
        )
        free = (z <= 0) & (name != "6.weight")  # switched off, so it may sink further
        gaps = [torch.where(free, value.relu(), value - z).norm() for value in (new, none)]
        ratios.append((gaps[0] / gaps[1]).item())
    return max(ratios)


class Halves(nn.Module):
    """Each of two layers with one weight sees another half of the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 2), nn.Linear(4, 2)
        self.right.weight = self.left.weight

    def forward(self, x: Tensor) -> Tensor:
        half = torch.arange(4) < 2
        return torch.cat([self.left(x * half), self.right(x * ~half)], 1)


def test_sis_keeps_the_outputs_of_every_layer_that_has_a_tied_weight() -> None:
    torch.manual_seed(0)
    model, x = Halves(), torch.randn(20, 4)
    original = model(x).detach()
    begin(model, granet.SIS(tolerance=0.05, batch_count=1), batches=[(x, None)], trained=model.state_dict())
    assert (model(x) - original).norm() < 0.05 * original.norm()


@pytest.mark.parametrize("tolerance", [0.1, 0.3])
def test_sis_starts_from_weights_that_use_the_tolerance_up_in_every_layer(tolerance: float) -> None:
    model, _ = sis(tolerance=tolerance)
    for name in SPARSE:
        assert strayed(name, model.get_parameter(name).detach()) == pytest.approx(tolerance, rel=0.05), name


@pytest.mark.slow
def test_sis_finds_the_tolerance_for_a_sparsity() -> None:
    _, sparsifier = sis(sparsity=0.7)
    total = sum(layer.numel for layer in sparsifier.layers.values())
    assert sum(layer.active for layer in sparsifier.layers.values()) == total - round(0.7 * total)
    assert all((layer.weight[layer.mask] != 0).all() for layer in sparsifier.layers.values())
    assert sparsifier.target_sparsity == 0.7


def test_sis_computes_half_precision_in_float32() -> None:
    wide, half = (net(3, dtype) for dtype in (torch.float32, torch.bfloat16))
    state = {name: value.bfloat16() if value.is_floating_point() else value for name, value in trained().items()}
    method = granet.SIS(tolerance=0.2, batch_count=1, iterations=20)
    given = {"batches": [batch(50, torch.bfloat16)], "trained": state}
    masks = begin(half, method, **given).masks
    given = {"batches": [(batch(50, torch.bfloat16)[0].float(), None)], "trained": state}
    assert all(torch.equal(mask, masks[name]) for name, mask in begin(wide, method, **given).masks.items())
    assert torch.equal(half[4].weight, wide[4].weight.bfloat16())


@pytest.mark.slow
@pytest.mark.parametrize("sparsity", [0.5, 0.7, 0.9])
def test_sis_reaches_a_sparsity_of_a_tiny_net(sparsity: float) -> None:
    """Where one weight more or less is a jump."""
    for seed in range(3):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
        given = {"batches": [(torch.randn(16, 6), None) for _ in range(4)], "trained": model.state_dict()}
        assert begin(model, granet.SIS(sparsity=sparsity), **given).sparsity == pytest.approx(sparsity)


def test_sis_searches_for_a_solution_a_little_less_sparse_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the smallest weights make up little. Here the tolerance is the share of zeros itself."""
    tried: list[float] = []

    def zeroed(weight: Tensor, constraints: object, tolerance: float, *_: object) -> Tensor:
        tried.append(tolerance)
        return weight * (torch.arange(weight.numel()).view_as(weight) >= tolerance * weight.numel())

    monkeypatch.setattr("granet.methods.sis.sis.least_weights", zeroed)
    model = nn.Linear(20, 50, bias=False)
    given = {"batches": [(torch.eye(20), None)], "trained": model.state_dict()}
    for sparsity in (0.3, 0.6, 0.9):
        sparsifier = begin(model, granet.SIS(sparsity=sparsity, batch_count=1), **given)
        assert sparsity - 0.01 <= tried[-1] <= sparsity == pytest.approx(sparsifier.sparsity)
        sparsifier.remove()


@pytest.mark.parametrize("where", ["batches", "trained"])
@pytest.mark.parametrize("fields", [{"tolerance": 0.3}, {"sparsity": 0.5}, {"sparsity": 0.5, "pattern": "filter"}])
@pytest.mark.filterwarnings("ignore:granet. pattern='filter'. a dropped row")
def test_sis_refuses_outputs_that_are_not_finite(fields: dict[str, Any], where: str) -> None:
    model, state, (images, labels) = net(3), trained(), batch(50)
    if where == "batches":
        images = images * float("nan")
    else:
        state["1.running_mean"] = state["1.running_mean"] * float("nan")
    with refused("batches"):
        begin(model, granet.SIS(batch_count=1, iterations=5, **fields), batches=[(images, labels)], trained=state)
    assert all(torch.equal(value, net(3).state_dict()[name]) for name, value in model.state_dict().items())


def test_sis_says_what_it_reached() -> None:
    state = trained()
    for name in SPARSE:
        state[name] *= torch.from_numpy(largest(trained(), 0.95)[name])
    model, given = net(), {"batches": [batch(50)], "loss": None}
    with refused("sparsity", 0.3, "the nearest of 12 gave 0.9", unchanged=(model,)):
        begin(model, granet.SIS(sparsity=0.3, batch_count=1, iterations=5), trained=state, **given)


@pytest.mark.parametrize(
    ("pattern", "too_far", "near"),
    slow_but_for([("weight", 0.5, 0.44)], [("weight", 0.5, 0.44), ("filter", 0.3, 0.7)]),
)
def test_sis_makes_up_a_small_jump_and_no_large_one(pattern: str, too_far: float, near: float) -> None:
    """40 % of the weights are zero and the others vanish together. Among whole filters any jump up is a small one."""
    model = nn.Linear(10, 10, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)[:4] = 0
    given = {"batches": [(torch.eye(10), None)], "trained": model.state_dict()}
    with refused("sparsity", too_far, "the nearest of 12 gave 0.4"):
        begin(model, granet.SIS(sparsity=too_far, batch_count=1, pattern=pattern), **given)
    assert begin(model, granet.SIS(sparsity=near, batch_count=1, pattern=pattern), **given).sparsity == pytest.approx(
        near
    )


# Bad input.


def without(name: str) -> dict[str, Tensor]:
    return {key: value for key, value in trained().items() if key != name}


SIS = granet.SIS(sparsity=0.8, iterations=20)
METHODS = [granet.LTH(sparsity=0.8), granet.LRR(sparsity=0.8), granet.OneShot(sparsity=0.8), SIS]
NAMES = ["lth", "lrr", "one-shot", "sis"]
WRONG: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "a path": (lambda: "run/model.safetensors", ("trained=str",)),
    "nothing": (dict, ("trained", ..., "'0.weight'", "is empty")),
    "a whole checkpoint": (lambda: {"model": trained(), "epoch": 3}, ("trained", ..., "'0.weight'", "'model'")),
    "a layer missing": (lambda: without("4.weight"), ("trained", ..., "no '4.weight'")),
    "a buffer missing": (lambda: without("1.running_var"), ("trained", ..., "no '1.running_var'")),
    "one too many": (lambda: trained() | {"9.weight": torch.ones(1)}, ("trained", ..., "'9.weight'")),
    "another shape": (lambda: trained() | {"4.weight": torch.ones(8, 5)}, ("trained", ..., "'4.weight'", (8, 5))),
    "nan": (lambda: trained() | {"4.weight": torch.full((8, 54), torch.nan)}, ("trained", ..., "'4.weight'")),
}


@pytest.mark.slow
def test_only_a_ticket_needs_a_run_besides_the_model() -> None:
    """Its weights are those to begin with; for the others the model as it stands is the finished run."""
    with refused("trained", None):
        begin(net(1), granet.LTH(sparsity=0.8))
    batches = [batch(i) for i in range(4)]
    for method in METHODS[1:]:
        model, other, broken = net(1), net(1), net(1)
        own = begin(model, method, batches=batches)
        given = begin(other, method, batches=batches, trained=net(1).state_dict())
        assert all(torch.equal(mask, given.masks[name]) for name, mask in own.masks.items())
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())
        nn.init.constant_(broken[4].weight, torch.nan)
        with refused("model", ..., "'s score of '4.weight'"):
            begin(broken, method, batches=batches)


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize(("method", "name"), list(zip(METHODS, NAMES, strict=True)), ids=NAMES)
def test_a_first_run_that_does_not_fit_is_refused_and_nothing_has_changed(
    method: granet.Method, name: str, case: str
) -> None:
    make, (subject, *tells) = WRONG[case]
    model = net(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused(subject, *(tells or [...]), name, unchanged=(model, optimizer)):
        granet.sparsify(model, optimizer, method, trained=make(), batches=[batch(0)] * 4)


@pytest.mark.parametrize("method", slow_but_for(METHODS[:-1], METHODS), ids=NAMES)
def test_a_buffer_that_no_state_has_stays_as_it_is(method: granet.Method) -> None:
    model = net(1)
    model.register_buffer("steps", torch.tensor([5.0]), persistent=False)
    begin(model, method, trained=trained(), batches=[batch(i) for i in range(4)])
    assert model.get_buffer("steps").tolist() == [5]


def test_sis_needs_batches() -> None:
    with refused("batches", None, "4"):
        begin(net(), granet.SIS(sparsity=0.8), trained=trained())


def test_sis_names_a_weight_that_is_in_no_linear_map() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 4)
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x @ self.table.weight)
            return out

    model = Odd()
    with refused("include", ..., "exclude=('table.weight'"):
        begin(model, granet.SIS(tolerance=0.1, batch_count=1), also="table.weight", trained=model.state_dict(),
              batches=[(torch.ones(2, 4), None)])  # fmt: skip
