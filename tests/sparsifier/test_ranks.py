"""Two processes that train one model on different batches, under DistributedDataParallel: one set of masks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import granet

METHODS = {
    "granet": granet.GraNet(sparsity=0.9, initial_sparsity=0.3, every=2, end=16),
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
    torch.save(ends, folder / f"{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="needs gloo")
def test_masks_and_weights_are_the_same_on_all_ranks(tmp_path: Path) -> None:
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank), tmp_path]) for rank in range(2)]
    assert [rank.wait(300) for rank in ranks] == [0, 0]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name in METHODS:
        for kind in ("weights", "masks"):
            assert all(torch.equal(value, second[name][kind][key]) for key, value in first[name][kind].items())


if __name__ == "__main__":
    train(int(sys.argv[1]), Path(sys.argv[2]))
