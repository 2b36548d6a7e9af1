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

_SHARED = {"tied": False, "batch": 2, "tokens": 16}
_GPT2 = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 512, "n_positions": 256, "layer_norm_epsilon": 1e-5}
_GPT2_FULL = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024, "tied": True}
_LLAMA = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
_LLAMA_BLOCK = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")


def gpt2(config: Mapping[str, Any]) -> TorchModel:
    """GPT-2; ``size=full`` is the published model of 124 million parameters."""
    config = effective_config("gpt2", config, {**_GPT2, **_SHARED}, _GPT2_FULL)
    _require_divisible(config, "n_embd", "n_head")
    return _causal("gpt2", Gpt2(config), config, "n_positions")


def llama(config: Mapping[str, Any]) -> TorchModel:
    """Llama; ``size=full`` has the sizes of TinyLlama, 1.1 billion parameters."""
    small, full = (dict(zip(_LLAMA, each, strict=True)) for each in ((2, 64, 160, 4, 2), (22, 2048, 5632, 32, 4)))
    rest = {"vocab_size": 512, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, **_SHARED}
    full |= {"vocab_size": 32000, "max_position_embeddings": 2048}
    config = effective_config("llama", config, {**small, **rest}, full)
    _require_divisible(config, "hidden_size", "num_attention_heads")
    _require_divisible(config, "num_attention_heads", "num_key_value_heads")
    if config["hidden_size"] // config["num_attention_heads"] % 2:
        raise UsageError("a head has an odd width, but rotary positions turn pairs: hidden_size / num_attention_heads")
    return _causal("llama", Llama(config), config, "max_position_embeddings")


def _causal(name: str, module: nn.Module, config: Mapping[str, Any], longest: str) -> TorchModel:
    shape, vocabulary, context = (config["batch"], config["tokens"]), config["vocab_size"], config[longest]
    if shape[1] > context:
        raise UsageError(f"tokens is {shape[1]}, but {longest} is {context}: state a larger {longest}, too")

    def inputs(seed: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))}

    about = {"causal": True, "vocabulary": vocabulary, "context": context}
    return TorchModel(name=name, module=module, inputs=inputs, outputs=("logits",), **about)


def _require_divisible(config: Mapping[str, Any], whole: str, part: str) -> None:
    if config[whole] % config[part]:
        raise UsageError(f"{whole} is {config[whole]}, expected a multiple of {part}, which is {config[part]}")


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


def _heads(x: torch.Tensor, width: int) -> torch.Tensor:
    """[batch, tokens, heads x width] as [batch, heads, tokens, width]."""
    return x.view(*x.shape[:2], -1, width).transpose(1, 2)


def _joined(heads: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return heads.transpose(1, 2).reshape(like.shape)


class Block(nn.ModuleDict):
    """Norm and attention, norm and matrices: four layers in this order, each two beside a shortcut."""

    def forward(self, x: torch.Tensor, *angles: torch.Tensor) -> torch.Tensor:
        norm, attention, second_norm, mlp = self.values()
        x = x + attention(norm(x), *angles)
        return x + mlp(second_norm(x))


class Decoder(nn.Module):
    """The layers of a language model by their names in ``part``, the embedding first, and its head."""

    def __init__(self, part: str, layers: dict[str, nn.Module], *, tied: bool) -> None:
        super().__init__()
        setattr(self, part, nn.ModuleDict(layers))
        embedding = next(iter(layers.values()))
        self.lm_head = nn.Linear(embedding.embedding_dim, embedding.num_embeddings, bias=False)
        if tied:
            self.lm_head.weight = embedding.weight

    def positions(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Of the tokens of a call, in the sequence that begins with those that are kept."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        kept = next(each.kept for each in self.modules() if isinstance(each, CausalAttention))
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
        self.head = width // heads
        self.attention = CausalAttention()
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.c_attn(x).split(x.shape[-1], dim=-1)
        return self.c_proj(_joined(self.attention(*(_heads(each, self.head) for each in parts)), x))


class Gpt2(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        width, eps = config["n_embd"], config["layer_norm_epsilon"]

        def block() -> Block:
            layers = {"c_fc": Conv1D(width, 4 * width), "act": nn.GELU("tanh"), "c_proj": Conv1D(4 * width, width)}
            attention, mlp = Gpt2Attention(width, config["n_head"]), nn.Sequential(OrderedDict(layers))
            norms = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
            return Block({"ln_1": norms[0], "attn": attention, "ln_2": norms[1], "mlp": mlp})

        layers = {
            "wte": nn.Embedding(config["vocab_size"], width),
            "wpe": nn.Embedding(config["n_positions"], width),
            "h": nn.ModuleList(block() for _ in range(config["n_layer"])),
            "ln_f": nn.LayerNorm(width, eps),
        }
        super().__init__("transformer", layers, tied=config["tied"])

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.transformer.wte(input_ids) + self.transformer.wpe(self.positions(input_ids))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


class Rotary(nn.Module):
    """Rotary positions (Su et al. 2021, arXiv:2104.09864); elements i and i + width/2 of a head are a pair."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin


class LlamaAttention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.head, self.repeats = width // heads, heads // groups
        self.rotary, self.attention = Rotary(), CausalAttention()
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * self.head, bias=False)
        self.v_proj = nn.Linear(width, groups * self.head, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        query, key, value = (_heads(made(x), self.head) for made in (self.q_proj, self.k_proj, self.v_proj))
        query, key = self.rotary(query, cos, sin), self.rotary(key, cos, sin)
        key, value = (each.repeat_interleave(self.repeats, dim=1) for each in (key, value))
        return self.o_proj(_joined(self.attention(query, key, value), x))


class LlamaMlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Llama(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        width, eps, heads = config["hidden_size"], config["rms_norm_eps"], config["num_attention_heads"]

        def block() -> Block:
            attention = LlamaAttention(width, heads, config["num_key_value_heads"])
            parts = (
                nn.RMSNorm(width, eps),
                attention,
                nn.RMSNorm(width, eps),
                LlamaMlp(width, config["intermediate_size"]),
            )
            return Block(dict(zip(_LLAMA_BLOCK, parts, strict=True)))

        layers = {
            "embed_tokens": nn.Embedding(config["vocab_size"], width),
            "layers": nn.ModuleList(block() for _ in range(config["num_hidden_layers"])),
            "norm": nn.RMSNorm(width, eps),
        }
        super().__init__("model", layers, tied=config["tied"])
        frequencies = config["rope_theta"] ** (-torch.arange(0, width // heads, 2) / (width // heads))
        self.register_buffer("inv_freq", frequencies, persistent=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        angles = self.positions(input_ids)[:, None].float() * self.inv_freq
        angles = torch.cat([angles, angles], dim=-1)
        cos, sin = angles.cos(), angles.sin()
        x = self.model.embed_tokens(input_ids)
        for block in self.model.layers:
            x = block(x, cos, sin)
        return self.lm_head(self.model.norm(x))
