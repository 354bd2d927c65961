"""What cannot be compiled, and what a compiled model is not called with: one line each that says what and where."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from quick import slow_but_for

IMAGES = torch.randn(2, 3, 8, 8)


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())


class Branching(nn.Module):
    """Does what its input says, which no graph can."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.conv(x)
        return x


@pytest.fixture(scope="module")
def compiled() -> granet.deploy.Compiled:
    return granet.deploy.compile(convolution(), IMAGES, engine="torch")


def refused(told: str, *args: Any, **options: Any) -> None:
    with pytest.raises(ValueError, match=told) as error:
        granet.deploy.compile(*args, **{"engine": "torch", **options})
    assert "\n" not in str(error.value)


def test_what_is_no_model() -> None:
    refused(r"^model=str: must be a torch.nn.Module$", "model.pt", IMAGES)


def test_where_a_model_cannot_be_exported() -> None:
    refused(r"^model: Branching cannot be exported: .* test_refusals.py:\d+: if x.sum\(\) > 0:\)$", Branching(), IMAGES)


def test_a_model_that_fails_by_itself() -> None:
    refused(r"^model: fails on example_input \(.*channels", convolution(), torch.randn(2, 4, 8, 8))
    refused(r"^model: fails on example_input \(", convolution(), "images")


def test_a_model_in_which_nothing_can_be_planned() -> None:
    refused(r"^model: has no convolution or linear layer that a plan can hold", nn.ReLU(), IMAGES)
    refused(r"^model: has no convolution or linear layer", convolution().double(), IMAGES.double())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", slow_but_for(["1.running_mean"], ["0.weight", "0.bias", "1.weight", "1.running_mean"]))
def test_values_that_are_not_finite(name: str, value: float) -> None:
    model = convolution()
    model.state_dict()[name].view(-1)[0] = value
    refused(rf"^model: '{name}' has values that are not finite$", model, IMAGES)


def test_variances_that_are_none() -> None:
    model = convolution()
    model[1].running_var[0] = -1
    refused(r"^model: '1.running_var' must be positive, as variances are$", model, IMAGES)


@pytest.mark.parametrize("threads", [0, 10_000, -1, 1.5, True, "2"])
def test_threads_that_are_not_there(threads: Any) -> None:
    told = rf"^threads={threads!r}: must be from 1 to {len(os.sched_getaffinity(0))}, the processors of this machine$"
    refused(told, convolution(), IMAGES, threads=threads)


def test_an_unknown_engine() -> None:
    refused(r"^engine='fast': must be one of .*torch", convolution(), IMAGES, engine="fast")


def test_another_device() -> None:
    refused(r"^model: '0.weight' is on meta; what is compiled runs on the CPU$", convolution().to("meta"), IMAGES)
    refused(r"^example_input: is on meta; what is compiled runs on the CPU$", convolution(), IMAGES.to("meta"))


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            (torch.randn(3, 3, 8, 8),),
            r"^input 0: shape \[3, 3, 8, 8\]: must be \[2, 3, 8, 8\], for which it was compiled",
        ),
        ((IMAGES.double(),), r"^input 0: torch.float64 on cpu, torch.strided: must be torch.float32 on cpu, strided$"),
        ((IMAGES.to("meta"),), r"^input 0: torch.float32 on meta"),
        ((IMAGES.to_sparse(),), r"^input 0: torch.float32 on cpu, torch.sparse_coo"),
        ((3,), r"^input 0: int: must be a torch.Tensor$"),
        ((), r"^inputs: 0 in \(\); must be 1 in \(\*\), as in the example$"),
        ((IMAGES, IMAGES), r"^inputs: 2 in \(\*, \*\); must be 1 in \(\*\), as in the example$"),
        (([IMAGES],), r"^inputs: 1 in \(\['\*'\]\); must be 1 in \(\*\), as in the example$"),
    ],
)
def test_other_inputs_than_planned(compiled: granet.deploy.Compiled, args: tuple[Any, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        compiled(*args)
    with pytest.raises(ValueError, match=r"^inputs: 1 in \(x=\*\); must be"):
        compiled(x=IMAGES)


def test_a_number_that_the_graph_was_made_for() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: Tensor, factor: int) -> Tensor:
            return super().forward(x) * factor

    rows = torch.randn(2, 3)
    compiled = granet.deploy.compile(Scaled(3, 4), (rows, 2), engine="torch")
    compiled(rows, 2)
    with pytest.raises(ValueError, match=r"^input 1: 3: must be 2, with which it was compiled$"):
        compiled(rows, 3)
