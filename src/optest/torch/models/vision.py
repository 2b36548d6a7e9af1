"""ResNet-34 and MobileNetV2 in plain torch. State dicts have the names of torchvision's published weights.

ResNet: He et al. 2015, arXiv:1512.03385. MobileNetV2: Sandler et al. 2018, arXiv:1801.04381. Images are float32
[batch, 3, image_size, image_size], logits [batch, num_classes].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from optest.torch.models.torch_model import TorchModel, effective_config, images

_SMALL = {"batch": 2, "image_size": 64, "num_classes": 10}
_FULL = {"batch": 1, "image_size": 224, "num_classes": 1000}


def resnet34(config: Mapping[str, Any]) -> TorchModel:
    """Return ResNet-34; ``width`` is the number of channels of its first stage."""
    config = effective_config("resnet34", config, {"width": 16, **_SMALL}, {"width": 64, **_FULL})
    return _classifier("resnet34", ResNet(config["width"], config["num_classes"]), config)


def mobilenet_v2(config: Mapping[str, Any]) -> TorchModel:
    """Return MobileNetV2; ``width_mult`` scales the numbers of channels, to multiples of eight."""
    config = effective_config("mobilenet_v2", config, {"width_mult": 0.25, **_SMALL}, {"width_mult": 1.0, **_FULL})
    return _classifier("mobilenet_v2", MobileNetV2(config["width_mult"], config["num_classes"]), config)


def _classifier(name: str, module: nn.Module, config: Mapping[str, Any]) -> TorchModel:
    shape = (config["batch"], 3, config["image_size"], config["image_size"])
    return TorchModel(name=name, module=module, inputs=images("x", shape), outputs=("logits",))


def _conv2d(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    # The batch norm that follows has the bias.
    return nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)


class BasicBlock(nn.Module):
    """Residual block of two 3 x 3 convolutions; a 1 x 1 convolution on the shortcut if shapes change."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = _conv2d(channels, out, 3, stride)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.conv2 = _conv2d(out, out, 3)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(_conv2d(channels, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + shortcut)


class ResNet(nn.Module):
    """ResNet-34 with ``width`` channels in the first of its four stages."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = _conv2d(3, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        channels = width
        for stage, blocks in enumerate((3, 4, 6, 3)):
            out = width << stage
            layer = [BasicBlock(channels, out, 2 if stage else 1), *(BasicBlock(out, out) for _ in range(blocks - 1))]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
            channels = out
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class InvertedResidual(nn.Module):
    """Block that expands the channels, convolves each, and projects them, with a shortcut if the shape stays."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        layers = [] if expansion == 1 else [_conv_bn_relu(channels, inner, 1)]
        layers += [_conv_bn_relu(inner, inner, 3, stride, inner), _conv2d(inner, out, 1)]
        self.conv = nn.Sequential(*layers, nn.BatchNorm2d(out))
        self.has_shortcut = stride == 1 and channels == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.has_shortcut else self.conv(x)


def _conv_bn_relu(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(_conv2d(channels, out, kernel, stride, groups), nn.BatchNorm2d(out), nn.ReLU6())


# Expansion, channels, blocks and stride; table 2 of the paper.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class MobileNetV2(nn.Module):
    def __init__(self, width_mult: float, classes: int) -> None:
        super().__init__()
        channels = _rounded_channels(32 * width_mult)
        last = _rounded_channels(1280 * max(1.0, width_mult))
        layers = [_conv_bn_relu(3, channels, 3, 2)]
        for expansion, wide, blocks, stride in _STAGES:
            out = _rounded_channels(wide * width_mult)
            for block in range(blocks):
                layers.append(InvertedResidual(channels, out, 1 if block else stride, expansion))
                channels = out
        self.features = nn.Sequential(*layers, _conv_bn_relu(channels, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


def _rounded_channels(count: float) -> int:
    """Round ``count`` to the nearest multiple of eight, at least 8, and to the next one if that is below 90 %."""
    near = max(8, int(count + 4) // 8 * 8)
    return near + 8 if near < 0.9 * count else near
