"""GPT-2 and Llama in plain torch. State dicts have the names and layouts of Hugging Face's published checkpoints.

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
from optest.torch.models.torch_model import TorchModel, effective_config

_SHARED = {"tied": False, "batch": 2, "tokens": 16}
_GPT2 = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 512, "n_positions": 256, "layer_norm_epsilon": 1e-5}
_GPT2_FULL = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024, "tied": True}
_LLAMA = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
_LLAMA_BLOCK = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")


def gpt2(config: Mapping[str, Any]) -> TorchModel:
    """Return GPT-2 with random weights; ``size=full`` has the sizes of the published model, 124 million parameters."""
    config = effective_config("gpt2", config, {**_GPT2, **_SHARED}, _GPT2_FULL)
    _require_divisible(config, "n_embd", "n_head")
    return _causal("gpt2", Gpt2(config), config, "n_positions")


def llama(config: Mapping[str, Any]) -> TorchModel:
    """Return Llama; ``size=full`` has the sizes of TinyLlama, 1.1 billion parameters."""
    small, full = (dict(zip(_LLAMA, sizes, strict=True)) for sizes in ((2, 64, 160, 4, 2), (22, 2048, 5632, 32, 4)))
    rest = {"vocab_size": 512, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, **_SHARED}
    full |= {"vocab_size": 32000, "max_position_embeddings": 2048}
    config = effective_config("llama", config, {**small, **rest}, full)
    _require_divisible(config, "hidden_size", "num_attention_heads")
    _require_divisible(config, "num_attention_heads", "num_key_value_heads")
    if config["hidden_size"] // config["num_attention_heads"] % 2:
        raise UsageError("hidden_size / num_attention_heads is odd, expected even: rotary positions rotate pairs")
    return _causal("llama", Llama(config), config, "max_position_embeddings")


def _causal(name: str, module: nn.Module, config: Mapping[str, Any], context_key: str) -> TorchModel:
    """Return a language model with random tokens as inputs; ``context_key`` is the key of the maximum length."""
    shape, vocabulary, context = (config["batch"], config["tokens"]), config["vocab_size"], config[context_key]
    if shape[1] > context:
        raise UsageError(f"tokens is {shape[1]}, expected at most {context}, the value of {context_key}")

    def inputs(seed: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))}

    sizes = {"vocabulary": vocabulary, "context": context}
    return TorchModel(name=name, module=module, inputs=inputs, outputs=("logits",), causal=True, **sizes)


def _require_divisible(config: Mapping[str, Any], key: str, divisor: str) -> None:
    if config[key] % config[divisor]:
        raise UsageError(f"{key} is {config[key]}, expected a multiple of {divisor}, which is {config[divisor]}")


class CausalAttention(nn.Module):
    """Causal attention of tensors [batch, heads, tokens, head width].

    If ``keeps`` is set, it caches keys and values, and a call continues the sequence of the calls before it.
    """

    # Written in single steps, not as scaled_dot_product_attention, so that a trace shows every value.
    keeps = False
    kept: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if self.keeps:
            if self.kept is not None:
                key, value = torch.cat([self.kept[0], key], dim=-2), torch.cat([self.kept[1], value], dim=-2)
            self.kept = key, value
        tokens, known = query.shape[-2], key.shape[-2]
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        # The first query is at position ``known - tokens`` of the keys.
        mask = torch.ones(tokens, known, dtype=torch.bool, device=query.device).tril(known - tokens)
        weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        return weights @ value


def _split_heads(x: torch.Tensor, width: int) -> torch.Tensor:
    """Split [batch, tokens, heads x width] into heads: return [batch, heads, tokens, width]."""
    return x.view(*x.shape[:2], -1, width).transpose(1, 2)


def _join_heads(heads: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return heads.transpose(1, 2).reshape(like.shape)


class Block(nn.ModuleDict):
    """Transformer block of four layers: norm, attention, norm, MLP; a shortcut around each pair."""

    def forward(self, x: torch.Tensor, *angles: torch.Tensor) -> torch.Tensor:
        norm, attention, second_norm, mlp = self.values()
        x = x + attention(norm(x), *angles)
        return x + mlp(second_norm(x))


class Decoder(nn.Module):
    """Base of language models: the named ``layers`` in a module ``part``, the embedding first, and the LM head."""

    def __init__(self, part: str, layers: dict[str, nn.Module], *, tied: bool) -> None:
        super().__init__()
        setattr(self, part, nn.ModuleDict(layers))
        embedding = next(iter(layers.values()))
        self.lm_head = nn.Linear(embedding.embedding_dim, embedding.num_embeddings, bias=False)
        if tied:
            self.lm_head.weight = embedding.weight

    def positions(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the tokens' positions in the sequence, which begins with the cached tokens."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        kept = next(module.kept for module in self.modules() if isinstance(module, CausalAttention))
        return positions if kept is None else positions + kept[0].shape[-2]


class Conv1D(nn.Module):
    """Linear layer with a weight [in, out], as in GPT-2's checkpoints."""

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
        return self.c_proj(_join_heads(self.attention(*(_split_heads(part, self.head) for part in parts)), x))


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
        query, key, value = (_split_heads(layer(x), self.head) for layer in (self.q_proj, self.k_proj, self.v_proj))
        query, key = self.rotary(query, cos, sin), self.rotary(key, cos, sin)
        key, value = (tensor.repeat_interleave(self.repeats, dim=1) for tensor in (key, value))
        return self.o_proj(_join_heads(self.attention(query, key, value), x))


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
