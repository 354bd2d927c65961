"""Attention with fewer heads in place of ``nn.MultiheadAttention``, whose own forward wants heads of its whole width.

It is a ``torch.fx.GraphModule`` of plain operators, with the parameters under the names that they had.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from granet.model_inputs import arguments
from granet.probe.undisturbed import undisturbed

Mask = Literal["none", "True is hidden", "added"]


def attention_masks(model: nn.Module, example: Any) -> dict[str, Mask]:
    """The attentions that can have fewer heads, by name, and what kind of mask they are called with."""
    found: dict[str, set[Mask | None]] = {}

    def note(name: str, module: nn.MultiheadAttention, positional: Any, named: Any) -> None:
        called = dict(zip(_ARGUMENTS, positional, strict=False)) | named
        plain = module._qkv_same_embed_dim and module.bias_k is None and not module.add_zero_attn
        mask = called.get("attn_mask")
        fits = plain and called["query"].ndim == 3 and called.get("key_padding_mask") is None
        fits = fits and (mask is None or mask.ndim == 2) and not (mask is None and called.get("is_causal"))
        kind: Mask = "none" if mask is None else "True is hidden" if mask.dtype == torch.bool else "added"
        found.setdefault(name, set()).add(kind if fits else None)

    attentions = {name: one for name, one in model.named_modules() if type(one) is nn.MultiheadAttention}
    handles = [one.register_forward_pre_hook(partial(note, name), with_kwargs=True) for name, one in attentions.items()]
    positional, named = arguments(example)
    try:
        with undisturbed(model, []):
            model(*positional, **named)
    finally:
        for handle in handles:
            handle.remove()
    return {name: mask for name, kinds in found.items() if len(kinds) == 1 and (mask := kinds.pop()) is not None}


_ARGUMENTS = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights")


def with_fewer_heads(model: nn.Module, before: nn.Module, masks: Mapping[str, Mask]) -> None:
    """Put such attention wherever one of the model has lost heads."""
    for name, mask in masks.items():
        old, new = before.get_submodule(name), model.get_submodule(name)
        assert isinstance(old, nn.MultiheadAttention) and isinstance(new, nn.MultiheadAttention)
        inner = new.out_proj.weight.shape[1]
        if inner < old.embed_dim and inner % old.head_dim == 0:
            owner, _, short = name.rpartition(".")
            setattr(model.get_submodule(owner), short, _traced(new, inner // old.head_dim, mask))


def _traced(attention: nn.MultiheadAttention, heads: int, mask: Mask) -> nn.Module:
    plain = _Attention(attention, heads, mask)
    graph = fx.Tracer().trace(plain)
    for node in graph.nodes:
        node.type = None  # annotations are text here, which does not pickle
    small = fx.GraphModule(plain, graph, "Attention").train(attention.training)
    # What nn.TransformerEncoderLayer asks its attention for. With batch_first it would call one fused operator, which
    # computes with heads of the whole width; the graph knows where the batch is.
    told = {"batch_first": False, "num_heads": heads, "embed_dim": attention.embed_dim, "_qkv_same_embed_dim": True}
    for name, value in told.items():
        setattr(small, name, value)
    if not hasattr(small, "in_proj_bias"):
        small.register_parameter("in_proj_bias", None)
    return small


class _Attention(nn.Module):
    """To be traced; in the words of ``nn.MultiheadAttention``."""

    def __init__(self, attention: nn.MultiheadAttention, heads: int, mask: Mask) -> None:
        super().__init__()
        self.in_proj_weight, self.in_proj_bias = attention.in_proj_weight, attention.in_proj_bias
        self.out_proj = attention.out_proj
        self._heads, self._mask, self._batch_first = heads, mask, attention.batch_first

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        weights = self.in_proj_weight.chunk(3)
        bias: Tensor | None = self.in_proj_bias
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        parts: list[Any] = []
        for place, source in enumerate((query, key, value)):
            part = functional.linear(source, weights[place], biases[place]).unflatten(-1, (self._heads, -1))  # type: ignore[no-untyped-call]
            parts.append(part.transpose(1, 2) if self._batch_first else part.permute(1, 2, 0, 3))
        mask = attn_mask if self._mask == "added" else None
        if self._mask == "True is hidden":
            mask = ~attn_mask  # type: ignore[operator]
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=mask)
        mixed = mixed.transpose(1, 2) if self._batch_first else mixed.permute(2, 0, 1, 3)
        return self.out_proj(mixed.flatten(2)), None
