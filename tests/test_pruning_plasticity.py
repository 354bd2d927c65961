"""The probe in a user's loop: it measures what a plain loop measures, and leaves no trace."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

import granet
from refusals import refused

torch.manual_seed(0)
INPUTS = torch.randn(96, 6)
TARGETS = (INPUTS[:, 0] * INPUTS[:, 1] > 0).long()


def accuracy(model: nn.Module) -> float:
    random.random(), np.random.rand(), torch.rand(1)  # as an evaluation may
    model.eval()
    with torch.no_grad():
        return float((model(INPUTS).argmax(1) == TARGETS).float().mean())


class Loop:
    """A training with everything that a probe could disturb: dropout, batch norm, momentum, masks, shuffling."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        method = granet.RigL(sparsity=0.5, every=2)
        self.sparsifier = granet.sparsify(self.model, self.optimizer, method, total_steps=24, seed=0)
        generator = torch.Generator().manual_seed(2)
        self.loader = DataLoader(TensorDataset(INPUTS, TARGETS), 16, shuffle=True, generator=generator)

    def epoch(self) -> None:
        self.model.train()
        for inputs, targets in self.loader:
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(inputs), targets).backward()
            self.optimizer.step()

    def end(self) -> list[torch.Tensor]:
        """All that the rest of a training depends on."""
        state = [value.clone() for value in self.model.state_dict().values()]
        state += [value for one in self.optimizer.state_dict()["state"].values() for value in one.values()]
        state += [*self.sparsifier.masks.values(), torch.get_rng_state(), self.loader.generator.get_state()]
        return [*state, torch.rand(3), torch.tensor([random.random(), np.random.rand()])]


def test_a_training_that_is_probed_ends_bit_for_bit_as_one_that_is_not() -> None:
    ends = []
    for probed in (False, True):
        random.seed(0)
        np.random.seed(0)
        loop = Loop()
        probe = granet.PlasticityProbe(
            2, loop.model, loop.optimizer, loop.loader, nn.functional.cross_entropy, accuracy,
            {"steps": 8, "rates": (0.5, 0.9)},
        )  # fmt: skip
        for epoch in range(1, 5):
            loop.epoch()
            grads = [parameter.grad for parameter in loop.model.parameters()]
            modes = [module.training for module in loop.model.modules()]
            if probed:
                assert len(probe(epoch)) == (4 if epoch % 2 == 0 else 0)
            assert modes == [module.training for module in loop.model.modules()]
            assert all(a is b.grad for a, b in zip(grads, loop.model.parameters(), strict=True))
        ends.append(loop.end())
        assert [point.epoch for point in probe.points] == ([2] * 4 + [4] * 4 if probed else [])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_it_measures_what_a_plain_loop_measures() -> None:
    torch.manual_seed(3)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    batches = [(INPUTS[i : i + 32], TARGETS[i : i + 32]) for i in range(0, 96, 32)]
    (without, grown) = granet.plasticity(
        model, optimizer, batches, nn.functional.cross_entropy, accuracy, steps=5, rates=(0.75,)
    )
    twin = copy.deepcopy(model)
    mask = twin.weight.abs() >= twin.weight.abs().flatten().sort().values[9]  # 9 of 12 go
    with torch.no_grad():
        twin.weight *= mask
    for step in range(5):
        inputs, targets = batches[step % 3]
        twin.zero_grad()
        nn.functional.cross_entropy(twin(inputs), targets).backward()
        with torch.no_grad():
            twin.weight -= 0.5 * twin.weight.grad * mask
            twin.bias -= 0.5 * twin.bias.grad
    assert (without.rate, without.regeneration, grown.regeneration) == (0.75, "without", "with")
    assert without.before == grown.before == accuracy(model)
    assert without.after == accuracy(twin)
    assert without.plasticity == without.after - without.before


def test_every_copy_trains_on_the_same_batches_in_training_mode() -> None:
    loop, seen = Loop(), []

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(targets)
        return nn.functional.cross_entropy(outputs, targets)

    loop.model.eval()
    modes: list[bool] = []
    loop.model[3].register_forward_hook(lambda dropout, *_: modes.append(dropout.training))
    granet.plasticity(loop.model, loop.optimizer, loop.loader, loss, lambda model: 0.0, steps=2, rates=(0.5, 0.9))
    assert modes == [True] * 8
    assert all(torch.equal(a, b) for a, b in zip(seen, seen[:2] * 4, strict=True))


def test_the_generator_of_a_batch_sampler_is_left_as_it_was() -> None:
    model, generator, seen = nn.Linear(6, 2), torch.Generator().manual_seed(2), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(INPUTS, TARGETS)
    loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data, generator=generator), 16, False))

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(targets)
        return nn.functional.cross_entropy(outputs, targets)

    before = generator.get_state()
    granet.plasticity(model, optimizer, loader, loss, lambda _: 0.0, steps=2, rates=(0.5,))
    assert torch.equal(generator.get_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(seen, seen[:2] * 2, strict=True))


