"""Operators whose work no mask shrinks, and operators that do no arithmetic at all.

The prices are conventions, stated here once: a FLOP is one addition, multiplication, comparison or function value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tag, Tensor

from granet.flop_counting.products import aten

SOFTMAX = 5
"""For each element: maximum, difference, exponential, sum, quotient."""

Price = Callable[[Sequence[Any], Sequence[Tensor]], int]
"""FLOPs from the operator's arguments and its outputs."""


def _each_output(price: int) -> Price:
    return lambda _arguments, outputs: price * outputs[0].numel()


def _each_input(price: int, argument: int = 0) -> Price:
    return lambda arguments, _outputs: price * arguments[argument].numel()


def _each_tap(price: int, dimensions: int) -> Price:
    """For pooling with a kernel: `price` for each element of each window. A single size holds for all dimensions."""

    def formula(arguments: Sequence[Any], outputs: Sequence[Tensor]) -> int:
        kernel = arguments[1]
        return int(price * outputs[0].numel() * math.prod(kernel if len(kernel) > 1 else [*kernel] * dimensions))

    return formula


def _adaptive(price: int) -> Price:
    """For adaptive pooling: `price` for each element of each window. Where sizes do not divide, windows overlap."""

    def formula(arguments: Sequence[Any], outputs: Sequence[Tensor]) -> int:
        sizes, counts = arguments[0].shape, outputs[0].shape
        spatial = len(arguments[1])
        taps = [_taps(size, count) for size, count in zip(sizes[-spatial:], counts[-spatial:], strict=True)]
        return int(price * math.prod(sizes[:-spatial]) * math.prod(taps))

    return formula


