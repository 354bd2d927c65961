"""Noise by a Triton kernel; without a GPU, Triton's interpreter runs it."""

import pytest
import torch

from granet.keyed_noise import salts, uniform_noise

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")
from granet.kernels import keyed_noise

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("key", [(0,), (1, 2, 3), (7, 0, 2**31 + 5), (2**40 + 1, 3, 0, 1)])
@pytest.mark.parametrize("shape", [(1,), (3, 5, 3, 3), (2500,)])
def test_the_same_bits_as_the_plain_path(key: tuple[int, ...], shape: tuple[int, ...]) -> None:
    like = torch.empty(shape)
    ours = keyed_noise.uniform_noise(like.to(DEVICE), *salts(key))
    assert torch.equal(ours.cpu(), uniform_noise(like, key))
