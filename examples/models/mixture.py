"""A block with a mixture of experts in plain torch: a router picks two of six experts for each token."""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HIDDEN, EXPERTS, CHOSEN = 32, 80, 6, 2


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        gate, up = self.up(x)[..., ::2], self.up(x)[..., 1::2]
        gate = gate.clamp(max=7.0)
        up = up.clamp(min=-7.0, max=7.0)
        return self.down((up + 1) * gate * torch.sigmoid(gate * 1.702))


class Mixture(nn.Module):
    """Tokens are gathered for each expert, and its answers added where they came from."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x):
        tokens = x.reshape(-1, WIDTH)
        scores = self.router(tokens)
        weights, chosen = torch.topk(scores, CHOSEN, dim=-1)
        weights = torch.softmax(weights, dim=-1)
        spread = torch.zeros_like(scores).scatter_(1, chosen, weights)
        hits = F.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
        busy = torch.greater(hits.sum(dim=(-1, -2)), 0).nonzero()
        out = torch.zeros_like(tokens)
        for expert in busy:
            place = int(expert[0])
            _, rows = torch.where(hits[place])
            answer = self.experts[place](tokens[rows]) * spread[rows, place, None]
            out.index_add_(0, rows, answer)
        share = spread.mean(dim=0)
        load = hits.float().sum(dim=(1, 2)) / hits.sum()
        return out.view_as(x), (share * load).sum() * EXPERTS


class Batched(nn.Module):
    """All experts for all tokens in one product, as on devices that gather badly."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) / WIDTH**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) / HIDDEN**0.5)

    def forward(self, x, spread):
        tokens = x.reshape(-1, WIDTH).repeat(EXPERTS, 1).view(EXPERTS, -1, WIDTH)
        hidden = F.silu(torch.bmm(tokens, self.up))
        out = torch.einsum("eth,ehw->tew", hidden, self.down)
        return (out * spread[..., None]).sum(dim=1).view_as(x)


@torch.no_grad()
def forward():
    """Two sentences of seven tokens through both blocks; padding is left as it is."""
    mixed, loss = MIXTURE(SENTENCES)
    again = BATCHED(mixed, torch.softmax(MIXTURE.router(mixed.flatten(0, 1)), dim=-1))
    mixed[PADDING] = 0.0
    again[~PADDING] += mixed[~PADDING]
    return again, loss


torch.manual_seed(0)
MIXTURE, BATCHED = Mixture().eval(), Batched().eval()
SENTENCES = torch.randn(2, 7, WIDTH)
PADDING = torch.tensor([[False] * 5 + [True] * 2, [False] * 7])

if __name__ == "__main__":
    print(forward())
