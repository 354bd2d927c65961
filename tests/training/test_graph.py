"""The arithmetic of the captured step is that of torch's SGD under a sparsifier; the capture itself needs a GPU."""

import pytest
import torch
from torch import nn

import granet
from granet.training.graph import GraphStep, clipping_scale, masked_sgd
from granet.training.step import eager_step, loss_function


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_masked_sgd_is_torchs_under_masks(nesterov: bool, weight_decay: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    options = {"momentum": 0.9, "weight_decay": weight_decay, "nesterov": nesterov}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, **options)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.6))
    masks = {id(layer.weight): layer.mask for layer in sparsifier.layers.values()}
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    momenta = [torch.zeros_like(weight) for weight in weights]
    for _ in range(5):
        gradients = [torch.randn_like(weight) for weight in weights]
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
        kept = [gradient.clone() for gradient in gradients]
        masked_sgd(
            weights,
            gradients,
            [masks.get(id(p)) for p in model.parameters()],
            momenta,
            torch.tensor(0.05),
            None,
            **options,
        )
        for mine, theirs in zip(weights, model.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs.detach())
        assert all(torch.equal(a, b) for a, b in zip(gradients, kept, strict=True))  # dense, for growth
    for weight, parameter in zip(weights, model.parameters(), strict=True):
        if id(parameter) in masks:
            assert not weight[~masks[id(parameter)]].any()


@pytest.mark.parametrize("largest", [0.5, 1e9])
def test_clipping_is_torchs(largest: float) -> None:
    parameters = [nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(7))]
    gradients = [torch.randn(4, 3), torch.randn(7)]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_(parameters, largest)
    scale = clipping_scale(gradients, largest)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient * scale)
    momenta = [torch.zeros_like(gradient) for gradient in gradients]
    weights = [torch.zeros_like(gradient) for gradient in gradients]
    masked_sgd(weights, gradients, [None, None], momenta, torch.tensor(1.0), scale, 0.0, 0.0, False)
    for weight, parameter in zip(weights, parameters, strict=True):
        torch.testing.assert_close(weight, -parameter.grad)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a CUDA device")
@pytest.mark.parametrize(("pattern", "sparsity"), [("weight", 0.9), ("filter", 0.75)])
def test_a_captured_step_trains_like_the_eager_one(pattern: str, sparsity: float) -> None:
    runs = []
    for captured in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
        method = granet.GraNet(sparsity=sparsity, initial_sparsity=0.5, every=4, end=16, pattern=pattern)
        exclude = ("4.weight",) if pattern == "filter" else ()
        sparsifier = granet.sparsify(model, optimizer, method, total_steps=24, exclude=exclude)
        totals = torch.zeros(2, device="cuda")
        loss = loss_function(model, "float32")
        images, labels = torch.randn(24, 16, 3, 8, 8).cuda(), torch.randint(4, (24, 16)).cuda()
        step = eager_step(loss, optimizer, sparsifier, totals)
        if captured:
            step = GraphStep(model, loss, optimizer, sparsifier, totals, images[0], labels[0], compile=False)
        for batch in zip(images, labels, strict=True):
            step(*batch)
        runs.append((sparsifier.history, totals.tolist()))
        assert not any(model.get_parameter(name)[~mask].any() for name, mask in sparsifier.in_use.items())
    assert [record.active for record in runs[0][0]] == [record.active for record in runs[1][0]]
    assert runs[0][1] == pytest.approx(runs[1][1], rel=1e-3)
