"""A small GPT-2 in plain torch: learned positions, one projection for query, key and value, a causal mask."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 257, 32, 48, 4, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool)))

    def forward(self, x):
        batch, length, _ = x.shape
        query, key, value = self.qkv(x).split(WIDTH, dim=2)
        query = query.view(batch, length, HEADS, -1).transpose(1, 2)
        key = key.view(batch, length, HEADS, -1).transpose(1, 2)
        value = value.view(batch, length, HEADS, -1).transpose(1, 2)
        scores = query @ key.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        scores = scores.masked_fill(~self.mask[:length, :length], float("-inf"))
        weights = self.dropout(F.softmax(scores, dim=-1))
        mixed = (weights @ value).transpose(1, 2).contiguous().view(batch, length, WIDTH)
        return self.dropout(self.out(mixed))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def forward():
    """One step of generation: the next token after two prompts of 11 tokens."""
    logits = MODEL(TOKENS)[:, -1, :]
    return torch.argmax(logits, dim=-1)


torch.manual_seed(0)
MODEL = GPT2().eval()
TOKENS = torch.randint(VOCABULARY, (2, 11))

if __name__ == "__main__":
    print(forward())
