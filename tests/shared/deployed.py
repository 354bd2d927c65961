"""What tests of plans share: networks as training leaves them, and how close two outputs must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from granet.deploy.compiled import Engine
from granet.deploy.engines import processors
from granet.deploy.interpret import Interpreter
from granet.deploy.plan import Plan
from granet.deploy.unsupported import Unsupported


def as_trained(model: nn.Module, sparsity: float = 0.9) -> nn.Module:
    """With zeros in most weights, and batch norms whose statistics are no ones and zeros."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1, generator=generator)
                module.running_var.uniform_(0.5, 1.5, generator=generator)
                if module.affine:
                    module.weight.uniform_(0.5, 1.5, generator=generator)
                    module.bias.normal_(0, 0.1, generator=generator)
            elif isinstance(module, nn.Conv2d | nn.Linear | Conv1D):
                module.weight *= torch.rand(module.weight.shape, generator=generator) >= sparsity
    return model


def assert_engines_agree(plan: Plan, engines: Mapping[str, Callable[[Plan, int], Engine]]) -> list[str]:
    """The names of the engines that can run the plan; they give what the reference gives."""
    inputs = [torch.randn(shape) for shape in plan.inputs]
    expected = Interpreter(plan)(*inputs)
    able = []
    for name, make in engines.items():
        with suppress(Unsupported):
            found = make(plan, min(2, processors()))(*inputs)
            able.append(name)
            for one, other in zip(found, expected, strict=True):
                assert_close(one, other)
    return able


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Within 1e-4 of the largest element."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert float((found - expected).detach().abs().max()) <= 1e-4 * float(expected.detach().abs().max())
