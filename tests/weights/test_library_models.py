"""Models of today, by the classes of the library that people use: what is covered, and along which axis."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GptOssConfig, GptOssForCausalLM

import granet

Make = Callable[[str], nn.Module]
WIDE = 32
ATTENTION = 4 * WIDE**2
EXPERT = 3 * 48 * WIDE
TOKENS = torch.arange(16).view(1, 16)

COVERED = {  # by hand, from the widths in the configurations
    "GPT-2": 2 * (ATTENTION + 2 * WIDE * 4 * WIDE),
    "BERT": 2 * (ATTENTION + 2 * WIDE * 64) + WIDE**2,
    "Mixtral": 2 * (3 * WIDE**2 + 4 * EXPERT) + 64 * WIDE,  # keys and values have half the width
    "Qwen2-MoE": 2 * (3 * WIDE**2 + 4 * EXPERT + EXPERT) + 64 * WIDE,
    "ViT": 3 * 8 * 8 * WIDE + 2 * (ATTENTION + 2 * WIDE * 64) + 10 * WIDE,
    "ConvNeXt": 3 * 16 * 4**2
    + sum(blocks * (49 * c + 8 * c**2) for c, blocks in ((16, 1), (32, 1), (48, 2), (64, 1)))
    + 4 * (16 * 32 + 32 * 48 + 48 * 64)
    + 640,
}
OUTSIDE = {
    "GPT-2": {"transformer.wte.weight": "tied to an embedding", "transformer.wpe.weight": "embedding"},
    "BERT": {
        "bert.embeddings.word_embeddings.weight": "tied to an embedding",
        "bert.embeddings.position_embeddings.weight": "embedding",
    },
    "Mixtral": {"model.embed_tokens.weight": "embedding"},
    "Qwen2-MoE": {"model.embed_tokens.weight": "embedding"},
    "ViT": {"vit.embeddings.position_embeddings": "not a known weight"},
    "ConvNeXt": {},
    "MobileNetV2": {},
    "EfficientNet": {},
}


def sparsify(model: nn.Module, method: granet.Method, **options: Any) -> granet.Sparsifier:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="granet: (covers|pattern)")
        return granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), method, total_steps=9, **options)


@pytest.mark.parametrize("name", OUTSIDE)
def test_coverage_and_zeros_are_those_of_a_count_by_hand(make: Make, name: str) -> None:
    model = make(name)
    before = {key: int((value == 0).sum()) for key, value in model.named_parameters()}
    sparsifier = sparsify(model, granet.OneShot(sparsity=0.8))
    coverage = sparsifier.coverage
    matrices = sum(parameter.numel() for parameter in model.parameters() if parameter.ndim > 1)
    assert coverage.covered == COVERED.get(name, matrices)
    assert coverage.total == sum(parameter.numel() for parameter in model.parameters())
    assert {one.name: one.why for one in coverage.outside} == OUTSIDE[name]
    zeros = {key: int((value == 0).sum()) - before[key] for key, value in model.named_parameters()}
    assert sum(zeros.values()) == round(0.8 * coverage.covered)
    assert {key for key, count in zeros.items() if count} <= set(sparsifier.layers)


def test_what_is_said_about_coverage(make: Make) -> None:
    model = make("GPT-2")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said = r"granet: covers 87\.7% of the model's parameters; outside: transformer\.wte\.weight \(tied to an embedding"
    with pytest.warns(UserWarning, match=said) as warned:
        sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
    assert len(warned) == 1
    assert str(sparsifier.coverage).startswith("87.7% of 28,032 parameters; outside: transformer.wte.weight (tied")
    whole = sparsify(make("GPT-2"), granet.Static(sparsity=0.5), also="*.w[tp]e.weight").coverage
    assert whole.covered == COVERED["GPT-2"] + 64 * WIDE + 16 * WIDE
    assert whole.outside == ()


@pytest.mark.parametrize("name", ["Mixtral", "Qwen2-MoE", "ViT", "ConvNeXt", "MobileNetV2", "EfficientNet"])
def test_an_ordinary_model_gives_no_warning(make: Make, name: str) -> None:
    model = make(name)
    granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), granet.Static(sparsity=0.5))


@pytest.mark.parametrize("name", ["GPT-2", "Mixtral"])
def test_training_keeps_the_zeros(make: Make, name: str) -> None:
    model = make(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    method = granet.GraNet(sparsity=0.8, every=2)
    exclude = "*.wte.*" if name == "GPT-2" else ()
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=10, exclude=exclude)
    for _ in range(10):
        model(input_ids=TOKENS, labels=TOKENS).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    counted = sum(int((model.get_parameter(name) == 0).sum()) for name in sparsifier.layers)
    assert counted == round(0.8 * COVERED[name]) == sum(int((~mask).sum()) for mask in sparsifier.masks.values())


# Along the right axis.


def rows_of(name: str, mask: Tensor) -> Tensor:
    """[neurons, inputs] of the layers of these models, written out for each way of storing."""
    if "c_attn" in name or "c_proj" in name or "c_fc" in name:
        return mask.T  # Conv1D: [in, out]
    if "experts" in name and name.startswith("gpt-oss"):
        return torch.cat([expert.T for expert in mask])  # [experts, in, out]
    return torch.cat(list(mask)) if mask.ndim == 3 else mask.flatten(1)


def gpt_oss() -> nn.Module:
    torch.manual_seed(0)
    config = GptOssConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, num_local_experts=4, num_experts_per_tok=2, pad_token_id=0,
    )  # fmt: skip
    return GptOssForCausalLM(config)


def sparse(make: Make, name: str, pattern: str) -> tuple[nn.Module, dict[str, Tensor]]:
    model = gpt_oss() if name == "gpt-oss" else make(name)
    sparsifier = sparsify(model, granet.OneShot(sparsity=0.5, pattern=pattern))
    zeros = {key: model.get_parameter(key) != 0 for key in sparsifier.layers}
    assert all(torch.equal(zeros[key], mask) for key, mask in sparsifier.masks.items())
    return model, {key: rows_of(f"{name} {key}", mask) for key, mask in zeros.items()}


@pytest.mark.parametrize("name", ["GPT-2", "Mixtral", "gpt-oss", "BERT"])
def test_two_of_four_are_inputs_of_one_neuron(make: Make, name: str) -> None:
    _, rows = sparse(make, name, "2:4")
    for mask in rows.values():
        assert (mask.reshape(-1, 4).sum(1) == 2).all()


@pytest.mark.parametrize("name", ["GPT-2", "Mixtral", "gpt-oss"])
def test_every_neuron_has_the_same_fan_in(make: Make, name: str) -> None:
    _, rows = sparse(make, name, "fan-in")
    for mask in rows.values():
        assert mask.sum(1).unique().numel() == 1
        assert mask.sum(0).unique().numel() > 1


@pytest.mark.parametrize("name", ["GPT-2", "Mixtral", "gpt-oss"])
def test_filters_are_neurons_and_their_biases_go_with_them(make: Make, name: str) -> None:
    model, rows = sparse(make, name, "filter")
    dropped = 0
    for key, mask in rows.items():
        assert torch.equal(mask.any(1), mask.all(1))
        dropped += int((~mask.any(1)).sum())
        bias = key.replace("weight", "bias") if key.endswith("weight") else f"{key}_bias"
        if bias in dict(model.named_parameters()):
            assert not model.get_parameter(bias).reshape(-1)[~mask.any(1)].any()
    assert dropped > 0


def test_blocks_stay_within_an_expert(make: Make) -> None:
    _, rows = sparse(make, "Mixtral", "4x4")
    for mask in rows.values():
        blocks = mask.unflatten(0, (-1, 4)).unflatten(2, (-1, 4)).transpose(1, 2).flatten(2)
        assert torch.equal(blocks.any(2), blocks.all(2))
    with pytest.raises(ValueError, match=r"does not divide 'model\.layers\.0\.mlp\.experts\.down_proj'.*: 32 rows"):
        sparsify(make("Mixtral"), granet.OneShot(sparsity=0.5, pattern="64x1"), include="*.down_proj")


def test_what_cannot_be_traced_is_said_in_words(make: Make) -> None:
    model = make("GPT-2")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.OneShot(sparsity=0.5, pattern="filter")
    with pytest.warns(UserWarning, match="GPT2LMHeadModel cannot be traced: its forward .* needs no trace") as said:
        sparsifier = granet.sparsify(model, optimizer, method, exclude="*.wte.*")
    assert not any(word in str(said[0].message) for word in ("Proxy", "Error", "object", "NoneType"))
    for name, layer in sparsifier.layers.items():
        bias = model.get_parameter(name.replace("weight", "bias"))
        assert torch.equal(bias != 0, layer.mask.any(0))


# Shares and FLOPs.


def test_densities_are_those_of_each_expert(make: Make) -> None:
    """Stacked or one by one, a mixture gets the same number of weights."""
    stacked = nn.ModuleDict({"experts": make("Mixtral").model.layers[0].mlp.experts, "fc": nn.Linear(64, 100)})
    apart = nn.ModuleDict({
        "up": nn.ModuleList(nn.Linear(32, 96) for _ in range(4)),
        "down": nn.ModuleList(nn.Linear(48, 32) for _ in range(4)),
        "fc": nn.Linear(64, 100),
    })  # fmt: skip
    method = granet.Static(sparsity=0.9, distribution="erk")
    (up, down, fc), alone = (list(sparsify(model, method).active.values()) for model in (stacked, apart))
    assert (up, down, fc) == pytest.approx((sum(alone[:4]), sum(alone[4:8]), alone[8]), abs=4)


def test_flops_of_conv1d_and_of_experts(make: Make) -> None:
    for name, outside in (
        ("GPT-2", ("lm_head", "transformer.wte")),
        ("Mixtral", ("model.layers.0.mlp.gate", "model.layers.1.mlp.gate")),
    ):
        model = make(name)
        masks = sparsify(model, granet.OneShot(sparsity=0.5, pattern="2:4")).masks
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            report = granet.flops(model, {"input_ids": TOKENS}, masks=masks)
        assert {row.parameter for row in report.rows if row.sparse * 2 == row.dense} == set(masks)
        assert {row.name for row in report.rows if row.parameter and row.sparse == row.dense} <= set(outside)
    of = {row.parameter: row.dense for row in report.rows}
    assert of["model.layers.0.mlp.experts.gate_up_proj"] == 2 * 2 * 16 * 96 * 32  # two experts for each of 16 tokens
