"""GradScaler: a step it skips is not counted, whether it skips by not calling or inside a fused optimizer."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import granet

Kit = SimpleNamespace
STEPS = 10
METHOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "sgd-fused": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "fused": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "adamw-fused": (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
}


def start(kit: Kit, optimizer: str) -> tuple[nn.Module, Any, granet.Sparsifier]:
    model = kit.net()
    model.eval()  # running statistics would show a batch more in the forward pass
    kind, options = OPTIMIZERS[optimizer]
    optim = kind(model.parameters(), **options)
    return model, optim, granet.sparsify(model, optim, METHOD, total_steps=STEPS)


def scaled_step(kit: Kit, run: tuple[nn.Module, Any, granet.Sparsifier], scaler: Any, batch: Any, **how: bool) -> None:
    """One step of the loop in torch's AMP notes; ``spoil`` puts an inf into a gradient, ``clip`` masks and clips."""
    model, optimizer, sparsifier = run
    optimizer.zero_grad()
    scaler.scale(nn.functional.cross_entropy(model(batch[0]), batch[1])).backward()
    if how.get("spoil"):
        model[4].weight.grad.view(-1)[5] = torch.inf
    if how.get("clip"):
        scaler.unscale_(optimizer)
        sparsifier.mask_gradients()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_skipped_steps_leave_no_trace(kit: Kit, optimizer: str, clip: bool) -> None:
    """Steps 2 and 4 update masks, step 3 does not; each is skipped once, then taken. Scales are powers of two."""
    calm, troubled = start(kit, optimizer), start(kit, optimizer)
    scalers = [torch.amp.GradScaler("cpu", init_scale=64.0) for _ in range(2)]
    strange = next(iter(kit.batches(1, seed=99)))
    for step, batch in enumerate(kit.batches(STEPS), start=1):
        scaled_step(kit, calm, scalers[0], batch, clip=clip)
        if step in (2, 3, 4):
            before = kit.snapshot(*troubled)
            scaled_step(kit, troubled, scalers[1], strange, clip=clip, spoil=True)
            assert troubled[2].step == step - 1
            kit.check_equal(before, kit.snapshot(*troubled))
        scaled_step(kit, troubled, scalers[1], batch, clip=clip)
        kit.check_zeros(troubled[2])
    assert scalers[1].get_scale() == 8.0
    assert calm[2].step == troubled[2].step == STEPS
    assert calm[2].history == troubled[2].history
    assert not any(record.skipped for record in calm[2].history)
    for (name, p), (_, q) in zip(calm[0].named_parameters(), troubled[0].named_parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5, msg=name)  # Adam's eps is not a power of two


def test_scaled_gradients_grow_the_same_weights(kit: Kit) -> None:
    """A fused optimizer gets the gradients still scaled; the ranking of a layer does not depend on that."""
    scaled, plain = start(kit, "sgd-fused"), start(kit, "sgd-fused")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for batch in kit.batches(STEPS):
        scaled_step(kit, scaled, scaler, batch)
        kit.backward(plain[0], batch)
        plain[1].step()
        plain[1].zero_grad()
    kit.check_equal(kit.snapshot(*plain), kit.snapshot(*scaled))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_skip_inside_a_fused_optimizer_forgets_the_gradient_kept_for_growth(set_to_none: bool) -> None:
    """The next gradient may be zero where weights are masked, and must still replace the one that overflowed."""
    model = nn.Linear(6, 6, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    sparsifier = granet.sparsify(model, optimizer, granet.RigL(sparsity=0.5, every=1), total_steps=8)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for x in (torch.full((2, 6), torch.inf), torch.zeros(2, 6)):
        optimizer.zero_grad(set_to_none=set_to_none)
        scaler.scale(model(x).nansum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert sparsifier.step == 1
    assert [record.skipped for record in sparsifier.history] == [False]


def test_a_fused_optimizer_that_skips_its_first_step_leaves_the_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes its momenta without values, which a skipped step does not write; memory may hold anything then."""
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *given, **how: empty_like(*given, **how).fill_(7.0))
    model = nn.Linear(6, 6, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for x in (torch.full((2, 6), torch.inf), torch.ones(2, 6)):
        optimizer.zero_grad()
        scaler.scale(model(x).nansum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert sparsifier.step == 1
    assert (model.weight == 0).sum() == 18 == (optimizer.state[model.weight]["momentum_buffer"] == 0).sum()


@pytest.mark.parametrize("clear", ["the optimizer's", "the model's", "the model's, to zeros"])
@pytest.mark.parametrize(
    "method", [granet.STR(s_init=-3.0, every=3), granet.VD(examples=50, every=3), granet.DPF(sparsity=0.5, every=3)]
)
def test_an_overflow_costs_what_is_hidden_one_step(method: granet.Method, clear: str) -> None:
    """The parameters of these methods are the optimizer's, but not the model's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=12)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for step in range(12):
        scaler.scale(nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(4, (16,)))).backward()
        if step == 3:
            for parameter in (one for group in optimizer.param_groups for one in group["params"]):
                if parameter.grad is not None:
                    parameter.grad.fill_(torch.inf)
        scaler.unscale_(optimizer)
        sparsifier.mask_gradients()
        scaler.step(optimizer)
        scaler.update()
        if clear == "the optimizer's":
            optimizer.zero_grad()
        else:
            model.zero_grad(set_to_none=clear == "the model's")
    assert (sparsifier.step, scaler.get_scale()) == (11, 32.0)
