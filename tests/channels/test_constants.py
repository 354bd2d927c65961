"""What is said to be known is so: in every tensor of a forward pass, on inputs of several values and sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from granet.channels import export, find_constants
from granet.channels.known import Known
from nets import CHANNELS
from quick import slow_but_for
from smaller import Model, kill, shaken

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def check(model: nn.Module, x: Tensor) -> dict[str, float]:
    """Compare with what is computed; operator to the share of its output that is known."""
    model = model.eval()
    exported = export(model, x)
    states = find_constants(exported)
    shares = {}

    class Watch(fx.Interpreter):
        def run_node(self, node: fx.Node) -> object:
            found = super().run_node(node)
            state = states.get(node)
            if isinstance(state, Known) and isinstance(found, Tensor) and node.op == "call_function":
                known = state.full(found.shape)
                torch.testing.assert_close(
                    found[known.where].double(), known.value[known.where].double(), rtol=1e-4, atol=1e-5
                )
                shares[node.name] = float(known.where.float().mean())
            return found

    graph = exported.nodes[0].graph
    module = fx.GraphModule(nn.Module(), graph)
    for seed in range(2):
        inputs = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
        values = [
            exported.values[name] if (name := exported.name(node)) is not None else inputs
            for node in graph.nodes
            if node.op == "placeholder"
        ]
        Watch(module).run(*values)
    return shares


@pytest.mark.parametrize("name", slow_but_for(["residual"], CHANNELS))
def test_in_networks(name: str) -> None:
    model = shaken(CHANNELS[name][0]())
    weights = {name: [0, 1] for name, p in model.named_parameters() if p.ndim > 1 and len(p) > 2}
    kill(model, weights)
    shares = check(model, IMAGES)
    assert sum(share > 0 for share in shares.values()) > 3


BETWEEN: dict[str, tuple[Callable[[Model, Tensor], Tensor], float]] = {
    "relu": (lambda self, x: F.relu(x), 0.5),
    "softplus": (lambda self, x: F.softplus(x), 0.5),
    "plus itself, shifted": (lambda self, x: x + 2 * x - 1, 0.5),
    "times what is not known": (lambda self, x: x * self.other(x).sigmoid(), 0.25),
    "plus what is not known": (lambda self, x: x + self.other(x), 0),
    "max pool": (lambda self, x: F.max_pool2d(x, 3, 1, 1), 0.5),
    "average pool": (lambda self, x: F.avg_pool2d(x, 2), 0.5),
    "padded average pool": (lambda self, x: F.avg_pool2d(x, 3, 2, 1), 0.25),
    "upsampled": (lambda self, x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), 0.5),
    "mean": (lambda self, x: x.mean((2, 3)), 0.5),
    "sum": (lambda self, x: x.sum((2, 3)), 0.25),
    "mean of channels": (lambda self, x: x.mean(1), 0),
    "softmax": (lambda self, x: x.softmax(1), 0),
    "flattened": (lambda self, x: x.flatten(1), 0.5),
    "turned": (lambda self, x: x.permute(0, 2, 3, 1).flip(3), 0.5),
    "halves": (lambda self, x: torch.cat(x.chunk(2, 1)[::-1], 1), 0.5),
    "shuffled": (lambda self, x: F.channel_shuffle(x, 2), 0.5),
    "picked": (lambda self, x: x[:, 1], 1),
    "padded": (lambda self, x: F.pad(x, (0, 0, 0, 0, 0, 4)), 0.75),
    "layer norm": (lambda self, x: F.layer_norm(x, x.shape[1:]), 0),
}


@pytest.mark.parametrize("name", slow_but_for(["times what is not known", "padded average pool", "halves"], BETWEEN))
def test_through_an_operator(name: str) -> None:
    """Of four filters one is zero, and one is a constant."""
    between, share = BETWEEN[name]
    model = shaken(
        Model(lambda self, x: between(self, self.a(x)), a=nn.Conv2d(3, 4, 3, padding=1), other=nn.Conv2d(4, 4, 1))
    )
    kill(model, {"a.weight": [0, 1]})
    model.a.bias.data[0] = 0
    assert list(check(model, IMAGES).values())[-1] == share


def test_a_part_of_a_table_is_not_taken_for_all_of_it() -> None:
    """Another input may be longer, and take more of it."""
    model = Model(lambda self, x: self.a(x.flatten(2).transpose(1, 2)) * self.table[: x.shape[2]], a=nn.Linear(3, 4))
    shaken(model)
    model.table = nn.Parameter(torch.randn(20, 4))
    model.table.data[:8, 0] = 0  # only as long as the example
    model.table.data[:, 1] = 0
    assert list(check(model, IMAGES[:, :, :, 0]).values())[-1] == 0.25
