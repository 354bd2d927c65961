"""What the counter does not know, and what it knows to be nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from granet.flop_counting import flops

Kit = SimpleNamespace


def test_unknown_arithmetic_is_named_once_and_warned_of_in_one_line(kit: Kit) -> None:
    model = kit.Apply(lambda m, x: F.linear(torch.fft.fft(torch.fft.fft(x + 0j)).real, m.a), torch.ones(4, 8))
    with pytest.warns(UserWarning, match=r"^granet: flops counts these operators as zero: aten::_fft_c2c$") as said:
        report = flops(model, torch.zeros(3, 8))
    assert len(said) == 1
    assert report.unknown == ("aten::_fft_c2c",)
    assert report.dense == 2 * 3 * 32


def test_nothing_but_unknown_arithmetic(kit: Kit) -> None:
    with pytest.raises(ValueError, match=r"products to count \(operators without a formula: aten::_fft_c2c\)"):
        flops(kit.Apply(lambda m, x: torch.fft.fft(x + 0j), torch.ones(1)), torch.zeros(3, 8))


def test_a_custom_operator_is_unknown(kit: Kit) -> None:
    @torch.library.custom_op("granet_tests::mystery", mutates_args=())
    def mystery(x: Tensor) -> Tensor:
        return x.sin()

    with pytest.warns(UserWarning, match="granet_tests::mystery"):
        report = flops(kit.Apply(lambda m, x: F.linear(mystery(x), m.a), torch.ones(4, 8)), torch.zeros(3, 8))
    assert report.unknown == ("granet_tests::mystery",)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(-1, 4).T.reshape(2, 3, 4).permute(0, 2, 1).flatten(1).unsqueeze(0).squeeze().expand(2, 12),
        lambda x: torch.cat([x, x[:, 1:].flip(0).roll(1)], 1).repeat(2, 1, 1)[torch.tensor([0, 1])],
        lambda x: F.pad(x, (1, 1)).masked_fill(x.new_zeros(()) > 0, 1).tril().clone().contiguous().to(torch.float64),
        lambda x: F.interpolate(x, scale_factor=2).split(2, 1)[0].gather(2, torch.zeros(2, 2, 1, dtype=torch.long)),
        lambda x: x.sort(1).values.topk(2).values.max(1).values + x.argmax() + torch.rand(1).bernoulli_().item(),
        lambda x: F.dropout(F.embedding(torch.zeros(2, 3, dtype=torch.long), x[0]), training=False).unbind()[0],
        lambda x: F.unfold(x[None], 1) if x.any() else x,
        lambda x: torch.where(x > 0, x, 2 * x).clamp(0, 1).exp().sum(1).cumsum(0).norm() + x.var() + x.std(0).mean(),
    ],
)
def test_shape_and_elementwise_operators_are_known(kit: Kit, function: Callable[[Tensor], Tensor]) -> None:
    model = kit.Apply(lambda m, x: function(x).sum() + (x @ m.a).sum(), torch.ones(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = flops(model, torch.zeros(2, 3, 4))
    assert (report.dense, report.unknown) == (2 * 6 * 8, ())
