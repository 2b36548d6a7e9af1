"""A Llama-style decoder in plain torch: grouped attention, rotary embedding, RMS norm, gated MLP, key-value cache."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, GROUPS, HIDDEN, LAYERS, CONTEXT = 320, 64, 8, 2, 176, 2, 24
SIZE = WIDTH // HEADS


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * wide.type_as(x)


def rotated(x, cos, sin):
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.key = nn.Linear(WIDTH, GROUPS * SIZE, bias=False)
        self.value = nn.Linear(WIDTH, GROUPS * SIZE, bias=False)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False)
        self.register_buffer("keys", torch.zeros(2, GROUPS, CONTEXT, SIZE))
        self.register_buffer("values", torch.zeros(2, GROUPS, CONTEXT, SIZE))

    def forward(self, x, places, cos, sin, mask):
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, HEADS, SIZE).transpose(1, 2)
        key = self.key(x).view(batch, length, GROUPS, SIZE).transpose(1, 2)
        value = self.value(x).view(batch, length, GROUPS, SIZE).transpose(1, 2)
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        self.keys[:, :, places] = key
        self.values[:, :, places] = value
        end = int(places[-1]) + 1
        keys, values = (each[:, :, None, :end] for each in (self.keys, self.values))
        shape = (batch, GROUPS, HEADS // GROUPS, end, SIZE)
        keys = keys.expand(shape).reshape(batch, HEADS, end, SIZE)
        values = values.expand(shape).reshape(batch, HEADS, end, SIZE)
        mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.attention = Attention()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x, *where):
        x = x + self.attention(self.norm1(x), *where)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("frequencies", 1 / 10000 ** (torch.arange(0, SIZE, 2) / SIZE))

    def forward(self, tokens, start):
        length = tokens.shape[1]
        places = torch.arange(start, start + length, device=tokens.device)
        angles = places[:, None].float() @ self.frequencies[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        mask = torch.full((length, start + length), float("-inf"), device=tokens.device).triu(start + 1)
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, places, angles.cos(), angles.sin(), mask)
        return self.head(self.norm(x[:, -1:]))


@torch.no_grad()
def forward():
    """A prompt of 9 tokens, then one token more with the cache."""
    first = MODEL(TOKENS, 0).argmax(dim=-1)
    return MODEL(first, TOKENS.shape[1]).topk(5)


torch.manual_seed(0)
MODEL = Llama().eval()
TOKENS = torch.randint(VOCABULARY, (2, 9))

if __name__ == "__main__":
    print(forward())
