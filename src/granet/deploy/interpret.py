"""A plan run by PyTorch: what every engine is held against, and what runs where no faster one is there."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from granet.deploy.operators import Activation, AdaptivePool, Add, Array, Conv, Flatten, Linear, Op, Pool, arrays_of
from granet.deploy.plan import Plan


class Interpreter:
    """Calls operators of PyTorch, with dense weights; any number of threads may call it at once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.arrays = [_tensor(array) for array in plan.arrays]

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        plan, values = self._plan, dict(enumerate(map(Tensor.contiguous, inputs)))
        with torch.no_grad():
            for number, op in enumerate(plan.ops):
                values[len(inputs) + number] = self._run(op, values)
                for value in [value for value in values if plan.last_use[value] <= number]:
                    del values[value]
        return tuple(values[output].contiguous() for output in plan.outputs)

    def _run(self, op: Op, values: dict[int, Tensor]) -> Tensor:
        source = values[op.source]
        weight, bias = ([self.arrays[number] for number in arrays_of(op)] + [None, None])[:2]
        match op:
            case Conv():
                assert weight is not None
                result = F.conv2d(source, weight, bias, op.stride, op.padding, op.dilation, op.groups)
                if op.residual is not None:
                    result += values[op.residual]
                return _activate(result, op.activation)
            case Linear():
                assert weight is not None
                return _activate(F.linear(source, weight, bias), op.activation)
            case Pool(kind="max"):
                return F.max_pool2d(source, op.kernel, op.stride, op.padding, ceil_mode=op.ceil)
            case Pool():
                return F.avg_pool2d(source, op.kernel, op.stride, op.padding, op.ceil, op.count_padding)
            case AdaptivePool():
                return F.adaptive_avg_pool2d(source, op.size)
            case Add():
                return _activate(source + values[op.other], op.activation)
            case Activation():
                return _activate(source.clone(), op.activation)
            case Flatten():
                return source.flatten(1)


def _tensor(array: Array) -> Tensor:
    """Dense and in memory of its own."""
    return torch.tensor(array.dense())


def _activate(result: Tensor, activation: str) -> Tensor:
    """In place."""
    match activation:
        case "relu":
            return result.relu_()
        case "relu6":
            return result.clamp_(0, 6)
        case _:
            return result
