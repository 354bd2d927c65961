"""Whatever the optimizer: exact zeros, clean state, exact counts, and active weights that move as in a plain loop.

The reference knows nothing of hooks: it masks the gradient, steps an optimizer of the same kind, masks weights and
state by hand after every step, and updates the masks by sorting.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import granet
from quick import slow_but_for

STEPS, EVERY, END = 14, 2, 8
FINAL, REGROW, REGROW_END = 0.8, 0.4, 0.005

Tensors = dict[str, Tensor]
OptimizerFactory = Callable[[list[nn.Parameter]], Optimizer]


class Lion(Optimizer):
    """Someone's own optimizer: sign of an interpolated momentum, decoupled weight decay."""

    def __init__(self, params: list[nn.Parameter], lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                trail = self.state[p].setdefault("trail", torch.zeros_like(p))
                p.mul_(1 - 0.1 * group["lr"]).sub_(group["lr"] * (0.9 * trail + 0.1 * p.grad).sign())
                trail.mul_(0.99).add_(p.grad, alpha=0.01)


def groups(params: list[nn.Parameter]) -> list[dict[str, Any]]:
    return [
        {"params": [p for p in params if p.ndim > 2], "lr": 0.02, "weight_decay": 0.1},
        {"params": [p for p in params if p.ndim == 2], "momentum": 0.5},
        {"params": [p for p in params if p.ndim == 1], "weight_decay": 0.0},
    ]


def make(kind: type[Optimizer], **options: Any) -> OptimizerFactory:
    return functools.partial(kind, **options)


OPTIM = torch.optim
OPTIMIZERS: dict[str, OptimizerFactory] = {
    "sgd": make(OPTIM.SGD, lr=0.1),
    "sgd-momentum": make(OPTIM.SGD, lr=0.05, momentum=0.9),
    "sgd-nesterov-decay": make(OPTIM.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.05),
    "sgd-dampening": make(OPTIM.SGD, lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.05),
    "sgd-maximize": make(OPTIM.SGD, lr=0.01, momentum=0.9, maximize=True),
    "sgd-groups": lambda params: OPTIM.SGD(groups(params), lr=0.05, momentum=0.9),
    "adam-decay": make(OPTIM.Adam, lr=0.01, weight_decay=0.1),
    "adam-amsgrad": make(OPTIM.Adam, lr=0.01, amsgrad=True),
    "adam-tensor-lr": lambda params: OPTIM.Adam(params, lr=torch.tensor(0.01)),
    "adamw": make(OPTIM.AdamW, lr=0.01, weight_decay=0.1),
    "adamw-amsgrad": make(OPTIM.AdamW, lr=0.01, amsgrad=True),
    "rmsprop": make(OPTIM.RMSprop, lr=0.003),
    "rmsprop-centered-momentum": make(OPTIM.RMSprop, lr=0.003, centered=True, momentum=0.9, weight_decay=0.1),
    "adagrad": make(OPTIM.Adagrad, lr=0.02, weight_decay=0.1),
    "adagrad-initial": make(OPTIM.Adagrad, lr=0.02, lr_decay=0.01, initial_accumulator_value=0.3),
    "adamax": make(OPTIM.Adamax, lr=0.01, weight_decay=0.1),
    "nadam": make(OPTIM.NAdam, lr=0.01, weight_decay=0.1),
    "radam": make(OPTIM.RAdam, lr=0.01, weight_decay=0.1),
    "adadelta": make(OPTIM.Adadelta, lr=0.5, weight_decay=0.1),
    "asgd": make(OPTIM.ASGD, lr=0.05, t0=3, weight_decay=0.1),
    "rprop": make(OPTIM.Rprop, lr=0.005),
    "lion": Lion,
}
for name, kind, options in (
    ("sgd", OPTIM.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    ("adam", OPTIM.Adam, {"lr": 0.01}),
    ("adamw", OPTIM.AdamW, {"lr": 0.01, "amsgrad": True}),
    ("adagrad", OPTIM.Adagrad, {"lr": 0.02, "initial_accumulator_value": 0.3}),
):
    for variant in ({"foreach": True}, {"foreach": False}, {"fused": True}):
        label = "-".join([name, *(f"{k}={v}" for k, v in variant.items())])
        OPTIMIZERS[label] = make(kind, **options, **variant)
for new, options in (("Adafactor", {"lr": 0.01, "weight_decay": 0.1}), ("Muon", {"lr": 0.02})):
    if hasattr(OPTIM, new):
        OPTIMIZERS[new.lower()] = make(getattr(OPTIM, new), **options)

START = {"adagrad": ("sum", 0.3), "rprop": ("step_size", 0.005)}
"""State that does not start at zero: its name, and the value of a weight that was never trained."""


def net(label: str) -> nn.Module:
    torch.manual_seed(0)
    if label == "muon":  # takes matrices only
        return nn.Sequential(nn.Flatten(), nn.Linear(50, 12, bias=False), nn.ReLU(), nn.Linear(12, 4, bias=False))
    body = [nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(54, 8), nn.ReLU(), nn.Linear(8, 4))


def batches(steps: int = STEPS) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randn(16, 2, 5, 5, generator=generator), torch.randint(0, 4, (16,), generator=generator)


def weights_of(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.ndim > 1}


def fresh_value(label: str, key: str) -> float:
    named, value = START.get(label.split("-")[0], ("", 0.0))
    return value if key == named and label != "adagrad" else 0.0


def per_weight(optimizer: Optimizer, weight: nn.Parameter) -> dict[str, Tensor]:
    return {k: v for k, v in optimizer.state[weight].items() if torch.is_tensor(v) and v.shape == weight.shape}


def schedule(step: int, initial: float) -> tuple[float, float]:
    """s_t and r_t, written out from the paper."""
    c, n = min(step // EVERY, END // EVERY), END // EVERY
    ratio = REGROW_END + (REGROW - REGROW_END) * (1 + math.cos(math.pi * step / STEPS)) / 2
    return FINAL + (initial - FINAL) * (1 - c / n) ** 3, ratio


def largest(scores: Tensor, candidates: Tensor, count: int) -> Tensor:
    """The ``count`` candidates with the largest scores, by a full stable sort."""
    order = scores.abs().flatten().masked_fill(~candidates.flatten(), -1).argsort(descending=True, stable=True)
    chosen = torch.zeros(scores.numel(), dtype=torch.bool)
    chosen[order[:count]] = True
    return chosen.view(scores.shape)


def pruned(weights: Tensors, masks: Tensors, target: float) -> Tensors:
    """Eq. 1, by sorting."""
    numel = sum(w.numel() for w in weights.values())
    flat = torch.cat([w.detach().flatten() for w in weights.values()])
    alive = torch.cat([m.flatten() for m in masks.values()])
    kept = largest(flat, alive, numel - round(numel * target)).split([w.numel() for w in weights.values()])
    return {name: mask.view(weights[name].shape) for name, mask in zip(weights, kept, strict=True)}


def regenerated(weights: Tensors, gradients: Tensors, masks: Tensors, ratio: float) -> Tensors:
    """Eq. 2 and 3, by sorting."""
    new = {}
    for name, weight in weights.items():
        active = int(masks[name].sum())
        moved = math.ceil(ratio * active)
        survivors = largest(weight.detach(), masks[name], active - moved)
        new[name] = survivors | largest(gradients[name], ~survivors, moved)
    return new


class Reference:
    """The same training by a plain loop; ``initial`` masks are given."""

    def __init__(self, model: nn.Module, label: str, initial: float, masks: Tensors) -> None:
        self.model, self.label, self.initial, self.masks = model, label, initial, masks
        self.optimizer = OPTIMIZERS[label](list(model.parameters()))
        self.mask_by_hand()

    def step(self, step: int, batch: tuple[Tensor, Tensor]) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(batch[0]), batch[1]).backward()
        weights = weights_of(self.model)
        dense = {name: weight.grad.clone() for name, weight in weights.items()}
        for name, weight in weights.items():
            weight.grad[~self.masks[name]] = 0
        self.optimizer.step()
        self.mask_by_hand()
        if step % EVERY == 0 and step < STEPS:
            target, ratio = schedule(step, self.initial)
            self.masks = pruned(weights, self.masks, target)
            self.mask_by_hand()
            self.masks = regenerated(weights, dense, self.masks, ratio)
            self.mask_by_hand()

    def mask_by_hand(self) -> None:
        with torch.no_grad():
            for name, weight in weights_of(self.model).items():
                weight[~self.masks[name]] = 0
                for key, tensor in per_weight(self.optimizer, weight).items():
                    tensor[~self.masks[name]] = fresh_value(self.label, key)


def check_clean(sparsifier: granet.Sparsifier, optimizer: Optimizer, label: str) -> None:
    for layer in sparsifier.layers.values():
        off = ~layer.mask
        assert torch.count_nonzero(layer.weight[off]) == 0
        for key, tensor in per_weight(optimizer, layer.weight).items():
            # Adamax writes max(0, 0 + eps) at a gradient of zero, Rprop keeps its step size.
            slack = 1e-8 if key == "exp_inf" else 0.0
            if key != "step_size":
                assert ((tensor[off] - fresh_value(label, key)).abs() <= slack).all(), key


@pytest.mark.parametrize("initial", slow_but_for([0.4], [0.4, 0.0]))
@pytest.mark.parametrize("label", OPTIMIZERS)
def test_training_equals_the_plain_loop(label: str, initial: float) -> None:
    model = net(label)
    twin = copy.deepcopy(model)
    optimizer = OPTIMIZERS[label](list(model.parameters()))
    method = granet.GraNet(sparsity=FINAL, initial_sparsity=initial, prune_end=END, every=EVERY, regrow=REGROW)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
    reference = Reference(twin, label, initial, {name: mask.clone() for name, mask in sparsifier.masks.items()})
    for step, batch in enumerate(batches(), start=1):
        reference.step(step, batch)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()
        check_clean(sparsifier, optimizer, label)
        assert sparsifier.step == step
        for name, mask in sparsifier.masks.items():
            assert torch.equal(mask, reference.masks[name]), f"step {step}: {name}"
        for (name, p), (_, q) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
            assert torch.equal(p, q), f"step {step}: {name}"
    numel = sum(layer.numel for layer in sparsifier.layers.values())
    assert [record.step for record in sparsifier.history] == list(range(EVERY, STEPS, EVERY))
    for record in sparsifier.history:
        assert record.target == pytest.approx(schedule(record.step, initial)[0])
        assert sum(record.active) == numel - round(numel * record.target)
    assert sparsifier.target_sparsity == FINAL


def test_the_groups_are_several() -> None:
    assert len(OPTIMIZERS["sgd-groups"](list(net("sgd").parameters())).param_groups) == 3
