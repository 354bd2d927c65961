"""Training loops as people write them: closures, accumulation, clipping, schedulers, and the end."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

import granet
from granet.clock import Clock
from granet.net import SparseNet

Kit = SimpleNamespace
METHOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)
STEPS = 12


def start(
    kit: Kit, method: granet.Method = METHOD, **options: Any
) -> tuple[nn.Module, torch.optim.SGD, granet.Sparsifier]:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), **({"lr": 0.05, "momentum": 0.9} | options))
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=STEPS)


class Watched(granet.RigL):
    """Tells whether its updates were run by Python or read by the compiler, which would take minutes over some."""

    compiled: ClassVar[list[bool]] = []

    def update(self, net: SparseNet, clock: Clock) -> None:
        self.compiled.append(torch.compiler.is_compiling())
        super().update(net, clock)


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*sys._getframe")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler asks for it
@pytest.mark.parametrize("with_closure", [False, True])
@pytest.mark.parametrize("step_on_update", [True, False])
def test_a_compiled_step_is_the_same_step(kit: Kit, step_on_update: bool, with_closure: bool) -> None:
    torch.compiler.reset()
    Watched.compiled.clear()
    method = Watched(sparsity=0.7, every=2, end=10, step_on_update=step_on_update)
    plain, (model, optimizer, sparsifier) = start(kit, method), start(kit, method)
    kit.train(*plain[:2], STEPS)
    step = torch.compile(optimizer.step, backend="eager")
    for batch in kit.batches(STEPS):
        if with_closure:
            step(lambda batch=batch: kit.backward(model, batch))
        else:
            kit.backward(model, batch)
            step()
        optimizer.zero_grad()
        kit.check_zeros(sparsifier)
    # Before torch 2.13 the compiler rounds a step otherwise, a dense one too.
    close = torch.testing.assert_close if TorchVersion(torch.__version__) < "2.13" else kit.check_equal
    close(kit.snapshot(*plain), kit.snapshot(model, optimizer, sparsifier))
    assert sparsifier.step == STEPS
    assert Watched.compiled == [False] * (len(plain[2].history) + len(sparsifier.history))


@pytest.mark.parametrize("how", ["positional", "keyword"])
@pytest.mark.parametrize("step_on_update", [True, False])
def test_closure_equals_no_closure(kit: Kit, how: str, step_on_update: bool) -> None:
    method = granet.RigL(sparsity=0.7, every=2, end=10, step_on_update=step_on_update)
    plain, with_closure = start(kit, method), start(kit, method)
    kit.train(*plain[:2], STEPS)
    model, optimizer, sparsifier = with_closure
    for batch in kit.batches(STEPS):

        def closure(batch: tuple[Tensor, Tensor] = batch) -> Tensor:
            optimizer.zero_grad()
            return kit.backward(model, batch)

        loss = optimizer.step(closure) if how == "positional" else optimizer.step(closure=closure)
        assert isinstance(loss, Tensor)
        kit.check_zeros(sparsifier)
    kit.check_equal(kit.snapshot(*plain), kit.snapshot(*with_closure))
    assert plain[2].history == sparsifier.history


def test_step_of_none_is_a_step_without_closure(kit: Kit) -> None:
    run, other = start(kit), start(kit)
    kit.train(*run[:2], STEPS)
    for i, batch in enumerate(kit.batches(STEPS)):
        kit.backward(other[0], batch)
        other[1].step(None) if i % 2 else other[1].step(closure=None)
        other[1].zero_grad()
    kit.check_equal(kit.snapshot(*run), kit.snapshot(*other))


def test_accumulated_gradients_count_as_one_step(kit: Kit) -> None:
    run, accumulated = start(kit), start(kit)
    for model, *_ in (run, accumulated):
        model.eval()  # batch statistics would differ
    for x, y in kit.batches(STEPS):
        kit.backward(run[0], (x, y))
        run[1].step()
        run[1].zero_grad()
        for half in (slice(0, 8), slice(8, 16)):
            (nn.functional.cross_entropy(accumulated[0](x[half]), y[half]) / 2).backward()
        accumulated[1].step()
        accumulated[1].zero_grad()
    assert accumulated[2].step == STEPS
    for name, mask in run[2].masks.items():
        assert torch.equal(mask, accumulated[2].masks[name])


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(kit: Kit, set_to_none: bool) -> None:
    run, other = start(kit), start(kit)
    kit.train(*run[:2], STEPS)
    for batch in kit.batches(STEPS):
        other[1].zero_grad(set_to_none=set_to_none)  # first rather than last
        kit.backward(other[0], batch)
        other[1].step()
    kit.check_equal(kit.snapshot(*run), kit.snapshot(*other))


@pytest.mark.parametrize("anew", [False, True])
def test_a_step_that_was_interrupted_is_taken_with_the_newest_gradient(kit: Kit, anew: bool) -> None:
    """On an update step gradients are withheld from the optimizer: an interrupt finds them nowhere else."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    method = granet.RigL(sparsity=0.5, every=2, end=STEPS, step_on_update=False)
    snapshots = []
    for interrupted in (False, True):
        model = kit.net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
        kit.train(model, optimizer, 1)
        first, second = kit.batches(2, seed=2)
        kit.backward(model, first)
        if interrupted:
            handle = optimizer.register_step_pre_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
            handle.remove()
        if anew:
            optimizer.zero_grad()
            kit.backward(model, second)
        optimizer.step()
        gradients = {f"gradient {name}": parameter.grad for name, parameter in model.named_parameters()}
        snapshots.append(kit.snapshot(model, optimizer, sparsifier) | gradients)
    kit.check_equal(*snapshots)


