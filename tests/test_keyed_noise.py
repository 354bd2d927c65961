"""Noise belongs to a position in the whole weight, whoever holds it."""

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from granet import keyed_noise
from granet.keyed_noise import Key, normal_noise, uniform_noise
from granet.tensors.part import Part

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KEY = (3, 1, 4)
WHOLE = (6, 5, 3)
BOXES = [(slice(2, 6), slice(0, 5)), (slice(0, 6), slice(1, 3)), (slice(3, 5), slice(4, 5)), (slice(2, 2), slice(0, 5))]


def by_kernel(like: Tensor, key: Key, part: Part | None = None) -> Tensor:
    pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")
    from granet.kernels import keyed_noise as noise_kernel

    return noise_kernel.uniform_noise(like.to(DEVICE), *keyed_noise.salts(key), part).cpu()


@pytest.mark.parametrize("noise", [uniform_noise, normal_noise, by_kernel])
@pytest.mark.parametrize("box", BOXES)
def test_a_part_has_the_noise_of_the_whole_there(noise: type[uniform_noise], box: tuple[slice, ...]) -> None:
    whole = noise(torch.empty(WHOLE), KEY)
    here = whole[box]
    part = Part.of(WHOLE, [one.start for one in (*box, slice(0, 3))], here.shape)
    assert torch.equal(noise(torch.empty(here.shape), KEY, part), here)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: its kernels are not tested")
@pytest.mark.parametrize("start", [2**31 - 3, 2**32 - 3, 2**40])
def test_positions_beyond_32_bits_are_the_same_on_both_paths(start: int) -> None:
    part, like = Part(2**41, start, 2, 2**33), torch.empty(7)
    assert torch.equal(by_kernel(like, KEY, part), uniform_noise(like, KEY, part))


def test_noise_differs_by_key_and_place() -> None:
    like = torch.empty(1000)
    noise = [uniform_noise(like, (0,)), uniform_noise(like, (1,)), uniform_noise(like, (0,), Part(2000, 1000, 1000, 0))]
    assert len(torch.cat(noise).unique()) > 2990


def test_bits_do_not_change() -> None:
    """Runs that are saved go on with the same noise."""
    assert uniform_noise(torch.empty(3), (1, 2, 3)).mul(2**24).tolist() == [2241182, 6804837, 9359656]
