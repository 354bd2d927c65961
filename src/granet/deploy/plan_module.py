"""A plan as a module of PyTorch, where a model is wanted: to export it, to compile it, to compare with it."""

from __future__ import annotations

from torch import Tensor, nn

from granet.deploy.interpret import Interpreter
from granet.deploy.plan import Plan


class PlanModule(nn.Module):
    """Computes what the plan says, by operators of PyTorch with dense weights, which are its buffers."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._run = Interpreter(plan)
        for number, array in enumerate(self._run.arrays):
            self.register_buffer(f"array_{number}", array)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._run(*inputs)