class Twice(torch.optim.Optimizer):
    """Evaluates the model twice in a step."""

    def step(self, closure: Any) -> None:  # type: ignore[override]
        closure()
        closure()


def test_of_several_evaluations_in_an_update_step_the_gradient_of_the_last_remains(kit: Kit) -> None:
    model = kit.net()
    optimizer = Twice(model.parameters(), {})
    granet.sparsify(model, optimizer, granet.RigL(sparsity=0.5, every=1, step_on_update=False), total_steps=STEPS)
    batches, seen = kit.batches(2), []

    def closure() -> None:
        optimizer.zero_grad()
        kit.backward(model, next(batches))
        seen.append(model[6].bias.grad.clone())

    optimizer.step(closure)
    assert torch.equal(model[6].bias.grad, seen[1])
    assert not torch.equal(seen[0], seen[1])


def test_a_scheduler_sees_an_ordinary_optimizer(kit: Kit) -> None:
    model, optimizer, sparsifier = start(kit)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for batch in kit.batches(STEPS):
        kit.backward(model, batch)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    assert sparsifier.step == STEPS
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0)
    kit.check_count(sparsifier)


def test_remove_leaves_sparse_weights_and_an_ordinary_optimizer(kit: Kit) -> None:
    model, optimizer, sparsifier = start(kit)
    other_hooks = optimizer.register_step_post_hook(lambda *_: None)
    kit.train(model, optimizer, 6)
    before = kit.snapshot(model, optimizer, sparsifier)
    with pytest.warns(UserWarning, match="training ends at step 6, before the last update"):
        sparsifier.remove()
    sparsifier.remove()
    assert not optimizer._optimizer_step_pre_hooks
    assert list(optimizer._optimizer_step_post_hooks) == [other_hooks.id]
    kit.check_equal(before, kit.snapshot(model, optimizer, sparsifier))
    kit.train(model, optimizer, 1)
    assert sparsifier.step == 6
    assert any(torch.count_nonzero(v.weight[~v.mask]) for v in sparsifier.layers.values())  # free again


def test_other_weights_loaded_in_between_are_sparse_in_the_end(kit: Kit) -> None:
    """Nobody is told of them while the masks stay as they are; whoever parts with the sparsifier is, and gets zeros."""
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.8))
    kit.train(model, optimizer, 3)
    model.load_state_dict({name: torch.ones_like(value) for name, value in model.state_dict().items()})
    with pytest.warns(UserWarning, match="not zero though they should be"):
        sparsifier.remove()
    for layer in sparsifier.layers.values():
        assert torch.equal(layer.weight != 0, layer.mask)
