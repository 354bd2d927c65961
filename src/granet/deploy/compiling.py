"""`granet.deploy.compile`: a model becomes plans for engines, and PyTorch around them where no plan can hold it."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from granet.deploy.compiled import Compiled, Engine
from granet.deploy.engines import check_dtype, check_engine, check_threads, engine_for
from granet.deploy.exported import export
from granet.deploy.halves import Inputs
from granet.deploy.interpret import Interpreter
from granet.deploy.plan import Plan
from granet.deploy.regions import cut


def compile(
    model: nn.Module,
    example_input: Any,
    *,
    threads: int | None = None,
    engine: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Compiled:
    """A function that computes what the model does in evaluation mode, for inputs of the example's shapes.

    The model is exported, and read only: what is done to it later changes nothing. Convolutions, linear layers and what
    is between them run as plans in the engine that is fastest here, by measurement; the rest runs in PyTorch.

    Args:
        example_input: what the model is called with: a tuple is several arguments, a dict named ones.
        threads: how many of the processors an engine may use; all by default. Parts that run in PyTorch use as many
            as ``torch.set_num_threads`` says.
        engine: use this one: ``native``, ``openvino`` or ``torch``.
        dtype: `torch.float16` lets plans compute in 16 bits, where the processor does so, that is faster, and neither
            the example nor random inputs make a sum too large for them or the outputs differ by more than 0.5 %.

    ValueError for a model that cannot be exported, or in which there is nothing that a plan can hold.
    """
    threads = check_threads(threads)
    check_engine(engine)
    check_dtype(dtype)
    exported = export(model, example_input)
    module, plans = cut(exported.module)
    if not plans:
        raise ValueError(
            "model: has no convolution or linear layer that a plan can hold: of float32, with constant weights, and"
            " convolutions of two dimensions"
        )
    examples = _examples(module, plans, exported.inputs) if dtype is torch.float16 else [()] * len(plans)
    engines = {}
    for number, (plan, inputs) in enumerate(zip(plans, examples, strict=True)):
        name = f"plan_{number}"
        engines[name], run = engine_for(plan, threads, engine, measure=True, dtype=dtype, examples=inputs)
        module.add_submodule(name, _Part(run))
    called = [node.target for node in module.graph.nodes if node.op == "call_function"]
    outside = list(dict.fromkeys(str(target) for target in called if target is not operator.getitem))
    nested = exported.nested_inputs, exported.nested_outputs
    return Compiled(module, exported.inputs, *nested, engines, _whole(module, plans), plans, outside)


def _examples(module: fx.GraphModule, plans: list[Plan], example: Sequence[Any]) -> Sequence[Sequence[Inputs]]:
    """What each plan is given where the model is given the example."""
    module = copy.deepcopy(module)  # it may write to its buffers
    given: list[list[Inputs]] = [[] for _ in plans]
    for number, plan in enumerate(plans):
        run, to = Interpreter(plan), given[number]
        noting = lambda *inputs, run=run, to=to: (to.append(inputs), run(*inputs))[1]  # noqa: E731
        module.add_submodule(f"plan_{number}", _Part(noting))
    with torch.no_grad():
        module(*example)
    return given


class _Part(nn.Module):
    """A plan's engine, where a graph calls it."""

    def __init__(self, run: Engine) -> None:
        super().__init__()
        self._run = run

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._run(*inputs)


def _whole(module: fx.GraphModule, plans: list[Plan]) -> Plan | None:
    """The only plan, if it takes what the model takes and gives what the model gives."""
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    call = nodes[len(inputs)]
    items = nodes[len(inputs) + 1 : -1]
    if call.op != "call_module" or list(call.args) != inputs or any(item.args[0] is not call for item in items):
        return None
    given = nodes[-1].args[0]
    if len(set(given)) != len(given) or set(given) != set(items):
        return None
    return replace(plans[0], outputs=tuple(plans[0].outputs[item.args[1]] for item in given))
