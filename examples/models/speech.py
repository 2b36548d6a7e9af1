"""A speech front end in plain torch: framed sound, a Fourier transform, mel bands, convolutions, one conformer step."""

import torch
import torch.nn.functional as F
from torch import nn

WINDOW, HOP, BANDS, WIDTH, HEADS, REACH = 64, 32, 16, 24, 4, 5


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(WINDOW))
        self.register_buffer("bands", torch.rand(WINDOW // 2 + 1, BANDS))

    def forward(self, sound):
        frames = F.pad(sound, (WINDOW // 2, WINDOW // 2), mode="reflect").unfold(1, WINDOW, HOP)
        power = torch.fft.rfft(frames * self.window).abs() ** 2
        mel = torch.clamp(power @ self.bands, min=1e-10).log10()
        mel = torch.maximum(mel, mel.amax(dim=(1, 2), keepdim=True) - 8.0)
        return (mel + 4.0) / 4.0


class Attention(nn.Module):
    """With a bias for the distance of two frames, and silence left out."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.far = nn.Embedding(2 * REACH + 1, WIDTH // HEADS)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, silent):
        batch, length, _ = x.shape
        query, key, value = self.qkv(x).reshape(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        steps = torch.arange(length, device=x.device)
        distance = torch.clamp(steps.view(-1, 1) - steps.view(1, -1), -REACH, REACH) + REACH
        bias = torch.einsum("bhld,lrd->bhlr", query, self.far(distance)) * (WIDTH // HEADS) ** -0.5
        bias.masked_fill_(silent[:, None, None, :], -torch.finfo(bias.dtype).max)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.spectrum = Spectrum()
        self.conv1 = nn.Conv1d(BANDS, WIDTH, 3, padding=1)
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.wide = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.deep = nn.Conv1d(WIDTH, WIDTH, 5, padding=2, groups=WIDTH)
        self.batch_norm = nn.BatchNorm1d(WIDTH)

    def forward(self, sound, lengths):
        x = self.spectrum(sound)
        x = F.gelu(self.conv1(x.transpose(1, 2)))
        x = F.gelu(self.conv2(x)).transpose(1, 2)
        frames = torch.div(lengths, 2 * HOP, rounding_mode="floor") + 1
        silent = torch.arange(x.shape[1], device=x.device)[None, :] >= frames[:, None]
        x = x + self.attention(self.norm(x), silent)
        y = F.glu(self.wide(x.mT), dim=1)
        y = F.silu(self.batch_norm(self.deep(y))).mT
        x = x + 0.5 * y
        x[silent] = 0.0
        return torch.stack([each.sum(0) / 2 for each in x]) / frames.unsqueeze(1)


@torch.no_grad()
def forward():
    """Two recordings of different length as one vector each."""
    return F.normalize(MODEL(SOUND, LENGTHS), dim=-1)


torch.manual_seed(0)
MODEL = Speech().eval()
SOUND = torch.randn(2, 640)
LENGTHS = torch.tensor([640, 400])

if __name__ == "__main__":
    print(forward())
