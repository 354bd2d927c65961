"""How much of models of today granet covers, and the zeros that are really there after pruning them to 80 %."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import nn

import granet

SPARSITY = 0.8


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))


def bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return BertForMaskedLM(BertConfig(vocab_size=64, max_position_embeddings=16, **sizes))


MIXTURE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 16,
}  # fmt: skip


def mixtral() -> nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **MIXTURE))


def qwen2_moe() -> nn.Module:
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    return Qwen2MoeForCausalLM(Qwen2MoeConfig(shared_expert_intermediate_size=48, **experts, **MIXTURE))


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=10, **sizes))


def convnext() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(image_size=32, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1], num_labels=10)
    return ConvNextForImageClassification(config)


def mobilenet_v2() -> nn.Module:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(image_size=32, depth_multiplier=0.25, min_depth=8, num_labels=10)
    return MobileNetV2ForImageClassification(config)


def efficientnet() -> nn.Module:
    """Depthwise convolutions with squeeze and excitation, as in MobileNetV3."""
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    scales = {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 64}
    return EfficientNetForImageClassification(EfficientNetConfig(image_size=32, num_labels=10, **scales))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "GPT-2": gpt2,
    "BERT": bert,
    "Mixtral": mixtral,
    "Qwen2-MoE": qwen2_moe,
    "ViT": vit,
    "ConvNeXt": convnext,
    "MobileNetV2": mobilenet_v2,
    "EfficientNet": efficientnet,
}


def row(name: str) -> str:
    torch.manual_seed(0)
    model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it would say is in the last column
        sparsifier = granet.sparsify(model, optimizer, granet.OneShot(sparsity=SPARSITY))
    coverage = sparsifier.coverage
    entries = sum(parameter.numel() for parameter in model.parameters() if parameter.ndim > 1)
    zeros = sum(int((parameter == 0).sum()) for parameter in model.parameters() if parameter.ndim > 1)
    outside = coverage.named_outside or "none"
    return (
        f"| {name} | {coverage.total:,} | {coverage.share:.1%} | {sparsifier.sparsity:.1%} | {zeros / entries:.1%} "
        f"| {outside} |"
    )


def main() -> None:
    print(
        "| model | parameters | covered | zeros of what is covered | zeros of all matrices | large matrices outside |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for name in MODELS:
        print(row(name))


if __name__ == "__main__":
    main()
