"""Every method with every pattern it takes: the pattern holds after every step, and a dropped filter outputs zero."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from bits import Parts
from granet.patterns import Groups, parse_pattern
from quick import slow_but_for
from refusals import refused

STEPS = 24
INFOS = {info.name: info for info in granet.list_methods() if info.name != "prune-regrow"}  # all of it grows back
PATTERNS = {"filter": 0.5, "4x1": 0.75, "2:4": 0.5, "fan-in": 0.75}
FREE = {"prune-once", "str"}  # the sparsity is an outcome
FIELDS: dict[str, dict[str, Any]] = {
    "deep-r": {"l1": 0.05, "noise": 0.3},
    "dsr": {"threshold": 0.05},
    "gmp-original": {"dense_first": False, "prune_end": 16},
    "sis": {"iterations": 30},
    "str": {"s_init": -2.2},
    "vd": {"log_sigma2": -3.0, "kl_scale": 0.5, "examples": 20},
}


def taken(name: str, pattern: str) -> bool:
    parsed = parse_pattern(pattern)
    return not isinstance(parsed, Groups) or parsed.kind in INFOS[name].takes_groups


PAIRS = [(name, pattern) for name in INFOS for pattern in PATTERNS if taken(name, pattern)]


class Run(Parts):
    """A small net with norms; the classifier is left out of the pattern."""

    def __init__(self, name: str, pattern: str, **fields: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.ConvTranspose2d(8, 12, 2, groups=2), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 4),
        )  # fmt: skip
        for norm in (1, 4):
            self.model[norm].bias.data.uniform_(0.2, 0.5)
        x = torch.randn(96, 4, 5, 5)
        self.batches = [(x[i : i + 24], x[i : i + 24, :, 0, 0].argmax(1)) for i in range(0, 96, 24)]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        every = {"every": 3} if "every" in INFOS[name].cls.__dataclass_fields__ else {}
        asked = {"sparsity": 0.0 if name in FREE else PATTERNS[pattern]}
        self.sparsifier = granet.sparsify(
            self.model, self.optimizer,
            granet.create_method(name, pattern=pattern, **asked | every | FIELDS.get(name, {}) | fields),
            total_steps=STEPS, steps_per_epoch=6, exclude=("9.weight",), batches=self.batches,
            loss=nn.functional.cross_entropy, trained={k: v * 1.1 for k, v in self.model.state_dict().items()},
        )  # fmt: skip

    def train(self, first: int = 0, last: int = STEPS, check: Callable[[], None] = lambda: None) -> Run:
        for step in range(first, last):
            x, y = self.batches[step % 4]
            torch.manual_seed(step)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            check()
        return self

    def dropped(self, name: str) -> Tensor:
        """Which filters of a layer are."""
        layer = self.sparsifier.layers[name]
        orientation, mask = layer.identity.orientation, layer.mask
        if orientation.out == 1:  # transposed
            mask = mask.reshape(orientation.groups, -1, *mask.shape[1:]).transpose(1, 2).flatten(0, 1)
        return ~mask.flatten(1).any(1)


@pytest.mark.parametrize("name", slow_but_for(["granet", "snfs", "deep-r", "str", "snip", "wanda"], INFOS))
@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_a_dropped_filter_outputs_zero_in_the_end_and_nobody_reads_it(name: str) -> None:
    run = Run(name, "filter").train()
    run.sparsifier.finish()
    run.train(0, 3)  # and fine-tuning changes nothing
    x = run.batches[0][0]
    silent = 0
    for training in (True, False):
        model = copy.deepcopy(run.model).train(training)
        for weight, norm in (("0.weight", 1), ("3.weight", 4), ("7.weight", 7)):
            outputs = model[: norm + 1](x).detach().transpose(0, 1).flatten(1)
            assert not outputs[run.dropped(weight)].any()
            silent += int(run.dropped(weight).sum())
    assert silent > 0
    read = run.model[7].weight.detach().view(16, 12, 16).abs().sum((0, 2)) > 0
    assert not read[run.dropped("3.weight")].any()
    assert not run.model[9].weight[:, run.dropped("7.weight")].any()
    masks = run.sparsifier.in_use
    assert not masks["9.weight"][:, run.dropped("7.weight")].any()


@pytest.mark.parametrize("name", [name for name, info in INFOS.items() if info.hidden])
@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_while_something_is_hidden_what_is_in_use_follows_the_masks(name: str) -> None:
    run = Run(name, "filter")

    def check() -> None:
        assert all(torch.equal(run.sparsifier.in_use[key], mask) for key, mask in run.sparsifier.masks.items())

    check()
    run.train(check=check)
    other = Run(name, "filter")
    other.model.load_state_dict(run.model.state_dict())
    other.optimizer.load_state_dict(run.optimizer.state_dict())
    other.sparsifier.load_state_dict(run.sparsifier.state_dict())
    assert all(torch.equal(other.sparsifier.in_use[key], mask) for key, mask in run.sparsifier.masks.items())


def test_what_is_regrown_is_counted_in_weights() -> None:
    run = Run("dpf", "filter")
    masks = {name: mask.clone() for name, mask in run.sparsifier.masks.items()}
    regrown = []

    def check() -> None:
        new = {name: mask.clone() for name, mask in run.sparsifier.masks.items()}
        if run.sparsifier.step in run.sparsifier.updates:
            regrown.append(sum(int((new[name] & ~masks[name]).sum()) for name in new))
        masks.update(new)

    run.train(check=check)
    assert [record.regrown for record in run.sparsifier.history] == regrown
    assert sum(regrown) > 0


@pytest.mark.parametrize(
    ("name", "pattern"), [(name, pattern) for name in INFOS for pattern in PATTERNS if not taken(name, pattern)]
)
def test_a_pattern_that_a_method_cannot_keep_to_is_refused(name: str, pattern: str) -> None:
    allowed = "weight, filter, fan-in" if "fan-in" in INFOS[name].takes_groups else "weight, filter"
    with refused("pattern", pattern, f"{allowed} or blocks", name):
        granet.create_method(name, sparsity=0.5, pattern=pattern)