def _taps(size: int, count: int) -> int:
    """Elements of all windows along one dimension: window i goes from i size / count, rounded down, to (i + 1) size /
    count, rounded up."""
    return sum(-(-(i + 1) * size // count) - i * size // count for i in range(count))


def _index_put(arguments: Sequence[Any], _outputs: Sequence[Tensor]) -> int:
    """One for each value that is added to an existing one; overwriting is free."""
    _target, _indices, values, *rest = arguments
    accumulate = bool(rest and rest[0])
    return int(values.numel()) if accumulate else 0


def _embedding_bag(arguments: Sequence[Any], _outputs: Sequence[Tensor]) -> int:
    """One for each element of each row that is gathered into a bag."""
    table, indices = arguments[:2]
    return int(indices.numel() * table.shape[1])


def _batch_norm(arguments: Sequence[Any], outputs: Sequence[Tensor]) -> int:
    """Scale and shift; 5 more where the statistics are the input's own (mean 1, variance 2, normalising 2)."""
    own_statistics = next(argument for argument in arguments if isinstance(argument, bool))  # `training`
    return (7 if own_statistics else 2) * outputs[0].numel()


FIXED: dict[str, tuple[str, Price]] = {
    **dict.fromkeys(
        aten(
            "relu relu6 gelu silu sigmoid tanh hardswish hardsigmoid hardtanh leaky_relu elu celu selu softplus mish "
            "threshold hardshrink softshrink _prelu_kernel log_sigmoid_forward rrelu_with_noise glu"
        ),
        ("activation", _each_output(1)),
    ),
    **dict.fromkeys(aten("_softmax _log_softmax _safe_softmax"), ("softmax", _each_output(SOFTMAX))),
    **dict.fromkeys(
        aten("native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm"),
        ("normalisation", _batch_norm),
    ),
    **dict.fromkeys(aten("_native_batch_norm_legit_no_training"), ("normalisation", _each_output(2))),
    **dict.fromkeys(aten("native_layer_norm native_group_norm"), ("normalisation", _each_output(7))),
    **dict.fromkeys(aten("_fused_rms_norm _weight_norm_interface"), ("normalisation", _each_output(4))),
    **{f"aten::avg_pool{n}d": ("average pooling", _each_tap(2, n)) for n in (1, 2, 3)},
    **dict.fromkeys(
        aten("_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d"), ("average pooling", _adaptive(2))
    ),
    **dict.fromkeys(aten("mean"), ("average pooling", _each_input(2))),
    **{f"aten::max_pool{n}d_with_indices": ("max pooling", _each_tap(1, n)) for n in (2, 3)},
    **dict.fromkeys(aten("adaptive_max_pool2d adaptive_max_pool3d"), ("max pooling", _adaptive(1))),
    **dict.fromkeys(
        aten("sum prod amax amin cumsum cumprod nansum logcumsumexp col2im"), ("reduction", _each_input(1))
    ),
    # what is added, not what it is added to: the source, or as much of it as the index has room for
    **dict.fromkeys(aten("index_add"), ("reduction", _each_input(1, argument=3))),
    **dict.fromkeys(aten("scatter_add scatter_reduce"), ("reduction", _each_input(1, argument=2))),
    **dict.fromkeys(aten("index_put"), ("reduction", _index_put)),
    **dict.fromkeys(aten("linalg_vector_norm norm logsumexp"), ("reduction", _each_input(2))),
    **dict.fromkeys(aten("var std var_mean std_mean"), ("reduction", _each_input(3))),
    **dict.fromkeys(aten("_embedding_bag _embedding_bag_forward_only"), ("reduction", _embedding_bag)),
    **dict.fromkeys(aten("upsample_linear1d"), ("interpolation", _each_output(4))),
    **dict.fromkeys(aten("upsample_bilinear2d _upsample_bilinear2d_aa"), ("interpolation", _each_output(8))),
    **dict.fromkeys(aten("grid_sampler_2d"), ("interpolation", _each_output(8))),
    **dict.fromkeys(aten("upsample_trilinear3d grid_sampler_3d"), ("interpolation", _each_output(16))),
    **dict.fromkeys(aten("upsample_bicubic2d _upsample_bicubic2d_aa"), ("interpolation", _each_output(32))),
    **dict.fromkeys(
        aten("_thnn_fused_lstm_cell _thnn_fused_gru_cell native_dropout addr complex polar floor_divide"),
        ("elementwise", _each_input(1)),
    ),
}
"""Kind and price of work that no mask shrinks. Other elementwise operators cost 1 for each output."""

FREE = frozenset(
    aten(
        # copies, casts, fillings
        "clone copy _to_copy fill zero lift_fresh lift_fresh_copy detach set resize _unsafe_view _reshape_copy "
        "unsafe_split unsafe_split_with_sizes unsafe_chunk split_with_sizes_copy slice_scatter select_scatter "
        "empty_like zeros_like ones_like full_like new_empty new_zeros new_ones new_full new_empty_strided "
        "transpose t squeeze unsqueeze as_strided swapdims swapaxes "
        # moving elements about
        "cat stack index _unsafe_index index_select gather scatter take masked_select masked_scatter masked_fill where "
        "repeat repeat_interleave flip roll rot90 tril triu tril_indices diag_embed im2col embedding constant_pad_nd "
        "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d "
        "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle upsample_nearest1d upsample_nearest2d "
        "upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
        "_pack_padded_sequence _pad_packed_sequence index_copy index_fill nonzero "
        # looking at elements, choosing among them
        "max min argmax argmin sort topk argsort kthvalue any all equal unique_dim _unique2 _local_scalar_dense "
        "bucketize searchsorted histc bincount aminmax is_nonzero _assert_async _assert_tensor_metadata count_nonzero "
        # drawing numbers
        "uniform normal bernoulli random exponential rand_like randn_like randint_like multinomial"
    )
)
"""Operators that only move, copy, compare or draw. Views and operators without a tensor to work on are free as well."""


def base_name(schema: Any) -> str:
    """The operator's name; that of `relu_`, which works in place, is `aten::relu`."""
    name: str = schema.name
    in_place = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    return name.removesuffix("_") if in_place else name


def is_view(schema: Any) -> bool:
    """Whether the operator returns a view of its input and computes nothing."""
    return any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)


def is_elementwise(operator: Any) -> bool:
    """Whether each output depends on one element of each input, by PyTorch's own tag."""
    return Tag.pointwise in operator.tags


def elementwise_flops(outputs: Sequence[Tensor]) -> int:
    """One for each number that comes out; whole numbers and truth values are bookkeeping."""
    return sum(output.numel() for output in outputs if output.is_floating_point() or output.is_complex())
