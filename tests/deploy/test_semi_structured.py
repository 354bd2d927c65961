"""2:4 on a GPU: which layers can have it, which are chosen by their times, and what the copy computes there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from devices import GPU, needs_gpu
from granet.deploy import SemiStructured, to_semi_structured
from granet.deploy.semi_structured import Layer, captured, survey
from refusals import refused


@torch.no_grad()
def two_of_four(layer: nn.Linear) -> nn.Linear:
    groups = layer.weight.reshape(-1, 4)
    groups[torch.arange(len(groups)), torch.arange(len(groups)) % 4] = 0
    groups[torch.arange(len(groups)), (torch.arange(len(groups)) + 1) % 4] = 0
    return layer


class Mixed(nn.Module):
    """A layer for every answer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 2, 2)
        self.gains = two_of_four(nn.Linear(64, 96))
        self.odd = two_of_four(nn.Linear(96, 64))
        self.fails = two_of_four(nn.Linear(64, 64))
        self.dense = nn.Linear(64, 64)
        self.narrow = two_of_four(nn.Linear(64, 40))
        self.attention = nn.MultiheadAttention(64, 2, batch_first=True)
        self.unused = two_of_four(nn.Linear(64, 64))

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.odd(self.gains(self.conv(images).flatten(2).transpose(1, 2)))
        tokens = self.dense(self.fails(tokens))
        return self.narrow(self.attention(tokens, tokens, tokens, need_weights=False)[0].mean(1))


IMAGES = torch.randn(5, 3, 8, 8)
NOT_CALLED = "not called as a layer on the example"


def found_in(model: Mixed) -> list[Layer]:
    times = {model.gains: (10.0, 8.0)}

    def measure(layer: nn.Linear, tokens: int) -> tuple[float, float]:
        assert tokens == 5 * 16
        if layer not in times:
            raise RuntimeError("cannot be\nin 2:4")
        return times[layer]

    return list(survey(model, IMAGES, measure))


def test_every_layer_is_measured_or_named_with_the_reason() -> None:
    model = Mixed()
    assert found_in(model) == [
        Layer("conv.weight", (64, 3, 2, 2), why="a convolution, and torch has 2:4 for linear layers alone"),
        Layer("gains.weight", (96, 64), 80, 10.0, 8.0),
        Layer("odd.weight", (64, 96), 80, why="its sides must be multiples of 32 and 64"),
        Layer("fails.weight", (64, 64), 80, why="cannot be"),
        Layer(
            "dense.weight", (64, 64), 80, why="not 2:4, 1,024 of its 1,024 groups of four have more than two weights"
        ),
        Layer("narrow.weight", (40, 64), 5, why="its sides must be multiples of 32 and 64"),
        Layer("attention.in_proj_weight", (192, 64), why="in MultiheadAttention, and not in a linear layer"),
        Layer("attention.out_proj.weight", (64, 64), why=NOT_CALLED),
        Layer("unused.weight", (64, 64), why=NOT_CALLED),
    ]


def test_one_group_too_full_is_enough() -> None:
    layer = two_of_four(nn.Linear(64, 32))
    with torch.no_grad():
        layer.weight[3, 8:11] = 1.0
    (found,) = survey(nn.Sequential(layer), torch.randn(2, 64), lambda layer, tokens: (2.0, 1.0))
    assert found.why == "not 2:4, 1 of its 512 groups of four have more than two weights" and not found.gains


@pytest.mark.parametrize(("dense", "sparse", "gains"), [(10.0, 9.9, True), (10.0, 10.0, False), (10.0, 12.0, False)])
def test_only_what_is_faster_gains(dense: float, sparse: float, gains: bool) -> None:
    model = nn.Sequential(two_of_four(nn.Linear(64, 32)))
    (found,) = survey(model, torch.randn(3, 7, 64), lambda layer, tokens: (dense, sparse))
    assert (found.gains, found.tokens) == (gains, 21)
    assert str(found).endswith(": yes" if gains else ": no")


def test_the_table_ends_with_a_plain_answer() -> None:
    fast, slow = Layer("a.weight", (32, 64), 8, 10.0, 5.0), Layer("b.weight", (32, 64), 8, 10.0, 12.5)
    dense = Layer("c.weight", (32, 64), 8, why="not 2:4")
    shown = str(SemiStructured((fast, slow, dense))).splitlines()
    assert shown == [
        "a.weight 32x64, 8 tokens: 10.0 us dense, 5.0 us in 2:4, 2.00x: yes",
        "b.weight 32x64, 8 tokens: 10.0 us dense, 12.5 us in 2:4, 0.80x: no",
        "c.weight 32x64: no, not 2:4",
        "2:4 is faster in 1 of the 2 layers that can have it, which are converted",
    ]
    assert str(SemiStructured((slow, dense))).splitlines()[-1].startswith("no: 2:4 is faster in none of the 1 layers")
    assert str(SemiStructured((dense,))).splitlines()[-1] == "no: no layer can be in 2:4; nothing is converted"


@pytest.mark.skipif(GPU, reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    with refused("device", ..., "NVIDIA GPU"):
        to_semi_structured(Mixed(), IMAGES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_other_numbers_than_of_16_bits(dtype: torch.dtype) -> None:
    with refused("dtype", dtype, "torch.bfloat16"):
        to_semi_structured(Mixed(), IMAGES, dtype=dtype)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_copy_computes_the_same_on_a_gpu(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_gains(layer: nn.Linear, tokens: int) -> tuple[float, float]:
        dense, sparse = captured(layer, tokens)
        assert dense > 0 and sparse > 0
        return (1.0, 0.5) if layer.out_features == 96 else (1.0, 2.0)

    monkeypatch.setattr("granet.deploy.semi_structured.captured", one_gains)
    told: list[SemiStructured] = []
    model = Mixed().eval()
    copy = to_semi_structured(model, IMAGES, dtype=dtype, tell=told.append)
    assert [layer.weight for layer in told[0].layers if layer.gains] == ["gains.weight"]
    assert isinstance(copy.gains.weight, torch.sparse.SparseSemiStructuredTensor)
    images = IMAGES.to("cuda", dtype)
    expected: Any = model.to("cuda", dtype)(images)
    torch.testing.assert_close(copy(images), expected, rtol=0.1, atol=0.1)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        replayed = copy(images)
    graph.replay()
    torch.testing.assert_close(replayed, expected, rtol=0.1, atol=0.1)
