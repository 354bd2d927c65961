"""A mask update asks for nothing that would make the host wait for a CUDA device, seen without one.

Values that the host would read, and shapes that depend on values, are refused while an update runs. The plain ranking
does both, and on a CUDA device a Triton kernel stands in for it (see tests/test_selection.py), so it is let through. So
is the search for NaN in scores, which is left out on a CUDA device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import granet
from granet.net import proposal
from granet.selection import TorchRanking
from granet.sparsifier.history import History
from quick import slow_but_for

WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero", "item"}


class NoCopies(TorchFunctionMode):
    """No way from a tensor to Python or numpy; on the CPU these are no operators."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__):
            raise AssertionError(f"{func.__name__} makes the host wait for the device")
        return func(*args, **(kwargs or {}))


class NoWaiting(TorchDispatchMode):
    """No operator whose outcome the host needs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        if name in WAITING or any(isinstance(i, Tensor) and i.dtype == torch.bool for i in indices):
            raise AssertionError(f"{func} makes the host wait for the device")
        return func(*args, **(kwargs or {}))


def let_through(call: Callable[..., Any]) -> Callable[..., Any]:
    def unguarded(*args: Any) -> Any:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return call(*args)

    return unguarded


def train(method: granet.Method, monkeypatch: pytest.MonkeyPatch) -> granet.Sparsifier:
    for name in ("select", "global_counts"):
        monkeypatch.setattr(TorchRanking, name, let_through(getattr(TorchRanking, name)))
    monkeypatch.setattr(TorchRanking, "__init__", let_through(TorchRanking.__init__))
    monkeypatch.setattr(proposal, "check_numbers", let_through(proposal.check_numbers))
    monkeypatch.setattr(History, "arrived", lambda self: [])  # on a CUDA device it asks an event, and does not wait
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = granet.sparsify(
        model,
        optimizer,
        method,
        total_steps=20,
        steps_per_epoch=2,
        exclude=("4.weight",) if ":" in method.pattern else (),
    )
    for _ in range(20):
        model(torch.randn(8, 4, 5, 5)).square().mean().backward()
        with NoWaiting(), NoCopies():
            optimizer.step()
        optimizer.zero_grad()
    return sparsifier


QUICK = [
    granet.GraNet(sparsity=0.8, every=2, prune_end=12),
    granet.GraNet(sparsity=0.8, every=2, prune_end=12, grow_batch_count=2, pattern="2x2"),
    granet.SNFS(sparsity=0.8, every=2),
    granet.DeepR(sparsity=0.8, log_every=2),
    granet.STR(s_init=-3.0, every=2, pattern="filter"),
]
METHODS = [
    *QUICK,
    granet.GraNet(sparsity=0.8, initial_sparsity=0.5, every=2, prune_end=12, distribution="uniform"),
    granet.GraNet(sparsity=0.8, every=2, prune_end=12, score="lamp"),
    granet.GraNet(sparsity=0.5, every=2, prune_end=12, pattern="2:4"),
    granet.GraNet(sparsity=0.5, every=2, prune_end=12, pattern="filter"),
    granet.GraNet(sparsity=0.5, every=2, prune_end=12, pattern="fan-in"),
    granet.GMP(sparsity=0.8, every=2, prune_end=12),
    granet.GMPOriginal(sparsity=0.8, every=2, prune_end=12, distribution="global"),
    granet.DPF(sparsity=0.8, every=2, prune_end=12),
    granet.GS(sparsity=0.8, start=0, rounds=7),
    granet.RigL(sparsity=0.8, every=2),
    granet.RigL(sparsity=0.8, every=2, step_on_update=False),
    granet.RigLITOP(sparsity=0.8, every=2),
    granet.SET(sparsity=0.8, every=2),
    granet.SNFSFixed(sparsity=0.8, every=2),
    granet.DSR(sparsity=0.8, every=2),
    granet.STR(s_init=-3.0, every=2),
    granet.VD(every=2),
    granet.DPF(sparsity=0.5, every=2, prune_end=12, pattern="filter"),
    granet.SNFS(sparsity=0.5, every=2, pattern="filter"),
    granet.DSR(sparsity=0.5, every=2, pattern="filter"),
    granet.DeepR(sparsity=0.5, log_every=2, pattern="filter"),
    granet.VD(every=2, pattern="filter"),
]


@pytest.mark.filterwarnings("ignore:granet. pattern='filter'")
@pytest.mark.parametrize("method", slow_but_for(QUICK, METHODS), ids=repr)
def test_no_update_makes_the_host_wait(method: granet.Method, monkeypatch: pytest.MonkeyPatch) -> None:
    sparsifier = train(method, monkeypatch)
    assert sparsifier.history  # there was something to see


@pytest.mark.parametrize(
    "ask",
    [lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: bool(x.any()), lambda x: x[x > 0], torch.nonzero,
     lambda x: int(x.sum()), lambda x: x.unique()],
)  # fmt: skip
def test_the_guard_sees_what_it_should(ask: Callable[[Tensor], Any]) -> None:
    with pytest.raises(AssertionError, match="makes the host wait"), NoWaiting(), NoCopies():
        ask(torch.ones(3))
