"""GPT-2 and Llama, in plain torch. State dicts have the names and layouts of Hugging Face's published checkpoints.

GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". Llama: Touvron et al. 2023,
arXiv:2302.13971, with grouped attention (Ainslie et al. 2023, arXiv:2305.13245). Tokens are int64 [batch, tokens],
logits float32 [batch, tokens, vocab_size].
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from optest.errors import UsageError
from optest.torch.models.adapters import TorchModel, effective_config

__all__ = ["CausalAttention", "gpt2", "llama"]


_INPUT = {"batch": 2, "tokens": 16}


def gpt2(config: Mapping[str, Any]) -> TorchModel:
    """GPT-2; ``size=full`` is the published model of 124 million parameters."""
    small: dict[str, Any] = {
        "n_layer": 2,
        "n_embd": 64,
        "n_head": 4,
        "vocab_size": 512,
        "n_positions": 256,
        "layer_norm_epsilon": 1e-5,
    }
    full = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024, "tied": True}
    config = effective_config("gpt2", config, {**small, "tied": False, **_INPUT}, full)
    _require_divisible(config, "n_embd", "n_head")
    return _causal("gpt2", Gpt2(config), config, "n_positions")


def llama(config: Mapping[str, Any]) -> TorchModel:
    """Llama; ``size=full`` has the sizes of TinyLlama, 1.1 billion parameters."""
    names = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    small: dict[str, Any] = dict(zip(names, (2, 64, 160, 4, 2), strict=True)) | {
        "vocab_size": 512,
        "max_position_embeddings": 256,
    }
    full = dict(zip(names, (22, 2048, 5632, 32, 4), strict=True)) | {"vocab_size": 32000}
    small |= {"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tied": False, **_INPUT}
    config = effective_config("llama", config, small, {**full, "max_position_embeddings": 2048})
    _require_divisible(config, "hidden_size", "num_attention_heads")
    _require_divisible(config, "num_attention_heads", "num_key_value_heads")
    if config["hidden_size"] // config["num_attention_heads"] % 2:
        raise UsageError("a head has an odd width, but rotary positions turn pairs: hidden_size / num_attention_heads")
    return _causal("llama", Llama(config), config, "max_position_embeddings")


def _causal(name: str, module: nn.Module, config: Mapping[str, Any], longest: str) -> TorchModel:
    batch, tokens, vocabulary = config["batch"], config["tokens"], config["vocab_size"]
    if tokens > config[longest]:
        raise UsageError(f"tokens is {tokens}, but {longest} is {config[longest]}: state a larger {longest}, too")

    def inputs(seed: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {"input_ids": torch.randint(vocabulary, (batch, tokens), generator=generator)}

    return TorchModel(
        name=name,
        module=module,
        inputs=inputs,
        outputs=("logits",),
        causal=True,
        vocabulary=vocabulary,
        context=config[longest],
    )


def _require_divisible(config: Mapping[str, Any], whole: str, part: str) -> None:
    if config[whole] % config[part]:
        raise UsageError(f"{whole} is {config[whole]}, but should be a multiple of {part}, which is {config[part]}")


class CausalAttention(nn.Module):
    """Step by step, so that a trace shows each; all are [batch, heads, tokens, width of a head].

    Where it ``keeps`` keys and values, a call is about the tokens after those of the calls before it.
    """

    keeps = False
    kept: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if self.keeps:
            if self.kept is not None:
                key, value = torch.cat([self.kept[0], key], dim=-2), torch.cat([self.kept[1], value], dim=-2)
            self.kept = key, value
        tokens, known = query.shape[-2], key.shape[-2]
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        mask = torch.ones(tokens, known, dtype=torch.bool, device=query.device).tril(known - tokens)
        weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        return weights @ value


def _positions(model: nn.Module, input_ids: torch.Tensor) -> torch.Tensor:
    """Of the tokens of a call, in the sequence that begins with those that are kept."""
    positions = torch.arange(input_ids.shape[1], device=input_ids.device)
    kept = next(each.kept for each in model.modules() if isinstance(each, CausalAttention))
    return positions if kept is None else positions + kept[0].shape[-2]


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out], as GPT-2's checkpoints have it."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(wide, out))
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Gpt2Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention = CausalAttention()
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        heads = [
            each.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for each in self.c_attn(x).split(width, dim=-1)
        ]
        y = self.attention(*heads)
        return self.c_proj(y.transpose(1, 2).reshape(batch, tokens, width))


class Gpt2Block(nn.Module):
    def __init__(self, width: int, heads: int, eps: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps)
        self.attn = Gpt2Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width, eps)
        layers = {"c_fc": Conv1D(width, 4 * width), "act": nn.GELU("tanh"), "c_proj": Conv1D(4 * width, width)}
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, eps = config["n_embd"], config["layer_norm_epsilon"]
        blocks = [Gpt2Block(width, config["n_head"], eps) for _ in range(config["n_layer"])]
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config["vocab_size"], width),
                "wpe": nn.Embedding(config["n_positions"], width),
                "h": nn.ModuleList(blocks),
                "ln_f": nn.LayerNorm(width, eps),
            }
        )
        self.lm_head = nn.Linear(width, config["vocab_size"], bias=False)
        if config["tied"]:
            self.lm_head.weight = self.transformer.wte.weight

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        positions = _positions(self, input_ids)
        x = self.transformer.wte(input_ids) + self.transformer.wpe(positions)
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


class RmsNorm(nn.Module):
    """Root-mean-square norm; computed in float32, whatever the model's dtype is."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (wide * scale).to(x.dtype)


class Rotary(nn.Module):
    """Rotary positions (Su et al. 2021, arXiv:2104.09864); elements i and i + width/2 of a head are a pair."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin


class LlamaAttention(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config["hidden_size"]
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.head = width // self.heads
        self.rotary, self.attention = Rotary(), CausalAttention()
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, self.groups * self.head, bias=False)
        self.v_proj = nn.Linear(width, self.groups * self.head, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, -1, self.head)
        query = self.rotary(self.q_proj(x).view(shape).transpose(1, 2), cos, sin)
        key = self.rotary(self.k_proj(x).view(shape).transpose(1, 2), cos, sin)
        value = self.v_proj(x).view(shape).transpose(1, 2)
        repeats = self.heads // self.groups
        y = self.attention(query, key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1))
        return self.o_proj(y.transpose(1, 2).reshape(batch, tokens, width))


class LlamaMlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = RmsNorm(width, eps)
        self.self_attn = LlamaAttention(config)
        self.post_attention_layernorm = RmsNorm(width, eps)
        self.mlp = LlamaMlp(width, config["intermediate_size"])

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config["hidden_size"]
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(config["vocab_size"], width),
                "layers": nn.ModuleList([LlamaBlock(config) for _ in range(config["num_hidden_layers"])]),
                "norm": RmsNorm(width, config["rms_norm_eps"]),
            }
        )
        self.lm_head = nn.Linear(width, config["vocab_size"], bias=False)
        if config["tied"]:
            self.lm_head.weight = self.model.embed_tokens.weight
        head = width // config["num_attention_heads"]
        frequencies = config["rope_theta"] ** (-torch.arange(0, head, 2) / head)
        self.register_buffer("inv_freq", frequencies, persistent=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        positions = _positions(self, input_ids)
        angles = positions[:, None].float() * self.inv_freq
        angles = torch.cat([angles, angles], dim=-1)
        cos, sin = angles.cos(), angles.sin()
        x = self.model.embed_tokens(input_ids)
        for block in self.model.layers:
            x = block(x, cos, sin)
        return self.lm_head(self.model.norm(x))
