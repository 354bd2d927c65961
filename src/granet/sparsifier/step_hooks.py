"""Callbacks around every ``optimizer.step()``, however it is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from granet.hidden import without_emptied
from granet.sparsifier.steps import Steps

_CHECKPOINT = "torch.distributed.checkpoint.state_dict"


class StepHooks:
    """Calls the ``steps`` when gradients are complete, and when a step was taken or given up.

    ``before`` is called between the backward pass and the optimizer's own work (after each closure, if it has one); the
    optimizer takes its step only if it returns True. ``taken`` is called after a step, including one that was withheld,
    which counts as a step, and ``given_up`` after one that a fused optimizer skipped by itself because of infinite
    gradients. ``show`` is called before each closure, which is about to evaluate the model.

    A compiled ``step`` calls back in plain Python (``_disable_dynamo``, which unlike ``torch.compiler.disable``
    does not load the compiler before it is used): compiling a mask update takes minutes, and gains nothing.
    """

    def __init__(self, optimizer: Optimizer, steps: Steps) -> None:
        self._optimizer, self._steps = optimizer, steps
        self._withheld: list[tuple[nn.Parameter, Tensor]] = []
        self._running: FrameType | None = None
        """The frame of the step that has begun.

        torch calls hooks for a step within a step too, and none after a step that ends in an exception. So if another
        one begins before this has ended, only the stack tells which it is.
        """
        self._makes_state = False
        self._handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
            optimizer.register_load_state_dict_pre_hook(without_emptied),  # of a hidden training that is over here
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    @_disable_dynamo
    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if self._running is not None and any(frame is self._running for frame in _stack()):
            return None  # step() called super().step(): torch runs the hooks for both, but it is one step
        self._running = _caller()
        self._hand_back()  # what a step that ended in an exception left behind
        self._makes_state = _only_makes_state(optimizer)
        if self._makes_state:
            return None
        closure = kwargs["closure"] if "closure" in kwargs else args[1] if len(args) > 1 else None
        if not callable(closure):
            self._complete()
            return None

        def completed() -> Any:
            self._begin_closure()
            loss = closure()
            self._end_closure()
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": completed}
        return (args[0], completed, *args[2:]), kwargs

    @_disable_dynamo
    def _begin_closure(self) -> None:
        self._steps.show()

    @_disable_dynamo
    def _end_closure(self) -> None:
        self._complete()
        self._steps.watch()  # it may be called again

    @_disable_dynamo
    def _complete(self) -> None:
        if not self._steps.before():
            # An optimizer skips parameters without a gradient, so this withholds the step.
            for group in self._optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._withheld.append((parameter, parameter.grad))
                        parameter.grad = None

    @_disable_dynamo
    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if _caller() is not self._running:
            return
        self._running = None
        if self._makes_state:
            return
        self._hand_back()
        # Under GradScaler a fused optimizer is always called and skips by itself; others are not called in that case.
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is not None and bool(found_inf):
            self._steps.given_up()
        else:
            self._steps.taken()

    def _hand_back(self) -> None:
        """The newest gradient of each parameter, unless there is a newer one: of a backward pass after an exception."""
        for parameter, grad in reversed(self._withheld):
            if parameter.grad is None:
                parameter.grad = grad
        self._withheld.clear()


def _only_makes_state(optimizer: Optimizer) -> bool:
    """Whether this step trains nothing, but lets an optimizer without state make it.

    torch.distributed.checkpoint takes such a step before it saves or loads, with gradients and learning rates of zero.
    The first step of a warm-up may have these too, so only the stack tells which it is.
    """
    if optimizer.state or _CHECKPOINT not in sys.modules:
        return False
    return any(frame.f_globals.get("__name__") == _CHECKPOINT for frame in _stack())


def _caller() -> FrameType | None:
    """The frame that called a hook: the nearest that is neither of this module nor of torch's compiler."""
    inside = (__name__, "torch._compile", "torch._dynamo")
    return next((frame for frame in _stack() if not frame.f_globals.get("__name__", "").startswith(inside)), None)


def _stack() -> Iterator[FrameType]:
    """The frames that are running, from here outwards."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
