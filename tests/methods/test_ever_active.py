"""R_s of ITOP: the share of weights that have been active at some time."""

from __future__ import annotations

import torch
from torch import nn

import granet


def train(optimizer: torch.optim.Optimizer, model: nn.Module, steps: range):
    for step in steps:
        optimizer.zero_grad()
        x = torch.randn(8, 12, generator=torch.Generator().manual_seed(step))
        nn.functional.cross_entropy(model(x), x[:, :6].argmax(1)).backward()
        optimizer.step()
        yield step


def start(method: granet.Method, seed: int = 0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=60, seed=seed)


def test_it_is_the_union_of_all_masks_so_far() -> None:
    model, optimizer, sparsifier = start(granet.RigLITOP(sparsity=0.85, every=4))
    union = {name: mask.clone() for name, mask in sparsifier.masks.items()}
    shares = []
    for step in train(optimizer, model, range(1, 60)):
        for name, mask in sparsifier.masks.items():
            union[name] |= mask
        if step % 4 == 0:
            shares.append(sum(int(mask.sum()) for mask in union.values()) / 360)
    assert [record.ever_active for record in sparsifier.history] == shares
    assert 0.15 < shares[0] < shares[-1] <= 1


def test_other_methods_do_not_track_it() -> None:
    model, optimizer, sparsifier = start(granet.RigL(sparsity=0.85, every=4))
    list(train(optimizer, model, range(1, 10)))
    assert [record.ever_active for record in sparsifier.history] == [None, None]
