"""Transformers: their linear layers run in plans, the rest in PyTorch; inputs and outputs are nested as ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import granet
from deployed import as_trained, assert_close, assert_engines_agree
from granet.deploy.compiled import Engine
from granet.deploy.operators import Conv, Linear
from granet.deploy.plan import Plan

TOKENS = torch.arange(8).view(1, 8)


def layers(compiled: granet.deploy.Compiled) -> int:
    return sum(isinstance(op, Conv | Linear) for plan in compiled.plans for op in plan.ops)


def gpt2() -> nn.Module:
    sizes = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    config = transformers.GPT2Config(**sizes, use_cache=False, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def bert() -> nn.Module:
    return transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=64, **SIZES))


def vit() -> nn.Module:
    return transformers.ViTForImageClassification(transformers.ViTConfig(image_size=32, patch_size=8, **SIZES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "inputs", "expected"),
    [
        (gpt2, {"input_ids": TOKENS}, 2 * 4 + 1),
        (bert, {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)}, 2 * 6 + 2),
        (vit, {"pixel_values": torch.randn(1, 3, 32, 32)}, 1 + 2 * 6 + 1),
    ],
)
def test_transformers_give_the_same(make: Any, inputs: dict[str, torch.Tensor], expected: int) -> None:
    torch.manual_seed(0)
    model = as_trained(make(), 0.5).eval()
    compiled = granet.deploy.compile(model, inputs, engine="torch")
    assert layers(compiled) == expected
    assert compiled.whole is None
    assert len({id(array) for plan in compiled.plans for array in plan.arrays}) > expected / 2
    with torch.no_grad():
        found, known = compiled(**dict(reversed(inputs.items()))), model(**inputs)
    assert type(found) is type(known)
    assert found.keys() == known.keys()
    assert_close(found.logits, known.logits)


@pytest.mark.slow
def test_encoder_layers_of_torch(other_engines: dict[str, Callable[[Plan, int], Engine]]) -> None:
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    model = as_trained(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), 0.5).eval()
    images = torch.randn(2, 5, 32)
    compiled = granet.deploy.compile(model, images, engine="torch")
    assert layers(compiled) == 2 * 4
    for plan in compiled.plans:
        assert assert_engines_agree(plan, other_engines) == list(other_engines)
    assert_close(compiled(images), model(images))
