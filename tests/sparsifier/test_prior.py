"""What methods may look at before they begin: only those that ask, and nothing of it stays."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

import granet

Kit = SimpleNamespace


def test_methods_that_do_not_look_never_touch_the_batches(kit: Kit) -> None:
    def forbidden() -> Any:
        raise AssertionError("looked")
        yield

    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, granet.Static(sparsity=0.5), batches=forbidden(), loss=None, trained={})


def test_nothing_of_what_was_looked_at_is_kept(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"batches": kit.batches(2), "loss": nn.functional.cross_entropy, "trained": kit.net(1).state_dict()}
    sparsifier = granet.sparsify(model, optimizer, granet.LRR(sparsity=0.8), **given)
    assert not hasattr(sparsifier._net, "probe")
    assert sparsifier._net.start is None
