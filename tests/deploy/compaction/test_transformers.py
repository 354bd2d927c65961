"""Attention heads and the widths of MLPs, in transformers of several kinds and in attention written by hand."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quick import slow_but_for
from smaller import Model, compacted, run, shaken, shapes

transformers = pytest.importorskip("transformers")
TOKENS, OTHERS = torch.randint(50, (2, 7)), torch.randint(50, (3, 5))


@torch.no_grad()
def zero(model: nn.Module, rows: dict[str, Iterable[int]], columns: dict[str, Iterable[int]]) -> None:
    for dim, parts in enumerate((rows, columns)):
        for name, places in parts.items():
            model.get_parameter(name).index_fill_(dim, torch.tensor(list(places)), 0)


@pytest.mark.slow
def test_bert() -> None:
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=50
    )
    model = shaken(transformers.BertModel(config)).eval()
    first, second = "encoder.layer.0.", "encoder.layer.1."
    value = f"{second}attention.self.value."
    zero(
        model,
        {f"{value}weight": range(8), f"{value}bias": range(8), f"{first}intermediate.dense.weight": range(20)},
        {f"{first}attention.output.dense.weight": range(8, 16), f"{second}output.dense.weight": range(10)},
    )
    small = compacted(model, {"input_ids": TOKENS}, {"input_ids": OTHERS}, tolerance=1e-4)
    for layer, width in ((first, 44), (second, 54)):
        kept = shapes(small, *(f"{layer}attention.self.{name}.weight" for name in ("query", "key", "value")))
        assert kept == [(24, 32)] * 3
        assert shapes(small, f"{layer}attention.output.dense.weight") == [(32, 24)]
        assert shapes(small, f"{layer}intermediate.dense.weight", f"{layer}output.dense.weight") == [
            (width, 32),
            (32, width),
        ]


@pytest.mark.slow
def test_vit() -> None:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=4
    )
    model = shaken(transformers.ViTModel(config)).eval()
    names = [name for name, _ in model.named_parameters()]
    output = next(
        name for name in names if "attention" in name and name.endswith(("o_proj.weight", "output.dense.weight"))
    )
    zero(model, {}, {output: range(8, 16)})
    small = compacted(model, torch.randn(2, 3, 16, 16), torch.randn(3, 3, 16, 16), tolerance=1e-4)
    assert shapes(small, output) == [(32, 24)]
    changed = [name for name in names if small.get_parameter(name).shape != model.get_parameter(name).shape]
    assert len(changed) == 7  # query, key and value, each with a bias, and the output


@pytest.mark.slow
def test_gpt2() -> None:
    config = transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    model = shaken(transformers.GPT2LMHeadModel(config)).eval()
    first, second = "transformer.h.0.", "transformer.h.1."
    zero(
        model,
        {f"{first}attn.c_proj.weight": range(8, 16), f"{second}mlp.c_proj.weight": range(10)}
        | {f"{second}attn.c_attn.bias": range(64, 72)},
        {f"{second}attn.c_attn.weight": range(64, 72), f"{first}mlp.c_fc.weight": range(20)},
    )
    inputs = [{"input_ids": ids, "use_cache": False} for ids in (TOKENS, OTHERS)]
    small = compacted(model, *inputs, tolerance=1e-4)
    for layer, width in ((first, 108), (second, 118)):
        assert shapes(small, f"{layer}attn.c_attn.weight", f"{layer}attn.c_proj.weight") == [(32, 72), (24, 32)]
        assert shapes(small, f"{layer}mlp.c_fc.weight", f"{layer}mlp.c_proj.weight") == [(32, width), (width, 32)]
    assert small.lm_head.weight is small.transformer.wte.weight


@pytest.mark.slow
def test_heads_that_share_keys_and_values_go_together() -> None:
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
        vocab_size=50, max_position_embeddings=16,
    )  # fmt: skip
    model = shaken(transformers.LlamaForCausalLM(config)).eval()
    layer = "model.layers.0."
    zero(model, {f"{layer}mlp.gate_proj.weight": range(20)}, {f"{layer}self_attn.o_proj.weight": range(24)})
    inputs = [{"input_ids": ids, "use_cache": False} for ids in (TOKENS, OTHERS)]
    small = compacted(model, *inputs, tolerance=1e-4)
    heads = shapes(small, *(f"{layer}self_attn.{name}_proj.weight" for name in "qkvo"))
    assert heads == [(16, 32), (8, 32), (8, 32), (32, 16)]  # three of four heads are dead, but two share one key
    assert shapes(small, *(f"{layer}mlp.{name}_proj.weight" for name in ("gate", "up", "down"))) == [(44, 32)] * 2 + [
        (32, 44)
    ]


class Attention(nn.Module):
    """With the numbers of heads and of their width in the module."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.inner, self.each = heads, width, width // heads

    def forward(self, x: Tensor) -> Tensor:
        batch, places, _ = x.shape
        parts = (layer(x).view(batch, places, self.heads, self.each) for layer in (self.query, self.key, self.value))
        query, key, value = (part.transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, places, self.inner))


