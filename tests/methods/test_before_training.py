"""SNIP, GraSP, SynFlow and magnitude at initialisation, each against its definition written out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import granet
from refusals import refused

CLASSES = 4


def net(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(54, 8),
        nn.ReLU(),
        nn.Linear(8, CLASSES),
    ).to(dtype)


def batches(count: int = 3, dtype: torch.dtype = torch.float32) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        x, y = torch.randn(16, 2, 5, 5, generator=generator), torch.randint(0, CLASSES, (16,), generator=generator)
        yield x.to(dtype), y


def sparsified(model: nn.Module, method: granet.Method, **given: Any) -> granet.Sparsifier:
    given = {"batches": batches(), "loss": functional.cross_entropy} | given
    return granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), method, **given)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if p.ndim > 1}


def top(scores: dict[str, np.ndarray], sparsity: float) -> dict[str, np.ndarray]:
    """The largest signed scores of all together by a stable sort, so that the earlier of equal ones wins."""
    joined = np.concatenate([score.ravel() for score in scores.values()])
    mask = np.zeros(len(joined), bool)
    mask[np.argsort(-joined, kind="stable")[: len(joined) - round(len(joined) * sparsity)]] = True
    parts = np.split(mask, np.cumsum([score.size for score in scores.values()])[:-1])
    return {name: part.reshape(scores[name].shape) for name, part in zip(scores, parts, strict=True)}


def check(sparsifier: granet.Sparsifier, expected: dict[str, np.ndarray]) -> None:
    assert expected.keys() == sparsifier.masks.keys()
    for name, mask in sparsifier.masks.items():
        assert np.array_equal(mask.numpy(), expected[name]), name
        assert torch.count_nonzero(sparsifier.layers[name].weight[~mask]) == 0


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("count", [1, 3])
def test_snip_keeps_the_largest_products_of_weight_and_gradient(sparsity: float, count: int) -> None:
    model = net()
    total = {name: np.zeros(w.shape) for name, w in weights(model).items()}
    for x, y in batches(count):  # the batches are summed with their signs
        model.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        for name, weight in weights(model).items():
            total[name] += weight.grad.double().numpy()
    scores = {name: np.abs(weight.detach().double().numpy() * total[name]) for name, weight in weights(model).items()}
    check(sparsified(net(), granet.SNIP(sparsity=sparsity, batch_count=count), floor=0), top(scores, sparsity))


def flat_hessian(model: nn.Module, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """g and H of all sparsified weights, column by column from differences of the gradient."""
    names = list(weights(model))

    def gradient() -> np.ndarray:
        model.zero_grad()
        for x, y in batches(2, torch.float64):
            functional.cross_entropy(model(x) / temperature, y).backward()
        return np.concatenate([model.get_parameter(name).grad.numpy().ravel() for name in names])

    columns, size = [], 1e-5
    for name in names:
        flat = model.get_parameter(name).data.view(-1)
        for i in range(len(flat)):
            value = flat[i].item()
            flat[i] = value + size
            above = gradient()
            flat[i] = value - size
            columns.append((above - gradient()) / (2 * size))
            flat[i] = value
    return gradient(), np.stack(columns, 1)


@pytest.mark.parametrize("temperature", [1.0, 200.0])
def test_grasp_removes_the_largest_scores_of_minus_weight_times_hessian_times_gradient(temperature: float) -> None:
    def small() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(2, 3, 4), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, CLASSES)
        ).double()

    model = small()
    gradient, hessian = flat_hessian(model, temperature)
    flat = np.concatenate([w.detach().numpy().ravel() for w in weights(model).values()])
    score = -flat * (hessian @ gradient)
    method = granet.GraSP(sparsity=0.6, batch_count=2, temperature=temperature)
    sparsifier = sparsified(small(), method, batches=batches(2, torch.float64))
    kept = np.concatenate([mask.numpy().ravel() for mask in sparsifier.masks.values()])
    assert kept.sum() == len(flat) - round(0.6 * len(flat))
    assert (score > 0).any() and (score < 0).any()  # the sign matters
    assert score[kept].max() <= score[~kept].min() + 1e-6 * np.abs(score).max()


def test_grasp_removes_weights_whose_removal_makes_the_gradient_grow() -> None:
    """The quantity behind the score: g^T g after a small step along -w of the removed, and of the kept ones."""
    model = net(torch.float64)
    sparsifier = sparsified(net(torch.float64), granet.GraSP(sparsity=0.5), batches=batches(1, torch.float64))
    ((x, y),) = batches(1, torch.float64)

    def flow(shrunk: dict[str, Tensor]) -> float:
        twin = net(torch.float64)
        for name, weight in weights(twin).items():
            weight.data -= 1e-4 * weight.data * shrunk[name]
        grads = torch.autograd.grad(functional.cross_entropy(twin(x) / 200, y), list(weights(twin).values()))
        return float(sum(grad.square().sum() for grad in grads))

    nothing = flow({name: torch.zeros_like(weight) for name, weight in weights(model).items()})
    assert flow({name: ~mask for name, mask in sparsifier.masks.items()}) > nothing
    assert flow(sparsifier.masks) < nothing


def vgg(width: int = 16, convolutions: int = 8, bias: bool = False) -> nn.Sequential:
    """3x3 convolutions with fresh batch norm, max-pools between, one linear layer."""
    torch.manual_seed(3)
    layers: list[nn.Module] = []
    channels = 3
    for i in range(convolutions):
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=bias), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if i % 3 == 2 else []
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10, bias=bias))


IMAGES = [(torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.zeros(4, dtype=torch.int64))]


def flow(model: nn.Module) -> dict[str, Tensor]:
    """w dR/dw, with every parameter and buffer made positive for good."""
    model = model.double().eval()
    for value in model.state_dict().values():
        value.abs_()
    model(torch.ones(1, 3, 8, 8, dtype=torch.float64)).sum().backward()
    return {name: (weight * weight.grad).detach() for name, weight in weights(model).items()}


def test_synflow_in_one_round_keeps_the_largest_flow() -> None:
    scores = {name: score.numpy() for name, score in flow(vgg()).items()}
    sparsifier = sparsified(vgg(), granet.SynFlow(sparsity=0.8, rounds=1), batches=IMAGES, loss=None)
    check(sparsifier, top(scores, 0.8))


def test_synflow_makes_biases_and_batch_norm_positive_too() -> None:
    """As the authors' code does with all that is in the state; a fresh batch norm, without biases, would not tell."""

    def signed() -> nn.Sequential:
        model = vgg(width=8, convolutions=4, bias=True)
        for module in model:
            if isinstance(module, nn.BatchNorm2d):
                for value in (module.weight.data, module.bias.data, module.running_mean):
                    nn.init.normal_(value)
        return model

    scores = {name: score.numpy() for name, score in flow(signed()).items()}
    check(sparsified(signed(), granet.SynFlow(sparsity=0.8, rounds=1), batches=IMAGES), top(scores, 0.8))


