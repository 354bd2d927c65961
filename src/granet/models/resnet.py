"""Residual networks: the CIFAR family of He et al. (20, 32, 56 layers) and ResNet-50 for both image sizes.

Structure and initialisation are those of the code released with the GraNet paper, which took each network from a
different place; the differences (shortcut, classifier bias, initialisation) are therefore deliberate and stated where
each network is built. All of them return logits.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from granet.models.width import scale_channels


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut; the stride is in the first."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(inputs, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Residual branch plus shortcut, then ReLU."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        activated: Tensor = self.relu(out)
        return activated


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut; the stride is in the 3x3 ("v1.5")."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = planes * self.expansion
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Residual branch plus shortcut, then ReLU."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        activated: Tensor = self.relu(out)
        return activated


class ResNet(nn.Module):
    """Stem, stages of blocks (each after the first halves the image), global average pool, linear classifier.

    Modules carry torchvision's names (`conv1`, `bn1`, `layer1.0.conv1`, `layer2.0.downsample.0`, `fc`), for all depths
    and both stems, so that one glob means the same layer everywhere and ImageNet checkpoints load unchanged.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        planes: Sequence[int],
        num_classes: int,
        *,
        in_channels: int = 3,
        stem_kernel: int = 3,
        stem_pool: nn.Module | None = None,
        classifier_bias: bool = True,
    ) -> None:
        super().__init__()
        stem_stride = 1 if stem_kernel == 3 else 2
        self.conv1 = nn.Conv2d(in_channels, planes[0], stem_kernel, stem_stride, padding=stem_kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(planes[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if stem_pool is None else stem_pool
        channels = planes[0]
        self.stage_names = tuple(f"layer{number}" for number in range(1, len(depths) + 1))
        for number, (name, depth, width) in enumerate(zip(self.stage_names, depths, planes, strict=True)):
            blocks: list[nn.Module] = []
            for index in range(depth):
                stride = 2 if number > 0 and index == 0 else 1
                blocks.append(block(channels, width, stride))
                channels = width * block.expansion
            setattr(self, name, nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, num_classes, bias=classifier_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (N, num_classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in self.stage_names:
            x = getattr(self, name)(x)
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


def resnet_cifar(depth: int, *, num_classes: int = 10, width: float = 1.0, in_channels: int = 3) -> ResNet:
    """ResNet-`depth` for 32x32 images, depth = 6n + 2: three stages of n basic blocks at 16, 32 and 64 channels.

    The shortcut of a stage that changes shape is a 1x1 convolution with batch norm ("option B"), as in the paper's code
    (and open_lth), not the parameter-free padding of He et al. Convolutions and the classifier start from a Kaiming
    normal distribution, variance 2 / fan-in; batch norm starts at weight 1.

    >>> sum(p.numel() for p in resnet_cifar(20).parameters())
    272474
    """
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth={depth}: must be 6n + 2 with n >= 1 for a CIFAR ResNet (8, 14, 20, 26, 32, ...)")
    model = ResNet(BasicBlock, [blocks] * 3, scale_channels((16, 32, 64), width), num_classes, in_channels=in_channels)
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    return model


def resnet50_cifar(*, num_classes: int = 10, width: float = 1.0, in_channels: int = 3) -> ResNet:
    """ResNet-50 for 32x32 images: a 3x3 stem at stride 1 without pooling, classifier without bias.

    Starts from PyTorch's defaults (Kaiming uniform with a = sqrt(5)), as the paper's CIFAR code does.

    >>> sum(p.numel() for p in resnet50_cifar().parameters())
    23520832
    """
    planes = scale_channels((64, 128, 256, 512), width)
    return ResNet(Bottleneck, (3, 4, 6, 3), planes, num_classes, in_channels=in_channels, classifier_bias=False)


def resnet50(*, num_classes: int = 1000, width: float = 1.0, in_channels: int = 3) -> ResNet:
    """ResNet-50 v1.5 for ImageNet, parameters named as torchvision names them.

    Convolutions start from a Kaiming normal distribution with variance 2 / fan-in (torchvision itself uses fan-out),
    the classifier from PyTorch's default, as in the paper's ImageNet code.

    >>> sum(p.numel() for p in resnet50().parameters())
    25557032
    """
    model = ResNet(
        Bottleneck,
        (3, 4, 6, 3),
        scale_channels((64, 128, 256, 512), width),
        num_classes,
        in_channels=in_channels,
        stem_kernel=7,
        stem_pool=nn.MaxPool2d(3, stride=2, padding=1),
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
    return model


def _projection(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """The 1x1 shortcut where a block changes shape; none where it does not."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