class Shaken(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Augmented by the random numbers of the process that reads it."""

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return INPUTS[index] + torch.randn(6), TARGETS[index]


@pytest.mark.slow
@pytest.mark.parametrize("within", [False, True])
def test_persistent_workers_go_on_as_if_nothing_had_been_probed(within: bool) -> None:
    """Such a loader has one iterator at a time, which may be in the middle of an epoch."""
    seen: list[list[torch.Tensor]] = []
    for probed in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(6, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(Shaken(), 16, shuffle=True, num_workers=1, persistent_workers=True)
        batches = []
        for _ in range(2):
            for number, (inputs, _targets) in enumerate(loader):
                batches.append(inputs)
                if probed and within and number == 1:
                    granet.plasticity(model, optimizer, loader, nn.functional.cross_entropy, accuracy, steps=2)
            if probed and not within:
                granet.plasticity(model, optimizer, loader, nn.functional.cross_entropy, accuracy, steps=2)
        seen.append(batches)
    assert len(seen[0]) == len(seen[1]) == 2 * -(-len(INPUTS) // 16)
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


SEEN: list[tuple[torch.Tensor, torch.Tensor]] = []


class Masked(nn.Linear):
    """A model of two inputs."""

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        SEEN.append((inputs, mask))
        return super().forward(inputs * mask)


@pytest.mark.parametrize("pack", [tuple, list, lambda both: dict(zip(("inputs", "mask"), both, strict=True))])
def test_a_model_may_have_several_inputs(pack: Callable[[tuple[torch.Tensor, ...]], Any]) -> None:
    """As in the batches that `sparsify` takes; a loader makes lists of tuples."""
    model, mask = Masked(6, 2), (INPUTS > 0).float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    SEEN.clear()
    batches, loss = [(pack((INPUTS, mask)), TARGETS)], nn.functional.cross_entropy
    granet.plasticity(model, optimizer, batches, loss, lambda _: 0.0, steps=2, rates=(0.5,))
    assert len(SEEN) == 4 and all(inputs is INPUTS and with_mask is mask for inputs, with_mask in SEEN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, ("steps", 0)),
        ({"steps": 2, "rates": (0.5, 1.0)}, ("rates", 1.0, "(0, 1)")),
        ({"steps": 2, "rates": ()}, ("rates", ())),
    ],
)
def test_bad_input_names_the_field(options: dict[str, object], message: tuple) -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused(*message, unchanged=(model, optimizer)):
        granet.plasticity(model, optimizer, [(INPUTS, TARGETS)], nn.functional.cross_entropy, accuracy, **options)


def test_an_optimizer_that_needs_a_closure_is_refused_at_once() -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.LBFGS(model.parameters())
    with refused("optimizer", optimizer, unchanged=(model, optimizer)):
        granet.plasticity(model, optimizer, [(INPUTS, TARGETS)], nn.functional.cross_entropy, accuracy, steps=2)


@pytest.mark.parametrize(
    "batches", [iter([(INPUTS, TARGETS)]), iter([(INPUTS, TARGETS)] * 99), []], ids=["too few", "enough", "none"]
)
def test_batches_that_cannot_be_read_again_are_refused(batches: Any) -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused("batches"):
        granet.plasticity(model, optimizer, batches, nn.functional.cross_entropy, accuracy, steps=2)


def zeros_of_copies(**options: Any) -> dict[str, list[dict[str, torch.Tensor]]]:
    """Where the weights of each copy are zero after training without a learning rate, by regeneration."""
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        model[2].weight *= 100  # pruned last when all layers are ranked together
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    seen: list[dict[str, torch.Tensor]] = []

    def look(copied: nn.Module) -> float:
        seen.append({name: copied.get_parameter(name) == 0 for name in ("0.weight", "2.weight")})
        return 0.0

    points = granet.plasticity(
        model, optimizer, [(INPUTS, TARGETS)], nn.functional.cross_entropy, look, steps=1, **options
    )
    first, *copies = seen
    assert not any(zero.any() for zero in first.values())  # the model itself
    pairs = list(zip(points, copies, strict=True))
    return {kind: [zeros for point, zeros in pairs if point.regeneration == kind] for kind in ("without", "with")}


@pytest.mark.parametrize(("distribution", "expected"), [("global", [32, 0]), ("uniform", [24, 8])])
def test_the_distribution_decides_which_layers_are_pruned(distribution: str, expected: list[int]) -> None:
    (zeros,) = zeros_of_copies(rates=(0.5,), distribution=distribution)["without"]
    assert [int(zero.sum()) for zero in zeros.values()] == expected


def test_the_pattern_decides_what_is_pruned_together() -> None:
    (zeros,) = zeros_of_copies(rates=(0.5,), pattern="filter", exclude=("2.weight",))["without"]
    assert sorted(zeros["0.weight"].sum(1).tolist()) == [0] * 4 + [6] * 4


@pytest.mark.parametrize("options", [{"exclude": ("2.*",)}, {"include": ("0.*",)}])
def test_layers_that_are_left_out_stay_dense(options: dict[str, Any]) -> None:
    (zeros,) = zeros_of_copies(rates=(0.5,), distribution="uniform", **options)["without"]
    assert [int(zero.sum()) for zero in zeros.values()] == [24, 0]


def test_the_rates_are_those_of_the_paper_unless_others_are_asked_for() -> None:
    found = zeros_of_copies(distribution="uniform")
    assert [int(zeros["0.weight"].sum()) for zeros in found["without"]] == [
        round(48 * s) for s in (0.2, 0.5, 0.9, 0.98)
    ]
    assert len(found["with"]) == 4
