"""The walk of Deep-R by a Triton kernel; without a GPU, Triton's interpreter runs it."""

import pytest
import torch

import granet
from granet.methods.deep_r import langevin
from granet.net import make_net
from granet.weights import SparseLayer

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def deep_r(layout: torch.memory_format, device: str) -> granet.net.SparseNet:
    torch.manual_seed(0)
    weight = torch.randn(16, 8, 3, 3).to(device, memory_format=layout)
    layer = SparseLayer.of("conv", torch.nn.Parameter(weight), 0, 5)
    layer.rate = 0.1
    net = make_net([layer], 1, "weight", 0.5)
    net.open(0, net.layers, torch.tensor(True, device=device))
    granet.DeepR(sparsity=0.5).begin(net)
    net.commit().write_masks()
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
        (moved,), (crossed,) = langevin.walk(net, l1=0.5, noise=2.0)
        walked.append((net.layers[0], moved, crossed))
    (plain, far, there), (ours, near, here) = walked
    assert torch.equal(ours.mask.cpu(), plain.mask)
    assert here.stride() == ours.mask.stride()
    before = deep_r(layout, "cpu").layers[0].weight.detach()
    assert torch.equal(ours.weight.detach().cpu(), before), "the walk itself writes nothing"
    now = near.cpu()
    assert torch.equal(now[~plain.mask], before[~plain.mask])
    assert not (here.cpu() & ~plain.mask).any()
    if not accepted:
        assert not here.any() and torch.equal(now, before)
    elif layout == torch.contiguous_format:  # positions are counted in memory: elsewhere the noise is another
        torch.testing.assert_close(now, far)
        assert torch.equal(here.cpu(), there) and there.any()
    else:
        assert 0.5 < int(here.sum()) / int(there.sum()) < 2
        moved = (now - before)[plain.mask & ~here.cpu()]
        assert 0.15 < float(moved.std()) < 0.25  # rate * noise
