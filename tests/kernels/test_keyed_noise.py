"""Noise, and the walk of Deep-R, by Triton kernels; without a GPU, Triton's interpreter runs them."""

import pytest
import torch

import granet
from granet.keyed_noise import salts, uniform_noise
from granet.layers import SparseLayer
from granet.pattern_net import make_net

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")
from granet import langevin
from granet.kernels import keyed_noise

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("key", [(0,), (1, 2, 3), (7, 0, 2**31 + 5), (2**40 + 1, 3, 0, 1)])
@pytest.mark.parametrize("shape", [(1,), (3, 5, 3, 3), (2500,)])
def test_the_same_bits_as_the_plain_path(key: tuple[int, ...], shape: tuple[int, ...]) -> None:
    like = torch.empty(shape)
    ours = keyed_noise.uniform_noise(like.to(DEVICE), *salts(key))
    assert torch.equal(ours.cpu(), uniform_noise(like, key))


def deep_r(layout: torch.memory_format, device: str) -> granet.net.SparseNet:
    torch.manual_seed(0)
    weight = torch.randn(16, 8, 3, 3).to(device, memory_format=layout)
    layer = SparseLayer("conv", torch.nn.Parameter(weight), 0, 5)
    layer.rate = 0.1
    net = make_net([layer], 1, "weight", 0.5)
    net.open(0, net.layers, torch.tensor(True, device=device))
    granet.DeepR(sparsity=0.5).begin(net)
    net.commit()
    layer.weight.data.mul_(layer.mask)
    return net


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("accepted", [True, False])
def test_the_walk_is_that_of_the_plain_path(
    layout: torch.memory_format, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []
    for by_kernel, device in ((False, "cpu"), (True, DEVICE)):
        net = deep_r(torch.contiguous_format if not by_kernel else layout, device)
        net.open(3, net.layers, torch.tensor(accepted, device=device))
        monkeypatch.setattr(langevin, "runs_kernels", lambda device, answer=by_kernel: answer)
        (crossed,) = langevin.walk(net, l1=0.5, noise=2.0)
        walked.append((net.layers[0], crossed))
    (plain, there), (ours, here) = walked
    assert torch.equal(ours.mask.cpu(), plain.mask)
    assert here.stride() == ours.mask.stride()
    before = deep_r(layout, "cpu").layers[0].weight.detach()
    now = ours.weight.detach().cpu()
    assert torch.equal(now[~plain.mask], before[~plain.mask])
    assert not ours.weight[here].any() and not (here.cpu() & ~plain.mask).any()
    if not accepted:
        assert not here.any() and torch.equal(now, before)
    elif layout == torch.contiguous_format:  # positions are counted in memory: elsewhere the noise is another
        torch.testing.assert_close(now, plain.weight.detach())
        assert torch.equal(here.cpu(), there) and there.any()
    else:
        assert 0.5 < int(here.sum()) / int(there.sum()) < 2
        moved = (now - before)[plain.mask & ~here.cpu()]
        assert 0.15 < float(moved.std()) < 0.25  # rate * noise
