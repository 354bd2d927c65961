"""Run a model once and leave no trace of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from granet.probe.modes import in_mode, uncompiled


@contextmanager
def undisturbed(model: nn.Module, inputs: Iterable[Tensor]) -> Iterator[None]:
    """A context in eval mode, without gradients, in which every operator can be seen.

    Afterwards every module's mode, every buffer and the random state are restored. Inside, attention runs as its single
    operators, compiled parts run uncompiled, and autocast casts anew: a fused or cached result would hide which
    parameter a product uses.
    """
    buffers = {module: dict(module._buffers) for module in model.modules() if module._buffers}
    values = [(buffer, _version(buffer), buffer.clone()) for buffer in model.buffers()]
    devices = {tensor.device.index for tensor in [*model.parameters(), *inputs] if tensor.device.type == "cuda"}
    fast_attention = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=sorted(devices)))
        stack.enter_context(uncompiled())
        stack.enter_context(in_mode(model, training=False))
        torch.backends.mha.set_fastpath_enabled(False)
        torch.clear_autocast_cache()
        try:
            yield
        finally:
            torch.clear_autocast_cache()
            torch.backends.mha.set_fastpath_enabled(fast_attention)
            for module, saved in buffers.items():
                module._buffers.update(saved)
            for buffer, version, value in values:
                if version is None or _version(buffer) != version:
                    with torch.inference_mode(buffer.is_inference()):
                        buffer.copy_(value)


def _version(tensor: Tensor) -> int | None:
    """Changes whenever the tensor is written to; inference tensors have none."""
    return None if tensor.is_inference() else tensor._version
