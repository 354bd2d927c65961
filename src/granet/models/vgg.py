"""VGG-19 with batch norm as the pruning literature uses it on CIFAR."""

from __future__ import annotations

from torch import Tensor, nn

from granet.models.width import scale_channels

_STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))  # (channels, convolutions); a max-pool between stages


class VGG(nn.Module):
    """Stages of 3x3 convolutions with batch norm and ReLU, global average pool, one linear layer.

    This is GraSP's VGG-19: no 4096-wide layers and no dropout, and with four max-pools the 2x2 map that is left of a
    32x32 image is averaged.
    """

    def __init__(self, stages: tuple[tuple[int, int], ...], num_classes: int, *, in_channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = in_channels
        for number, (width, convolutions) in enumerate(stages):
            if number > 0:
                layers.append(nn.MaxPool2d(2))
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
                layers += [nn.ReLU(inplace=True)]
                channels = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (N, num_classes)."""
        logits: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return logits


def vgg19(*, num_classes: int = 10, width: float = 1.0, in_channels: int = 3) -> VGG:
    """VGG-19 for 32x32 images: 16 convolutions of 64 to 512 channels and one linear layer.

    Convolutions start from a Kaiming normal distribution with variance 2 / fan-out, the classifier from N(0, 0.01^2)
    with zero bias.

    >>> sum(p.numel() for p in vgg19().parameters())
    20035018
    """
    widths = scale_channels([channels for channels, _ in _STAGES], width)
    stages = tuple((channels, depth) for channels, (_, depth) in zip(widths, _STAGES, strict=True))
    model = VGG(stages, num_classes, in_channels=in_channels)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.0, 0.01)
            nn.init.zeros_(module.bias)
    return model
