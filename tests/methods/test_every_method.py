"""What every registered method says of its cost and its target: one added later is tested here by itself."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from bits import Parts, differences
from granet.flop_counting import TrainingFlops, flops
from quick import slow_but_for

STEPS, EPOCH, SPARSITY = 12, 2, 0.6
SHORT = {
    "every": 2,
    "end": 8,
    "prune_end": 8,
    "rounds": 3,
    "log_every": 1,
    "batch_count": 1,
    "iterations": 5,
    "examples": 32,
    "s_init": -3.0,
}
"""Fields that must fit so short a training, where a method has them."""
METHODS = [info.name for info in granet.list_methods()]
pytestmark = pytest.mark.filterwarnings("ignore:granet. sparsity=.* str reached")


def create(name: str, **fields: Any) -> granet.Method:
    cls = next(info.cls for info in granet.list_methods() if info.name == name)
    has = {field.name for field in dataclasses.fields(cls)}
    short = {field: value for field, value in SHORT.items() if field in has}
    return granet.create_method(name, **({"sparsity": SPARSITY, "pattern": "weight"} | short | fields))


def net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4)
    )


def batch(step: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(8, 2, 5, 5, generator=torch.Generator().manual_seed(step))
    return x, x.flatten(1)[:, :4].argmax(1)


class Run(Parts):
    """A training whose noise is a function of the step; ``steps`` are those taken."""

    def __init__(self, method: granet.Method, seed: int = 0) -> None:
        self.model = net(seed)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        self.sparsifier = granet.sparsify(
            self.model,
            self.optimizer,
            method,
            total_steps=STEPS,
            steps_per_epoch=EPOCH,
            batches=[batch(100 + i) for i in range(4)],
            loss=nn.functional.cross_entropy,
            trained=net(9).state_dict(),
        )
        self.steps = 0

    def backward(self) -> None:
        x, y = batch(self.steps)
        torch.manual_seed(self.steps)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), y).backward()

    def take_step(self) -> None:
        self.optimizer.step()
        self.steps += 1

    def train(self, steps: int) -> Run:
        for _ in range(steps):
            self.backward()
            self.take_step()
        return self

    def state(self) -> dict[str, Any]:
        return copy.deepcopy(super().state())


def final_state(method: granet.Method, disturbed: set[int]) -> dict[str, Any]:
    """How a training ends if, in these steps, noise is added to the gradients of inactive weights."""
    run = Run(method)
    for step in range(1, STEPS + 1):
        run.backward()
        if step in disturbed:
            for layer in run.sparsifier.layers.values():
                assert layer.weight.grad is not None
                layer.weight.grad += torch.randn_like(layer.weight) * ~layer.mask
        run.take_step()
    return run.state()


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in METHODS if name not in ("str", "vd")),
    ("str", {"every": 1}),  # its masks change at every step, and are counted as of the last record
    ("vd", {"log_sigma2": -2.0}),  # some weights are mostly noise from the start
    ("rigl", {"every": 4, "end": 9, "grow_batch_count": 3}),
]


@pytest.mark.parametrize(("name", "fields"), slow_but_for(VARIANTS[-4:], VARIANTS))
def test_training_flops_count_the_dense_gradients_that_are_read(name: str, fields: dict[str, Any]) -> None:
    """Noise in a gradient that is not counted must change nothing, and in one that is counted, something."""
    method = create(name, **fields)
    run = Run(method)
    report = flops(run.model, batch(0)[0], masks={})
    cost = TrainingFlops.of(report, run.sparsifier)
    passes = []
    for _ in range(STEPS):
        passes.append(flops(run.model, batch(0)[0], masks=run.sparsifier.masks).sparse)
        run.train(1)
    updates = [record.step for record in run.sparsifier.history]
    every_step = set(range(1, STEPS + 1))
    counted = {
        "never": set(),
        "on updates": {step - i for step in updates for i in range(fields.get("grow_batch_count", 1))},
        "always": every_step,
    }[method.dense_gradient]
    undisturbed = final_state(method, set())
    assert not differences(undisturbed, final_state(method, every_step - counted))
    if counted and name != "prune-regrow":  # a net that was dense regrows all it lost, whatever the gradient
        assert differences(undisturbed, final_state(method, counted))
    if name == "vd":
        assert cost.after(STEPS, run.sparsifier.history).ratio == 2 > 1 > passes[0] / report.dense
    else:
        assert cost.after(STEPS, run.sparsifier.history).flops == 3 * sum(passes) + sum(
            report.dense - passes[step - 1] for step in counted
        )


@pytest.mark.parametrize("name", ["str", "vd"])
@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_a_method_that_asks_for_nothing_has_what_it_reached_as_its_target(name: str) -> None:
    fields = {"s_init": -1.0} if name == "str" else {"log_sigma2": -1.0}
    run = Run(create(name, sparsity=0.0, **fields)).train(STEPS)
    assert run.sparsifier.target_sparsity == run.sparsifier.sparsity > 0
    run.sparsifier.finish()
    assert run.sparsifier.target_sparsity == run.sparsifier.sparsity > 0
    assert Run(create(name)).sparsifier.target_sparsity == SPARSITY
