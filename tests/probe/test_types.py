"""Models in half precision, and models that cast inside: what cannot be called as a method calls it is told plainly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import granet
from quick import slow_but_for


class Casting(nn.Module):
    """Casts what it is given, and what its first layer gives, to fixed types."""

    def __init__(self, first: torch.dtype, second: torch.dtype) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8).to(first), nn.Linear(8, 4).to(second)
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.two(functional.relu(self.one(x.to(self.first))).to(self.second))
        return out


class Autocasting(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            out: Tensor = super().forward(x)
        return out


def sparsified(model: nn.Module, name: str, dtype: torch.dtype = torch.float32) -> granet.Sparsifier:
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(32, 6, generator=generator).to(dtype), torch.arange(32) % 4) for _ in range(4)]
    trained = {"trained": model.state_dict()} if name == "sis" else {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.create_method(name, sparsity=0.5)
    return granet.sparsify(model, optimizer, method, batches=batches, loss=functional.cross_entropy, **trained)


FLOAT, HALF = torch.float32, torch.bfloat16


@pytest.mark.parametrize("name", ["snip", "grasp", "wanda"])
def test_a_model_that_casts_inside_is_called_as_it_is(name: str) -> None:
    assert sparsified(Casting(FLOAT, HALF), name).sparsity == 0.5


@pytest.mark.parametrize("name", slow_but_for(["snip", "wanda"], ["snip", "grasp", "synflow", "sis", "wanda"]))
def test_a_model_with_autocast_inside_works(name: str) -> None:
    assert sparsified(Autocasting(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), name).sparsity == 0.5


@pytest.mark.parametrize(
    ("name", "model", "dtype", "says"),
    [
        ("snip", nn.Linear(6, 4).to(HALF), FLOAT, "weights of bfloat16 and inputs of float32"),
        ("grasp", nn.Linear(6, 4), HALF, "weights of float32 and inputs of bfloat16"),
        ("synflow", Casting(FLOAT, FLOAT), FLOAT, "weights of float64 and inputs of float64"),
        ("synflow", Casting(FLOAT, HALF), FLOAT, "weights of float64 and inputs of float64"),
        ("sis", Casting(FLOAT, HALF), FLOAT, "weights of float32 and inputs of float32"),
    ],
)
def test_types_that_do_not_fit_are_told_in_one_line(name: str, model: nn.Module, dtype: torch.dtype, says: str) -> None:
    told = rf"^model: {name} calls it with {says}, and it fails \(.*type.*\); batches must have .*dtype\)$"
    with pytest.raises(ValueError, match=told) as refused:
        sparsified(model, name, dtype)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("model", "dtype"), [(nn.Linear(5, 4), FLOAT), (nn.Linear(5, 4), HALF)])
def test_other_errors_of_a_model_are_left_as_they_are(model: nn.Module, dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        sparsified(model.to(dtype), "snip", dtype)
