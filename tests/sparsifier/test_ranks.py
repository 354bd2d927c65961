"""Two processes that train one model on different batches, under DistributedDataParallel: one set of masks."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import granet

METHODS = {
    "granet": granet.GraNet(sparsity=0.9, initial_sparsity=0.3, every=2, prune_end=16),
    "set": granet.SET(sparsity=0.8, every=3),
}


def train(rank: int, folder: Path) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    ends = {}
    for name, method in METHODS.items():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        sparsifier = granet.sparsify(model, optimizer, method, total_steps=20)
        wrapped = DistributedDataParallel(model)
        torch.manual_seed(1 + rank)
        for _ in range(20):
            nn.functional.cross_entropy(wrapped(torch.randn(16, 20)), torch.randint(10, (16,))).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert sparsifier.sparsity == method.sparsity and sparsifier.history[-1].regrown > 0
        ends[name] = {"weights": model.state_dict(), "masks": sparsifier.masks}
    ends["vd"] = train_with_noise(rank)
    ends["rigl"], ends["rigl, masked early"] = train_in_parts(rank, early=False), train_in_parts(rank, early=True)
    torch.save(ends, folder / f"{rank}.pt")
    distributed.destroy_process_group()


class Blocks(nn.Module):
    """Two blocks of the same shape, one of which may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(10, 16), nn.Linear(16, 5)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x: torch.Tensor, out: int | None) -> torch.Tensor:
        x = self.first(x)
        for number, block in enumerate(self.blocks):
            x = x if number == out else x + block(x).relu()
        return self.last(x)


def train_with_noise(rank: int) -> dict[str, dict[str, torch.Tensor]]:
    """Each rank leaves out another block in some steps; the noise of one rank overflows once, in two micro-batches."""
    torch.manual_seed(0)
    model = Blocks()
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.VD(examples=50, every=3), total_steps=12)
    scaler, step = torch.amp.GradScaler("cpu", init_scale=64.0), 0
    variance = sparsifier.layers["first.weight"].hidden
    variance.register_hook(lambda gradient: gradient / 0 if (rank, step) == (1, 4) else gradient)
    torch.manual_seed(1 + rank)
    for step in range(12):
        for last in (False, True):
            with nullcontext() if last else wrapped.no_sync():
                outputs = wrapped(torch.randn(8, 10), rank if step % 3 else None)
                scaler.scale(nn.functional.cross_entropy(outputs, torch.randint(5, (8,)))).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert sparsifier.step == 11 and scaler.get_scale() == 32.0
    noise = {name: layer.hidden.detach() for name, layer in sparsifier.layers.items()}
    assert all((one + 10).abs().max() > 0.1 for one in noise.values())
    return {"weights": model.state_dict(), "masks": sparsifier.masks, "noise": noise}


def train_in_parts(rank: int, early: bool) -> dict[str, dict[str, torch.Tensor]]:
    """Two micro-batches, of which the first is not shared; ``early``: between them, gradients are masked.

    Each rank then keeps gradients of its own, and must not let weights grow by them.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = granet.sparsify(model, optimizer, granet.RigL(sparsity=0.8, every=2), total_steps=12)
    torch.manual_seed(1 + rank)
    for _ in range(12):
        for last in (False, True):
            with nullcontext() if last else wrapped.no_sync():
                nn.functional.cross_entropy(wrapped(torch.randn(16, 20)), torch.randint(10, (16,))).backward()
            if early and not last:
                sparsifier.mask_gradients()
        optimizer.step()
        optimizer.zero_grad()
    assert sparsifier.history[0].regrown > 0
    return {"weights": model.state_dict(), "masks": sparsifier.masks}


@pytest.mark.slow
@pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="needs gloo")
def test_masks_and_weights_are_the_same_on_all_ranks(tmp_path: Path) -> None:
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank), tmp_path]) for rank in range(2)]
    try:
        assert [rank.wait(300) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()  # one that waits for another that failed
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name in first:
        for kind in first[name]:
            assert all(torch.equal(value, second[name][kind][key]) for key, value in first[name][kind].items())
    masks = first["rigl"]["masks"], first["rigl, masked early"]["masks"]
    assert all(torch.equal(mask, masks[1][name]) for name, mask in masks[0].items())


if __name__ == "__main__":
    train(int(sys.argv[1]), Path(sys.argv[2]))
