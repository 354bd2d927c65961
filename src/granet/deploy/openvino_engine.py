"""A plan run by OpenVINO, the fastest dense engine on most processors, where it is installed."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor

from granet.deploy.operators import Activation, AdaptivePool, Add, Conv, Flatten, Linear, Op, Pool
from granet.deploy.plan import Plan
from granet.deploy.unsupported import Unsupported


class OpenVINO:
    """In float32 if nothing else is asked for, whatever the processor could do. Several threads may call it at once."""

    def __init__(self, plan: Plan, threads: int, bits: int = 32) -> None:
        try:
            import openvino
        except ImportError as error:
            raise Unsupported("OpenVINO is not installed: pip install openvino") from error
        precision = f"f{bits}"
        settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        core = openvino.Core()
        if bits == 16 and "FP16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise Unsupported("OpenVINO has no arithmetic of 16 bits for this processor")
        self._compiled = core.compile_model(_model(plan), "CPU", settings)
        self._idle: SimpleQueue[Any] = SimpleQueue()

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        try:
            request = self._idle.get_nowait()
        except Empty:
            request = self._compiled.create_infer_request()
        arrays = [tensor.detach().contiguous().numpy() for tensor in inputs]
        results = request.infer(arrays, share_inputs=True, share_outputs=False)
        outputs = tuple(torch.from_numpy(results[number]) for number in range(len(results)))
        self._idle.put(request)
        return outputs


def _model(plan: Plan) -> Any:
    import openvino
    from openvino import opset13 as ops

    inputs = [ops.parameter(list(shape), np.float32) for shape in plan.inputs]
    values = [parameter.output(0) for parameter in inputs]
    arrays = [array.dense() for array in plan.arrays]
    for number, op in enumerate(plan.ops):
        made = _activated(_made(op, values, arrays, plan.shapes[len(inputs) + number], ops), op, ops)
        if tuple(made.output(0).shape) != plan.shapes[len(values)]:
            raise Unsupported(f"OpenVINO gives another shape for {op}")
        values.append(made.output(0))
    return openvino.Model([values[output] for output in plan.outputs], inputs)


def _made(op: Op, values: list[Any], arrays: list[Any], shape: tuple[int, ...], ops: Any) -> Any:
    source = values[op.source]
    match op:
        case Conv():
            weight, place = arrays[op.weight], (list(op.stride), list(op.padding), list(op.padding), list(op.dilation))
            if op.groups == 1:
                made = ops.convolution(source, ops.constant(weight), *place)
            else:
                grouped = weight.reshape(op.groups, -1, *weight.shape[1:])
                made = ops.group_convolution(source, ops.constant(grouped), *place)
            if op.bias is not None:
                made = ops.add(made, ops.constant(arrays[op.bias].reshape(1, -1, 1, 1)))
            return made if op.residual is None else ops.add(made, values[op.residual])
        case Linear():
            made = ops.matmul(source, ops.constant(arrays[op.weight]), False, True)
            return made if op.bias is None else ops.add(made, ops.constant(arrays[op.bias]))
        case Pool():
            steps, sides = list(op.stride), list(op.padding)
            if op.kind == "max":
                return ops.max_pool(source, steps, [1, 1], sides, sides, list(op.kernel))
            return ops.avg_pool(source, steps, sides, sides, list(op.kernel), not op.count_padding)
        case AdaptivePool(size=(1, 1)):
            return ops.reduce_mean(source, ops.constant([2, 3]), True)
        case AdaptivePool():
            return ops.adaptive_avg_pool(source, ops.constant(list(op.size)))
        case Add():
            return ops.add(source, values[op.other])
        case Activation():
            return source
        case Flatten():
            return ops.reshape(source, ops.constant(list(shape)), False)


def _activated(made: Any, op: Op, ops: Any) -> Any:
    match getattr(op, "activation", ""):
        case "relu":
            return ops.relu(made)
        case "relu6":
            return ops.clamp(made, 0.0, 6.0)
        case _:
            return made
