"""Pruning in one call: the masks that training would begin with, in place, without an optimizer."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import granet
from quick import slow_but_for
from refusals import refused

BATCHES = [(torch.randn(16, 3, 8, 8, generator=torch.manual_seed(i)), torch.arange(16) % 5) for i in range(8)]
ONCE = {
    "grasp": granet.GraSP(sparsity=0.8),
    "magnitude-init": granet.MagnitudeInit(sparsity=0.8),
    "prune-once": granet.PruneOnce(rate=0.8),
    "snip": granet.SNIP(sparsity=0.8),
    "static": granet.Static(sparsity=0.8),
    "synflow": granet.SynFlow(sparsity=0.8, rounds=5),
    "lrr": granet.LRR(sparsity=0.8),
    "lth": granet.LTH(sparsity=0.8),
    "one-shot": granet.OneShot(sparsity=0.8),
    "sis": granet.SIS(sparsity=0.8, iterations=10),
    "wanda": granet.Wanda(sparsity=0.8, pattern="weight"),
}


@pytest.fixture(autouse=True)
def _no_warnings(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    yield
    assert [str(warning.message) for warning in recwarn] == []


def net(seed: int = 0) -> nn.Sequential:
    """Batch norm has seen a few batches, and no bias is zero."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 5)
    )
    nn.init.normal_(model[1].bias)
    for x, _ in BATCHES:
        model(x)
    return model


def asked(method: granet.Method, seed: int = 3) -> dict[str, Any]:
    more = {"trained": net(1).state_dict()} if isinstance(method, granet.LTH) and type(method) is granet.LTH else {}
    return {"batches": BATCHES, "loss": functional.cross_entropy, "seed": seed, **more}


def same(one: nn.Module, other: nn.Module) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in one.state_dict().items())


def test_every_method_either_prunes_at_once_or_is_refused() -> None:
    for info in granet.list_methods():
        if info.cls.__module__.startswith("granet.") and info.name not in ONCE:
            method = info.cls(**({} if info.name in ("str", "vd") else {"sparsity": 0.8}))
            model = net()
            with refused("method", method, "grasp, ", unchanged=(model,)):
                granet.prune(model, method)


@pytest.mark.parametrize("name", slow_but_for(ONCE.keys() - {"sis"}, ONCE))
def test_masks_and_weights_are_those_that_training_would_begin_with(name: str) -> None:
    method, pruned, begun = ONCE[name], net(), net()
    masks = granet.prune(pruned, method, **asked(method))
    optimizer = torch.optim.SGD(begun.parameters(), lr=0.1)
    sparsifier = granet.sparsify(begun, optimizer, method, **asked(method))
    assert masks.keys() == sparsifier.masks.keys()
    assert all(torch.equal(mask, sparsifier.masks[name]) for name, mask in masks.items())
    assert same(pruned, begun)
    size = sum(mask.numel() for mask in masks.values())
    assert sum(int(mask.sum()) for mask in masks.values()) == size - round(0.8 * size)


@pytest.mark.parametrize("name", slow_but_for(["lrr", "one-shot", "wanda"], ["lrr", "one-shot", "sis", "wanda"]))
def test_the_model_as_it_stands_is_the_finished_run(name: str) -> None:
    """And its own state given as that run changes nothing."""
    method, without, given = ONCE[name], net(), net()
    masks = granet.prune(without, method, batches=BATCHES)
    again = granet.prune(given, method, batches=BATCHES, trained=net().state_dict())
    assert all(torch.equal(mask, again[name]) for name, mask in masks.items())
    assert same(without, given)
    if name != "sis":  # which moves the weights that stay
        dense = dict(net().named_parameters())
        for place, value in without.named_parameters():
            assert torch.equal(value, dense[place] * masks[place] if place in masks else dense[place])


def test_only_a_ticket_needs_a_run() -> None:
    model = net()
    with refused("trained", None):
        granet.prune(model, granet.LTH(sparsity=0.8))
    assert same(model, net())


def test_nothing_else_changes() -> None:
    model = net().train()
    before, state = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    parameters = [(id(p), p.data_ptr(), p.requires_grad) for p in model.parameters()]
    masks = granet.prune(model, granet.SNIP(sparsity=0.9), batches=BATCHES, loss=functional.cross_entropy)
    assert parameters == [(id(p), p.data_ptr(), p.requires_grad) for p in model.parameters()]
    assert all(module.training and not module._forward_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(state, torch.random.get_rng_state())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name] * masks[name] if name in masks else before[name])


@pytest.mark.parametrize("name", slow_but_for(["one-shot", "snip", "wanda"], ["one-shot", "snip", "sis", "wanda"]))
def test_frozen_weights_are_pruned_as_others(name: str) -> None:
    frozen, free = net().requires_grad_(False), net()
    masks, others = (granet.prune(model, ONCE[name], **asked(ONCE[name])) for model in (frozen, free))
    assert all(torch.equal(mask, others[name]) for name, mask in masks.items())
    assert same(frozen, free)
    assert not any(p.requires_grad for p in frozen.parameters())


