"""A small MobileNetV2 in plain torch: inverted residuals of depthwise convolutions with ReLU6, in bfloat16 too."""

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 7


def layer(before, width, size=3, stride=1, groups=1):
    conv = nn.Conv2d(before, width, size, stride, (size - 1) // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU6(inplace=True))


class Inverted(nn.Module):
    def __init__(self, before, width, stride, factor):
        super().__init__()
        hidden = before * factor
        self.adds = stride == 1 and before == width
        self.expand = layer(before, hidden, 1) if factor > 1 else nn.Identity()
        self.depth = layer(hidden, hidden, 3, stride, hidden)
        self.project = nn.Conv2d(hidden, width, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        y = self.norm(self.project(self.depth(self.expand(x))))
        return x + y if self.adds else y


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = layer(3, 8, 3, 2)
        shapes = [(8, 8, 1, 1), (8, 12, 2, 4), (12, 12, 1, 4), (12, 16, 2, 4)]
        self.blocks = nn.Sequential(*(Inverted(*shape) for shape in shapes))
        self.last = layer(16, 40, 1)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(40, CLASSES))

    def forward(self, images):
        x = F.pad(images, (0, 1, 0, 1))
        x = self.last(self.blocks(self.stem(x)))
        return self.head(x.mean([2, 3]))


@torch.no_grad()
def forward():
    """Scores of two images in float32, and in bfloat16 from bytes."""
    scores = MODEL(IMAGES.float() / 255)
    halves = HALF(IMAGES.to(torch.bfloat16).div_(255))
    return torch.stack((scores, halves.float())).mean(0).sort(descending=True)


torch.manual_seed(0)
MODEL = MobileNet().eval()
HALF = MobileNet().eval().to(torch.bfloat16)
IMAGES = torch.randint(256, (2, 3, 30, 30), dtype=torch.uint8)

if __name__ == "__main__":
    print(forward())
