"""What happens to a weight that is dropped, regrown, grown or pruned, and to the step around it."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import granet

Kit = SimpleNamespace


class Fixture:
    """A linear layer of 4 x 5 weights under RigL at half density: numbers small enough to follow.

    Momentum 1 and dampening 0 make the momentum buffer the sum of the gradients; lr 0 keeps the weights still.
    """

    def __init__(self, regrow: float = 0.6, **fields: bool) -> None:
        self.layer = nn.Linear(5, 4, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.arange(1.0, 21.0).view(4, 5))
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.0, momentum=1.0)
        method = granet.RigL(sparsity=0.5, every=2, end=8, regrow=regrow, **fields)
        self.sparsifier = granet.sparsify(self.layer, self.optimizer, method, total_steps=8, seed=3)
        self.mask = self.sparsifier.masks["weight"]

    def step(self, grad: Tensor) -> None:
        self.layer.weight.grad = grad.clone()
        self.optimizer.step()

    @property
    def momentum(self) -> Tensor:
        return self.optimizer.state[self.layer.weight]["momentum_buffer"]


def test_dropped_and_regrown_at_once_keeps_value_and_momentum() -> None:
    case = Fixture()
    before, value = case.mask.clone(), case.layer.weight.detach().clone()
    case.step(torch.ones(4, 5))
    # The largest gradients are those of the active weights, which are dropped and come straight back.
    case.step(torch.ones(4, 5) + before)
    assert case.sparsifier.history[-1].regrown > 0
    assert torch.equal(case.mask, before)
    assert torch.equal(case.layer.weight, value)
    assert torch.equal(case.momentum, 3.0 * before)


def test_grown_from_elsewhere_starts_at_zero_with_clean_state() -> None:
    case = Fixture()
    before, value = case.mask.clone(), case.layer.weight.detach().clone()
    case.step(torch.ones(4, 5))
    case.step(torch.ones(4, 5) + 9.0 * ~before)  # the largest gradients are where there is no weight
    moved = int((case.mask & ~before).sum())
    assert moved == case.sparsifier.history[-1].regrown > 0
    assert int(case.mask.sum()) == 10
    smallest = value[before].sort().values[:moved]
    assert torch.equal(value[before & ~case.mask].sort().values, smallest)  # the smallest were dropped
    assert torch.count_nonzero(case.layer.weight[~case.mask]) == 0
    assert torch.count_nonzero(case.layer.weight[case.mask & ~before]) == 0
    assert torch.count_nonzero(case.momentum[case.mask & ~before]) == 0
    assert torch.equal(case.momentum[case.mask & before], torch.full((10 - moved,), 2.0))


def test_a_grown_weight_trains_and_a_weight_that_comes_back_later_has_forgotten() -> None:
    case = Fixture()
    before = case.mask.clone()
    case.step(torch.ones(4, 5))
    case.step(torch.ones(4, 5) + 9.0 * ~before)
    after = case.mask.clone()
    dropped = before & ~after
    case.step(torch.ones(4, 5))
    assert torch.equal(case.momentum[after & ~before], torch.ones(int((after & ~before).sum())))
    case.step(torch.ones(4, 5) + 9.0 * dropped)
    back = case.mask & dropped
    assert back.any()
    assert torch.count_nonzero(case.layer.weight[back]) == 0
    assert torch.count_nonzero(case.momentum[back]) == 0


def test_growth_reads_the_gradient_before_masking() -> None:
    case = Fixture(regrow=0.2)
    *_, second, first = (tuple(spot) for spot in (~case.mask).nonzero())  # the last, where no tie-break would go
    grad = torch.zeros(4, 5)
    grad[first], grad[second] = -6.0, 5.0
    case.step(torch.zeros(4, 5))
    case.step(grad)
    assert case.sparsifier.history[-1].regrown == 1
    assert case.mask[first]
    assert not case.mask[second]
    assert torch.count_nonzero(case.momentum) == 0  # and the optimizer never saw it


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_no_optimizer_step_on_update_steps_if_asked(kit: Kit, kind: type[torch.optim.Optimizer]) -> None:
    """Everything is as it was, but for what the new masks switch off; the step is counted."""
    model = kit.net()
    options = {"momentum": 0.9} if kind is not torch.optim.AdamW else {}
    optimizer = kind(model.parameters(), lr=0.01, weight_decay=0.1, **options)
    method = granet.RigL(sparsity=0.6, every=3, end=12, step_on_update=False)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=12)
    for step, batch in enumerate(kit.batches(12), start=1):
        kit.backward(model, batch)
        gradients = [p.grad for p in model.parameters()]
        before = kit.snapshot(model, optimizer, sparsifier)
        optimizer.step()
        assert all(p.grad is grad for p, grad in zip(model.parameters(), gradients, strict=True))
        assert sparsifier.step == step
        after = kit.snapshot(model, optimizer, sparsifier)
        if step % 3 or step == 12:
            assert not torch.equal(before["model 0.weight"], after["model 0.weight"])
            continue
        masks = {f"model {name}": mask for name, mask in sparsifier.masks.items()}
        for index, (name, _) in enumerate(model.named_parameters()):
            if name in sparsifier.masks:
                masks |= {key: sparsifier.masks[name] for key in after if key.startswith(f"optimizer {index} ")}
        for key, tensor in after.items():
            if key.startswith("mask"):
                continue
            old = before[key]
            if key in masks and tensor.ndim:
                old = old * masks[key]
            assert torch.equal(tensor, old), f"step {step}: {key}"
    assert [record.step for record in sparsifier.history] == [3, 6, 9]


def test_by_default_rigl_steps_on_update_steps(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, granet.RigL(sparsity=0.6, every=1), total_steps=12)
    bias = model[1].bias.detach().clone()  # of the norm: the gradient of a bias before it is zero but for rounding
    kit.train(model, optimizer, 1)
    assert not torch.equal(model[1].bias, bias)


@pytest.mark.parametrize(
    "method", [granet.GraNet(sparsity=0.8, prune_end=8, every=2), granet.RigLITOP(sparsity=0.8, every=2)]
)
def test_regeneration_runs_to_the_end(kit: Kit, method: granet.Method) -> None:
    """Up to the last update that is still trained on."""
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=20)
    kit.train(model, optimizer, 20)
    assert [record.step for record in sparsifier.history] == list(range(2, 20, 2))
    assert all(record.regrown > 0 for record in sparsifier.history)
    late = [record for record in sparsifier.history if record.step > 8]
    assert all(record.pruned == 0 and record.active == late[0].active for record in late)


def test_gmp_never_lets_a_weight_return(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.GMP(sparsity=0.8, prune_end=16, every=2), total_steps=20)
    seen = {name: mask.clone() for name, mask in sparsifier.masks.items()}
    for batch in kit.batches(20):
        kit.backward(model, batch)
        optimizer.step()
        optimizer.zero_grad()
        for name, mask in sparsifier.masks.items():
            assert not (mask & ~seen[name]).any()
            seen[name] &= mask
    kit.check_count(sparsifier)


def test_attaching_in_mid_training(kit: Kit) -> None:
    """Momentum of before is kept where weights are active and gone where they are not; the clock starts now."""
    model = kit.net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    kit.train(model, optimizer, 5)
    weight, moment = model[4].weight.detach().clone(), optimizer.state[model[4].weight]["exp_avg"].clone()
    assert moment.count_nonzero() > 0
    method = granet.GraNet(sparsity=0.8, initial_sparsity=0.5, prune_end=8, every=2)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=12)
    mask = sparsifier.masks["4.weight"]
    assert torch.equal(model[4].weight, weight * mask)
    assert torch.equal(optimizer.state[model[4].weight]["exp_avg"], moment * mask)
    assert sparsifier.step == 0
    kit.train(model, optimizer, 12)
    kit.check_zeros(sparsifier)
    kit.check_count(sparsifier)


def test_attaching_to_an_adagrad_in_mid_training_keeps_its_start_value(kit: Kit) -> None:
    """A weight that is off has the accumulator of a weight never trained, also when others were trained before."""
    model = kit.net()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01, initial_accumulator_value=0.3)
    kit.train(model, optimizer, 3)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
    for layer in sparsifier.layers.values():
        off = optimizer.state[layer.weight]["sum"][~layer.mask]
        assert torch.equal(off, torch.full_like(off, 0.3))