def test_synflow_scores_what_each_round_leaves() -> None:
    """Round by round by hand: prune to density 0.1^(k/5), then score the pruned net."""
    model = vgg(width=6, convolutions=3)
    for k in range(1, 6):
        scores = {name: np.where(weights(model)[name].detach() != 0, s.numpy(), -1)
                  for name, s in flow(_copy(model)).items()}  # fmt: skip
        masks = top(scores, 1 - 0.1 ** (k / 5))
        for name, weight in weights(model).items():
            weight.data *= torch.from_numpy(masks[name])
    check(sparsified(vgg(width=6, convolutions=3), granet.SynFlow(sparsity=0.9, rounds=5), batches=IMAGES), masks)


def _copy(model: nn.Module) -> nn.Module:
    twin = vgg(width=6, convolutions=3)
    twin.load_state_dict(model.state_dict())
    return twin


def test_synflow_is_conserved_from_layer_to_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without biases, what flows through the weights of a layer is R, in every layer and every round."""
    seen: list[dict[str, Tensor]] = []
    from granet.methods import synflow

    original = synflow.synaptic_flow
    monkeypatch.setattr(synflow, "synaptic_flow", lambda *given: seen.append(original(*given)) or seen[-1])
    sparsified(vgg(), granet.SynFlow(sparsity=0.95, rounds=4), batches=IMAGES)
    assert len(seen) == 4
    for scores in seen:
        sums = torch.stack([score.sum() for score in scores.values()])
        assert torch.allclose(sums, sums[0], rtol=1e-9)


@pytest.mark.slow
def test_synflow_never_empties_a_layer() -> None:
    """At 99.9 % and by its own virtue: no floor. One round of the same score does empty layers."""
    model = vgg(width=20, convolutions=7)
    total = sum(w.numel() for w in weights(model).values())
    sparsifier = sparsified(model, granet.SynFlow(sparsity=0.999), batches=IMAGES, floor=0)
    active = [layer.active for layer in sparsifier.layers.values()]
    assert sum(active) == total - round(0.999 * total)
    assert min(active) >= 1
    once = sparsified(vgg(width=20, convolutions=7), granet.SynFlow(sparsity=0.999, rounds=1), batches=IMAGES, floor=0)
    assert min(layer.active for layer in once.layers.values()) == 0


def test_synflow_ends_at_the_very_sparsity_asked_for() -> None:
    """3/10 of 15 weights are 4.5; a sparsity of 1 - (1 - 3/10) is a little more, and would take a weight more."""
    sparsifiers = [
        sparsified(nn.Linear(5, 3), method, batches=[(torch.ones(1, 5), None)], loss=None)
        for method in (granet.SynFlow(sparsity=0.3, rounds=2), granet.MagnitudeInit(sparsity=0.3))
    ]
    assert [sparsifier.layers["weight"].active for sparsifier in sparsifiers] == [11, 11]


def test_synflow_takes_a_model_with_one_tensor_of_outputs() -> None:
    class Two(nn.Linear):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return super().forward(x), x

    with refused("model"):
        sparsified(Two(5, 3), METHODS[2], batches=[(torch.ones(1, 5), None)])


def test_synflow_prunes_first_what_nothing_flows_through() -> None:
    class Spare(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self[1](x)  # never self[0]
            return out

    model = Spare(nn.Linear(5, 3), nn.Linear(5, 3))
    sparsifier = sparsified(model, METHODS[2], batches=[(torch.ones(1, 5), None)], loss=None, floor=0)
    assert [layer.active for layer in sparsifier.layers.values()] == [0, 6]


def test_magnitude_at_initialisation_keeps_the_largest_weights() -> None:
    scores = {name: weight.detach().abs().numpy() for name, weight in weights(net()).items()}
    check(sparsified(net(), granet.MagnitudeInit(sparsity=0.7), batches=None, loss=None), top(scores, 0.7))


METHODS = [
    granet.SNIP(sparsity=0.8, batch_count=2),
    granet.GraSP(sparsity=0.8, batch_count=2),
    granet.SynFlow(sparsity=0.8, rounds=3),
    granet.MagnitudeInit(sparsity=0.8),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_the_count_is_exact_and_nothing_else_has_changed(method: granet.Method, dtype: torch.dtype) -> None:
    model, before = net(dtype), net(dtype)
    model.eval()
    random = torch.get_rng_state()
    given = {"batches": list(batches(2, dtype)), "loss": lambda o, t: functional.cross_entropy(o.float(), t)}
    sparsifier = sparsified(model, method, **given)
    total = sum(w.numel() for w in weights(model).values())
    assert sum(layer.active for layer in sparsifier.layers.values()) == total - round(0.8 * total)
    assert len(method.updates(granet.Clock(0))) == 0
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(module.training for module in model.modules())
    for name, value in model.state_dict().items():
        mask = sparsifier.masks.get(name, torch.ones((), dtype=torch.bool))
        assert torch.equal(value, before.state_dict()[name] * mask), name
    assert all(p.grad is None for p in model.parameters())


WRONG: dict[str, tuple[granet.Method, dict[str, Any], str]] = {
    "snip without batches": (METHODS[0], {"batches": None}, ('batches', None, '2')),
    "grasp without batches": (METHODS[1], {"batches": None}, ('batches', None, '2')),
    "synflow without batches": (METHODS[2], {"batches": None}, ('batches', None)),
    "snip without a loss": (METHODS[0], {"loss": None}, ('loss', None)),
    "a loss of nan": (METHODS[0], {"loss": lambda o, t: o.sum() * math.nan}, ('loss', ..., "'0.weight'")),
    "grasp's loss of nan": (METHODS[1], {"loss": lambda o, t: o.sum() * math.nan}, ('loss', ...)),
    "inputs of whole numbers": (METHODS[2], {"batches": [(torch.ones(2, 2, 5, 5, dtype=torch.int64), None)]},
                                ('batches', ...)),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_used_is_refused_and_nothing_has_changed(case: str) -> None:
    method, given, message = WRONG[case]
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"batches": batches(), "loss": functional.cross_entropy} | given
    with refused(*message, unchanged=(model, optimizer)):
        granet.sparsify(model, optimizer, method, **given)


@pytest.mark.parametrize("method", METHODS[2:], ids=["synflow", "magnitude-init"])
def test_weights_of_nan_are_refused(method: granet.Method) -> None:
    model = net()
    model[4].weight.data[0, 0] = float("nan")
    with refused("model", ..., "'s score of "):
        sparsified(model, method)
