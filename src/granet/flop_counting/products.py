"""Operators that multiply: how many FLOPs each call takes, and which operands may be weights.

A multiply-add is two FLOPs. Taps on zero padding count, and so do scores that a causal mask throws away: the formulas
see shapes only. Keys are the names of PyTorch's operators, so that one that a version lacks is no error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Product(NamedTuple):
    """FLOPs between two operands. Either may be the weight; None is an operand that cannot be one."""

    left: Tensor | None
    right: Tensor | None
    flops: int
    kind: str


Formula = Callable[[Sequence[Any], Sequence[Tensor]], list[Product]]
"""From the operator's arguments and its outputs."""


def aten(names: str) -> tuple[str, ...]:
    """The full names of PyTorch's own operators."""
    return tuple(f"aten::{name}" for name in names.split())


def _convolution(arguments: Sequence[Any], outputs: Sequence[Tensor]) -> list[Product]:
    """2 * weights * positions: of the output, or of the input where the convolution is transposed.

    A grouped convolution needs no case of its own: its weight is smaller.
    """
    source, weight, transposed = arguments[0], arguments[1], arguments[6]
    positions = (source if transposed else outputs[0]).shape
    applied = positions[0] * math.prod(positions[2:])
    return [Product(None, weight, 2 * weight.numel() * applied, "convolution")]


def _matrix_product(left: int, right: int) -> Formula:
    """2 * (elements of the left matrices) * (columns of the right ones), wherever these are among the arguments."""

    def formula(arguments: Sequence[Any], _outputs: Sequence[Tensor]) -> list[Product]:
        a, b = arguments[left], arguments[right]
        columns = b.shape[-1] if b.ndim > 1 else 1
        return [Product(a, b, 2 * a.numel() * columns, "matrix product")]

    return formula


def _attention(arguments: Sequence[Any], _outputs: Sequence[Tensor]) -> list[Product]:
    """Q K^T and the product of the scores with V: 2 * (queries * keys) * (width of K + width of V) for each head."""
    _query, key, value = arguments[:3]
    widths = key.shape[-1] + value.shape[-1]
    return [Product(None, None, 2 * attention_scores(arguments) * widths, "attention")]


def attention_scores(arguments: Sequence[Any]) -> int:
    """Scores that a fused attention computes: queries times keys, of all heads."""
    query, key = arguments[:2]
    return int(math.prod(query.shape[:-1]) * key.shape[-2])


def _recurrent(arguments: Sequence[Any], _outputs: Sequence[Tensor]) -> list[Product]:
    """Every matrix of the layers, applied at every step of every sequence."""
    steps = arguments[0].numel() // arguments[0].shape[-1]
    tensors = arguments[1] if isinstance(arguments[1], list | tuple) else arguments[1:3]
    return [Product(None, w, 2 * steps * w.numel(), "recurrent") for w in tensors if w.ndim == 2]


def _trilinear(arguments: Sequence[Any], _outputs: Sequence[Tensor]) -> list[Product]:
    """The sum of x_i W_kij y_j (`nn.Bilinear`): x is multiplied into W first, then what is left of it by y."""
    operands = [_unsqueezed(tensor, dims) for tensor, dims in zip(arguments[:3], arguments[3:6], strict=True)]
    whole = [max(sizes) for sizes in zip(*operands, strict=True)]
    rest = math.prod(size for d, size in enumerate(whole) if not (d in arguments[6] and operands[2][d] == 1))
    first = Product(arguments[0], arguments[1], 2 * math.prod(whole), "matrix product")
    return [first, Product(None, arguments[2], 2 * rest, "matrix product")]


def _unsqueezed(tensor: Tensor, dims: Sequence[int]) -> list[int]:
    sizes = list(tensor.shape)
    for d in dims:
        sizes.insert(d, 1)
    return sizes


PRODUCTS: dict[str, Formula] = {
    **dict.fromkeys(aten("convolution _convolution convolution_overrideable"), _convolution),
    **dict.fromkeys(aten("mm bmm mv dot vdot _int_mm _scaled_mm"), _matrix_product(0, 1)),
    # each row by the matrix of one expert; which rows go to which is not seen, so the mean density of all is assumed
    **dict.fromkeys(("aten::_grouped_mm", "transformers::grouped_mm_fallback"), _matrix_product(0, 1)),
    **dict.fromkeys(aten("addmm addmv baddbmm addbmm _addmm_activation _sparse_addmm"), _matrix_product(1, 2)),
    **dict.fromkeys(
        aten(
            "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
            "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
            "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math_for_mps"
        ),
        _attention,
    ),
    **dict.fromkeys(aten("mkldnn_rnn_layer _cudnn_rnn"), _recurrent),
    **dict.fromkeys(aten("_trilinear"), _trilinear),
}

BIASES = {
    **dict.fromkeys(aten("convolution _convolution"), 2),
    **dict.fromkeys(aten("addmm addmv baddbmm addbmm _addmm_activation"), 0),
}
"""Operators that may add a bias to their product, and the argument that it is."""
