"""A training whose masks the Triton kernels handle is, bit for bit, the one that plain operations give.

Triton's interpreter runs the kernels on the CPU, and they are told that they can work there.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import granet
from granet import masking, selection

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels are compiled for the CUDA device here"),
]

Kit = SimpleNamespace
STEPS = 5
METHODS = {
    "granet": granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=4, every=2),
    "granet, mean gradient": granet.GraNet(
        sparsity=0.8, initial_sparsity=0.4, prune_end=4, every=3, grow_batch_count=2
    ),
    "granet, filters": granet.GraNet(sparsity=0.5, prune_end=4, every=2, pattern="filter"),
    "gmp": granet.GMP(sparsity=0.8, prune_end=4, every=2),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.kernels.layer_table.BLOCK", 64)
    monkeypatch.setattr("granet.kernels.layer_table.PIECE", 128)


def run(
    kit: Kit, method: granet.Method, spoil: int | None = None, mask_first: bool = False
) -> tuple[dict[str, Tensor], list[granet.UpdateRecord]]:
    """Train. ``spoil``: the step whose gradient is NaN where weights are off; ``mask_first``: mask before that, too."""
    model = kit.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
    for step, batch in enumerate(kit.batches(STEPS), start=1):
        kit.backward(model, batch)
        if mask_first:
            late, model[0].weight.grad = model[0].weight.grad, None
            sparsifier.mask_gradients()
            model[0].weight.grad = late  # one new gradient beside old ones
            model[4].weight.grad = model[4].weight.grad.clone()
        if step == spoil:
            layer = sparsifier.layers["4.weight"]
            layer.weight.grad[~layer.mask] = torch.nan
        optimizer.step()
        kit.check_zeros(sparsifier)
        optimizer.zero_grad()
    return kit.snapshot(model, optimizer, sparsifier), sparsifier.history


def check_the_same(kit: Kit, monkeypatch: pytest.MonkeyPatch, method: str, **how: int) -> list[granet.UpdateRecord]:
    plain, history = run(kit, METHODS[method], **how)
    for module in (masking, selection):
        monkeypatch.setattr(module, "runs_kernels", lambda device: True)
    monkeypatch.setattr(selection, "TorchRanking", None)  # and nothing else is at work
    ours, records = run(kit, METHODS[method], **how)
    kit.check_equal(plain, ours)
    assert history == records
    return records


@pytest.mark.filterwarnings("ignore:granet. pattern='filter'")
@pytest.mark.parametrize("method", METHODS)
def test_the_same_training(kit: Kit, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    check_the_same(kit, monkeypatch, method)


@pytest.mark.filterwarnings("ignore:granet. step .. a gradient is not finite")
@pytest.mark.parametrize(
    ("method", "spoil", "mask_first"),
    [("granet", 4, False), ("granet", 4, True), ("granet, mean gradient", 2, False)],  # the mean of steps 2 and 3
)
def test_a_gradient_that_is_not_finite(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, method: str, spoil: int, mask_first: bool
) -> None:
    records = check_the_same(kit, monkeypatch, method, spoil=spoil, mask_first=mask_first)
    assert any(record.skipped for record in records)
