"""Parts that were made apart, together: patterns, means of gradients, ever-active weights, a start, hidden weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import granet
from granet.hidden import FrozenWeights, Hidden
from granet.methods.gradient_memory import GradientMemory, Momentum
from granet.weights import SparseLayer

Kit = SimpleNamespace
PATTERNS = {"2x3": 0.5, "filter": 0.5, "fan-in": 0.6, "1:2": 0.5}


def start(model: nn.Module, method: granet.Method, **options: Any) -> tuple[nn.Module, Optimizer, granet.Sparsifier]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=20, **options)


def block_means(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    matrix = np.abs(values.reshape(len(values), -1).astype(np.float64))
    split = matrix.reshape(len(matrix) // rows, rows, -1, columns)
    return split.mean(axis=(1, 3)).astype(np.float32).reshape(-1)


def first(score: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    order = np.argsort(-np.where(candidates, score, -1), kind="stable")[:count]
    result = np.zeros(len(score), bool)
    result[order] = True
    return result & candidates


def test_blocks_grow_where_the_mean_of_several_gradients_is_large(kit: Kit) -> None:
    rows, columns, window = 2, 3, 3
    method = granet.RigL(sparsity=0.5, pattern="2x3", every=4, end=20, regrow=0.4, grow_batch_count=window)
    model, optimizer, sparsifier = start(kit.net(), method, exclude=("6.weight",))
    updates, seen = 0, {name: [] for name in sparsifier.layers}
    for step, batch in enumerate(kit.batches(20), 1):
        kit.backward(model, batch)
        for name, layer in sparsifier.layers.items():
            seen[name].append(layer.weight.grad.clone())
        before = {name: mask.clone() for name, mask in sparsifier.masks.items()}
        # What the optimizer makes of the weights, before the masks change: by a copy without updates.
        twin_model, twin_optimizer, twin = copy.deepcopy((model, optimizer, sparsifier))
        for mine, theirs in zip(model.parameters(), twin_model.parameters(), strict=True):
            theirs.grad = mine.grad.clone()
        for name, layer in twin.layers.items():
            layer.weight.grad *= before[name]
        twin.remove()
        twin_optimizer.step()
        trained = {name: layer.weight.detach().numpy() for name, layer in twin.layers.items()}
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 or step >= 20:
            continue
        updates += 1
        for name, layer in sparsifier.layers.items():
            active = block_means(before[name].numpy(), rows, columns) > 0
            moved = math.floor(active.sum() * 0.4 / 2 * (1 + math.cos(math.pi * step / 20)))
            kept = first(block_means(trained[name], rows, columns), active, active.sum() - moved)
            mean = torch.stack(seen[name][-window:]).double().mean(0).numpy()
            expected = kept | first(block_means(mean, rows, columns), ~kept, moved)
            assert np.array_equal(block_means(layer.mask.numpy(), rows, columns) > 0, expected), (step, name)
            assert moved > 0 or step > 12
    assert updates == 4


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.filterwarnings("ignore:granet. pattern='filter'")
@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_ever_active_is_the_union_of_masks_under_patterns(kit: Kit, pattern: str) -> None:
    method = granet.RigLITOP(sparsity=PATTERNS[pattern], pattern=pattern, every=3)
    model, optimizer, sparsifier = start(kit.net(), method, exclude=("6.weight",))
    union = {name: mask.clone() for name, mask in sparsifier.masks.items()}
    expected = []
    for batch in kit.batches(20):
        kit.backward(model, batch)
        optimizer.step()
        optimizer.zero_grad()
        for name, mask in sparsifier.masks.items():
            union[name] |= mask
        if sparsifier.step % 3 == 0:
            expected.append(sum(int(u.sum()) for u in union.values()) / sum(u.numel() for u in union.values()))
    assert [record.ever_active for record in sparsifier.history] == expected
    assert expected[-1] > 1 - PATTERNS[pattern] + 0.05


@dataclass(frozen=True, kw_only=True)
class Remembering(granet.GMP):
    """Takes a copy of every gradient, and lets nothing grow back."""

    gradient_memory: ClassVar[GradientMemory] = Momentum(0.9)


@pytest.mark.filterwarnings("ignore:granet. pattern='filter'")
@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_biases_of_dropped_filters_have_no_gradient_where_gradients_are_remembered() -> None:
    """Copying the layers' gradients masks these; what depends on the layers still has to be masked."""
    torch.manual_seed(0)
    method = Remembering(sparsity=0.5, pattern="filter", every=4, prune_end=12)
    model, optimizer, sparsifier = start(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4)), method)
    for _ in range(20):
        model(torch.randn(16, 6)).square().mean().backward()
        dropped = {name: ~mask.any(1) for name, mask in sparsifier.masks.items()}
        optimizer.step()
        for name, filters in dropped.items():
            assert filters.any() == (sparsifier.step > 4)
            bias = model.get_parameter(name.replace("weight", "bias"))
            assert bias.grad is not None and not bias.grad[filters].any(), f"step {sparsifier.step}: {name}"
        optimizer.zero_grad()


@dataclass(frozen=True, kw_only=True)
class HiddenRewind(granet.LRR):
    """Starts from a finished run, and keeps what it prunes behind the weights."""

    def hide(self, model: nn.Module, layers: Sequence[SparseLayer], optimizer: Optimizer) -> Hidden:
        return FrozenWeights(layers)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_hidden_comes_from_the_run_that_is_taken_over(kit: Kit, compiled: bool) -> None:
    trained = kit.net(3).state_dict()
    plain = kit.net(0)
    model = torch.compile(plain, backend="eager") if compiled else plain
    _, optimizer, sparsifier = start(model, HiddenRewind(sparsity=0.5), trained=trained)  # type: ignore[arg-type]
    for name, layer in sparsifier.layers.items():
        assert layer.hidden is not None and torch.equal(layer.hidden, trained[name])
        assert torch.equal(layer.weight, torch.where(layer.mask, trained[name], 0.0))
    kit.train(model, optimizer, 3)
    for name, layer in sparsifier.layers.items():  # frozen while it is off
        assert layer.hidden is not None
        assert torch.equal(layer.hidden[~layer.mask], trained[name][~layer.mask])
        assert not torch.equal(layer.hidden[layer.mask], trained[name][layer.mask])
    kit.check_zeros(sparsifier)
    assert sparsifier.target_sparsity == 0.5


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_filters_of_a_model_wrapped_for_several_ranks_are_followed(kit: Kit, one_rank: None) -> None:
    model, optimizer, sparsifier = start(
        DistributedDataParallel(kit.net()),
        granet.GMP(sparsity=0.5, pattern="filter", distribution="uniform", every=2, prune_end=8),
        exclude=("*6.weight",),
    )
    kit.train(model, optimizer, 10)
    dropped = ~sparsifier.masks["module.0.weight"].flatten(1).any(1)
    assert dropped.any() and not model.get_parameter("module.1.bias")[dropped].any()
