"""A small net, its batches, and a training loop as users write it, for all tests of the sparsifier."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import granet


def net(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(54, 8), nn.ReLU(), nn.Linear(8, 4)
    ).to(dtype)


def batches(steps: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x, y = torch.randn(16, 2, 5, 5, generator=generator), torch.randint(0, 4, (16,), generator=generator)
        yield x.to(dtype), y


def backward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    loss = nn.functional.cross_entropy(model(batch[0]).float(), batch[1])
    loss.backward()
    return loss


def train(
    model: nn.Module, optimizer: Optimizer, steps: int, seed: int = 1, dtype: torch.dtype = torch.float32
) -> None:
    """The loop of the contract: backward, step, zero_grad."""
    for batch in batches(steps, seed, dtype):
        backward(model, batch)
        optimizer.step()
        optimizer.zero_grad()


def grown_by_step(
    model: nn.Module, optimizer: Optimizer, sparsifier: granet.Sparsifier, steps: int
) -> Iterator[dict[str, Tensor]]:
    """Train, and after each step tell which weights it has let grow."""
    for batch in batches(steps):
        before = {name: mask.clone() for name, mask in sparsifier.masks.items()}
        optimizer.zero_grad()
        backward(model, batch)
        optimizer.step()
        yield {name: mask & ~before[name] for name, mask in sparsifier.masks.items()}


def check_zeros(sparsifier: granet.Sparsifier) -> None:
    """Inactive weights are exactly zero."""
    for name, layer in sparsifier.layers.items():
        assert layer.mask.shape == layer.weight.shape
        assert torch.count_nonzero(layer.weight[~layer.mask]) == 0, f"step {sparsifier.step}: {name}"


def active(numel: int, sparsity: float) -> int:
    """How many weights a target leaves: the zeros are a rounded share."""
    return numel - round(numel * sparsity)


def check_count(sparsifier: granet.Sparsifier) -> None:
    """The net holds as many active weights as its last target asks for."""
    numel = sum(layer.numel for layer in sparsifier.layers.values())
    count = sum(int(mask.sum()) for mask in sparsifier.masks.values())
    assert count == active(numel, sparsifier.target_sparsity)


def snapshot(model: nn.Module, optimizer: Optimizer, sparsifier: granet.Sparsifier) -> dict[str, Tensor]:
    """Every tensor of a run, by name."""
    tensors = {f"model {name}": value for name, value in model.state_dict().items()}
    tensors |= {f"mask {name}": mask for name, mask in sparsifier.masks.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer {index} {key}": value for key, value in state.items() if torch.is_tensor(value)}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def check_equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    """Two snapshots hold the same bits."""
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


@pytest.fixture
def kit() -> SimpleNamespace:
    """What the tests share, as one object: conftest cannot be imported."""
    parts: list[Callable[..., object]] = [
        net, batches, backward, train, grown_by_step, check_zeros, active, check_count, snapshot, check_equal
    ]  # fmt: skip
    return SimpleNamespace(**{part.__name__: part for part in parts})