def test_what_is_left_out_stays() -> None:
    model = net()
    masks = granet.prune(model, granet.OneShot(sparsity=0.5), include=("3.*", "6.*"), exclude=("6.weight",))
    assert list(masks) == ["3.weight"]
    assert int(masks["3.weight"].sum()) == 216
    with refused("include", "9.*"):
        granet.prune(model, granet.OneShot(sparsity=0.5), include=("9.*",))


@pytest.mark.parametrize("frozen", [False, True])
def test_dropped_filters_are_silent_and_what_reads_them_is_zero(frozen: bool) -> None:
    model = net().requires_grad_(not frozen)
    masks = granet.prune(model, granet.OneShot(sparsity=0.6, pattern="filter"), exclude=("6.weight",))
    dropped = [~masks[name].flatten(1).any(1) for name in ("0.weight", "3.weight")]
    assert all(one.any() and not one.all() for one in dropped)
    outputs = BATCHES[0][0]
    model.eval()
    for place, module in enumerate(model):
        outputs = module(outputs)
        if place in (1, 4):
            silent = outputs[:, dropped[place // 4]]
            assert silent.count_nonzero() == 0
            assert outputs.any()
    assert not model[3].weight[:, dropped[0]].any()
    held = dict(model.named_parameters())
    assert masks.keys() > {"0.weight", "1.bias", "3.weight", "3.bias", "6.weight"}
    assert all(torch.equal(held[name] != 0, mask) for name, mask in masks.items())


def test_the_masks_are_what_flops_and_save_take(tmp_path: Any) -> None:
    model, fresh = net(), net(9)
    masks = granet.prune(model, granet.OneShot(sparsity=0.9))
    assert granet.flops(model, torch.ones(1, 3, 8, 8), masks=masks).ratio < 0.4
    granet.save(model=model, path=tmp_path / "small.safetensors", masks=masks)
    granet.load(model=fresh, path=tmp_path / "small.safetensors")
    assert same(model, fresh)


def test_a_pruned_model_is_pruned_further() -> None:
    twice, once = net(), net()
    granet.prune(twice, granet.OneShot(sparsity=0.5))
    granet.prune(twice, granet.OneShot(sparsity=0.8))
    granet.prune(once, granet.OneShot(sparsity=0.8))
    assert same(twice, once)


WRONG: list[tuple[Any, dict[str, Any], str, Any]] = [
    ("one-shot", {}, "method", "one-shot"),
    (ONCE["static"], {"seed": "0"}, "seed", "0"),
    (ONCE["static"], {"floor": -1}, "floor", -1),
    (ONCE["snip"], {}, "batches", None),
    (ONCE["snip"], {"batches": BATCHES}, "loss", None),
    (granet.OneShot(sparsity=0.999), {}, "sparsity", 0.999),
]


@pytest.mark.parametrize(("method", "options", "field", "value"), WRONG, ids=str)
def test_what_cannot_be_used_is_refused(method: Any, options: dict[str, Any], field: str, value: Any) -> None:
    model = net()
    with refused(field, value, unchanged=(model,)):
        granet.prune(model, method, **options)
    parameters = dict(model.named_parameters())
    with refused("model", parameters):
        granet.prune(parameters, ONCE["one-shot"])  # type: ignore[arg-type]


def test_weights_that_a_sparsifier_holds_are_refused() -> None:
    """Its masks would no longer be those of the weights."""
    model = net()
    sparsifier = granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), ONCE["static"])
    with refused("model", ..., "'0.weight'", "remove()", unchanged=(model,)):
        granet.prune(model, ONCE["one-shot"])
    sparsifier.remove()
    granet.prune(model, granet.OneShot(sparsity=0.9))


# A real transformer.


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, num_labels=3
    )
    model: nn.Module = transformers.BertForSequenceClassification(config)
    return model


def tokens(seed: int) -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(60, (4, 7), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ids.sum(1) % 3


@pytest.mark.parametrize("name", ["one-shot", "magnitude-init", "snip", "static"])
def test_a_transformer_has_the_zeros_that_were_asked_for(name: str) -> None:
    model = bert()
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    masks = granet.prune(
        model,
        ONCE[name],
        batches=[tokens(0)],
        loss=lambda outputs, targets: functional.cross_entropy(outputs.logits, targets),
    )
    assert masks.keys() == linear
    weights = {name: weight for name, weight in model.named_parameters() if name in linear}
    size = sum(weight.numel() for weight in weights.values())
    assert sum(int((weight == 0).sum()) for weight in weights.values()) == round(0.8 * size)
    assert all(torch.equal(weight != 0, masks[name]) for name, weight in weights.items())
    assert model(**tokens(1)[0]).logits.isfinite().all()