class ByProducts(Attention):
    """As matrix products, without the fused operator."""

    def forward(self, x: Tensor) -> Tensor:
        batch, places, _ = x.shape
        parts = (layer(x).view(batch, places, -1, self.each) for layer in (self.query, self.key, self.value))
        query, key, value = (part.transpose(1, 2) for part in parts)
        weights = torch.softmax(query @ key.transpose(-2, -1) / self.each**0.5, -1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Attention, ByProducts])
def test_attention_by_hand(kind: type[Attention]) -> None:
    model = shaken(nn.Sequential(nn.LayerNorm(32), kind(), nn.LayerNorm(32)))
    zero(model, {"1.value.weight": range(8), "1.value.bias": range(8)}, {"1.out.weight": range(8, 16)})
    small = compacted(model, torch.randn(2, 5, 32), torch.randn(3, 9, 32))
    assert shapes(small, *(f"1.{name}.weight" for name in ("query", "key", "value", "out"))) == [(16, 32)] * 3 + [
        (32, 16)
    ]


def test_a_head_of_constants_goes_into_the_bias() -> None:
    """The mean of values that are all alike is that value, whatever the query."""
    model = shaken(nn.Sequential(nn.LayerNorm(32), Attention(), nn.LayerNorm(32)))
    zero(model, {"1.value.weight": range(8)}, {})
    small = compacted(model, torch.randn(2, 5, 32), torch.randn(3, 9, 32))
    assert shapes(small, "1.value.weight", "1.out.weight") == [(24, 32), (32, 24)]


def encoder(norm_first: bool, batch_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, norm_first=norm_first, batch_first=batch_first)
    return shaken(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)).eval()


@pytest.mark.parametrize(("norm_first", "batch_first"), slow_but_for([(False, True)], [(False, True), (True, False)]))
def test_multihead_attention_of_torch(norm_first: bool, batch_first: bool) -> None:
    model = encoder(norm_first, batch_first)
    zero(
        model,
        {"layers.1.self_attn.in_proj_weight": range(64, 72), "layers.1.linear1.weight": range(20)},
        {"layers.0.self_attn.out_proj.weight": range(8, 24)},
    )
    x, more = torch.randn(2, 5, 32), torch.randn(3, 9, 32)
    small = compacted(model, x, more, tolerance=1e-4)
    first = shapes(
        small, *(f"layers.0.self_attn.{name}" for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight"))
    )
    assert first == [(48, 32), (48,), (32, 16)]
    assert shapes(small, "layers.1.self_attn.in_proj_weight", "layers.1.linear1.weight") == [(72, 32), (44, 32)]
    file = io.BytesIO()
    torch.save(small, file)
    assert b"granet" not in file.getvalue()
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(run(again, more)[0], run(small, more)[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["True is hidden", "added"])
def test_multihead_attention_with_a_mask(kind: str) -> None:
    def causal(self: Model, x: Tensor) -> Tensor:
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        mask = hidden if kind == "True is hidden" else torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))
        return x + self.attention(x, x, x, attn_mask=mask)[0]

    model = shaken(Model(causal, attention=nn.MultiheadAttention(32, 4, bias=False, batch_first=True)))
    zero(model, {}, {"attention.out_proj.weight": range(8)})
    small = compacted(model, torch.randn(2, 5, 32), torch.randn(3, 9, 32))
    assert shapes(small, "attention.in_proj_weight", "attention.out_proj.weight") == [(72, 32), (32, 24)]


def test_attention_whose_weights_are_returned_keeps_its_heads() -> None:
    model = shaken(
        Model(lambda self, x: self.attention(x, x, x), attention=nn.MultiheadAttention(32, 4, batch_first=True))
    )
    zero(model, {}, {"attention.out_proj.weight": range(8)})
    small = compacted(model, torch.randn(2, 5, 32), torch.randn(3, 9, 32))
    assert shapes(small, "attention.in_proj_weight") == [(96, 32)]
