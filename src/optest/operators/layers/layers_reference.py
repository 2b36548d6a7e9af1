"""Compositions of layers, as functions of an evaluator of operators; references and error terms follow from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from optest.operators.arrays import Attributes, Inputs, quiet_hooks
from optest.operators.composition import Calls, budget_of, reference_of

Tensors = tuple[Any, ...]


def _with_omitted_inputs(inputs: Inputs, count: int) -> list[Any]:
    """Return ``count`` inputs, with None for those at the end that are left out."""
    return [*inputs, *[None] * (count - len(inputs))]


def _linear_with_bias(call: Calls, tensor: Any, weight: Any, bias: Any) -> Any:
    # The bias is a part of its own: some frameworks have no product with a bias.
    product = call("linear", tensor, weight)
    return product if bias is None else call("add", product, bias)


def feed_forward(call: Calls, inputs: Inputs, attributes: Attributes) -> Tensors:
    """Compute linear, activation and linear; with ``states`` also return the activation's result."""
    tensor, up, down, up_bias, down_bias = _with_omitted_inputs(inputs, 5)
    hidden = call(attributes["activation"], _linear_with_bias(call, tensor, up, up_bias))
    return _with_states(attributes, _linear_with_bias(call, hidden, down, down_bias), hidden)


def gated_feed_forward(call: Calls, inputs: Inputs, attributes: Attributes) -> Tensors:
    """Compute linear(activation(gate) · up); with ``states`` also return the product."""
    tensor, gate, up, down, gate_bias, up_bias, down_bias = _with_omitted_inputs(inputs, 7)
    gated = call(attributes["activation"], _linear_with_bias(call, tensor, gate, gate_bias))
    hidden = call("mul", gated, _linear_with_bias(call, tensor, up, up_bias))
    return _with_states(attributes, _linear_with_bias(call, hidden, down, down_bias), hidden)


def _with_states(attributes: Attributes, out: Any, *states: Any) -> Tensors:
    return (out, *states) if attributes.get("states") else (out,)


def multi_head_attention(call: Calls, inputs: Inputs, attributes: Attributes) -> Tensors:
    """Compute attention for all tokens at once, or for the first ``prefill``, then one by one with a cache.

    With ``states`` also return the context before the output projection, and the cached keys and values.
    """
    tensor, query, key, value, output, query_bias, key_bias, value_bias, output_bias = _with_omitted_inputs(inputs, 9)
    cache = _Cache(attributes["num_heads"], attributes["num_key_value_heads"])
    contexts = [
        cache.extend(
            call, rows, (query, query_bias), (key, key_bias), (value, value_bias), is_causal=attributes["is_causal"]
        )
        for rows in _prefill_and_decode(call, tensor, attributes["prefill"])
    ]
    context = _concatenated(call, contexts)
    out = _linear_with_bias(call, context, output, output_bias)
    return _with_states(attributes, out, context, cache.keys, cache.values)


def attention_at_once(call: Calls, inputs: Inputs, attributes: Attributes) -> Tensors:
    """Compute :func:`multi_head_attention` for all tokens at once, the result that every ``prefill`` has to equal."""
    return multi_head_attention(call, inputs, {**attributes, "prefill": 0})


def _prefill_and_decode(call: Calls, tensor: Any, prefill: int) -> list[Any]:
    """Split the rows of a tensor into the first ``prefill`` and single ones; 0 keeps them together."""
    length = tensor.shape[0]
    starts = [0, *range(prefill, length)] if prefill else [0]
    if len(starts) == 1:
        return [tensor]
    ends = [*starts[1:], length]
    return [call("slice", tensor, dim=[0], start=[at], end=[end]) for at, end in zip(starts, ends, strict=True)]


def _concatenated(call: Calls, rows: list[Any]) -> Any:
    # Without a cache no concat is called: backends that lack it can still run the layer.
    return rows[0] if len(rows) == 1 else call("concat", *rows, dim=0)


class _Cache:
    """Keys and values of one attention layer, (heads, tokens, width), which grow with each decoding step."""

    def __init__(self, heads: int, shared_heads: int = 0) -> None:
        self._heads = heads
        self._shared_heads = shared_heads or heads
        self.keys: Any = None
        self.values: Any = None

    def extend(
        self,
        call: Calls,
        rows: Any,
        query: tuple[Any, Any],
        key: tuple[Any, Any],
        value: tuple[Any, Any],
        *,
        is_causal: bool = True,
    ) -> Any:
        """Append keys and values of ``rows`` (tokens, size) and return their context (tokens, heads · width).

        ``query``, ``key`` and ``value`` are pairs of a weight (outputs, inputs) and a bias or None.
        """
        heads, shared, count = self._heads, self._shared_heads, rows.shape[0]
        width = query[0].shape[0] // heads
        queries = _split_heads(call, _linear_with_bias(call, rows, *query), heads, width)
        keys = _split_heads(call, _linear_with_bias(call, rows, *key), shared, width)
        values = _split_heads(call, _linear_with_bias(call, rows, *value), shared, width)
        is_first = self.keys is None
        # Later rows come one by one: they may attend to the whole cache and need no causal mask.
        self.keys = keys if is_first else call("concat", self.keys, keys, dim=1)
        self.values = values if is_first else call("concat", self.values, values, dim=1)
        mixed = call(
            "scaled_dot_product_attention",
            _batched(call, queries),
            _batched(call, _repeat_heads(call, self.keys, heads // shared)),
            _batched(call, _repeat_heads(call, self.values, heads // shared)),
            is_causal=is_causal and is_first,
        )
        context = call("permute", call("reshape", mixed, shape=[heads, count, width]), dims=[1, 0, 2])
        return call("reshape", context, shape=[count, heads * width])


def _split_heads(call: Calls, tensor: Any, heads: int, width: int) -> Any:
    """Reshape (tokens, heads · width) to (heads, tokens, width)."""
    return call("permute", call("reshape", tensor, shape=[tensor.shape[0], heads, width]), dims=[1, 0, 2])


def _batched(call: Calls, tensor: Any) -> Any:
    return call("reshape", tensor, shape=[1, *tensor.shape])


def _repeat_heads(call: Calls, tensor: Any, times: int) -> Any:
    """Repeat each head ``times`` times: a, b becomes a, a, b, b."""
    if times == 1:
        return tensor
    heads, *rest = tensor.shape
    single = call("reshape", tensor, shape=[heads, 1, *rest])
    return call("reshape", call("broadcast_to", single, shape=[heads, times, *rest]), shape=[heads * times, *rest])


def gpt(call: Calls, inputs: Inputs, attributes: Attributes) -> Tensors:
    """Compute the logits of all tokens at once, or of the first ``prefill``, then one by one with caches."""
    embedding, tokens, positions, norms, attention, up, down, final_norm = inputs
    layers, size, prefill = up.shape[0], embedding.shape[1], attributes["prefill"]

    def row(stacked: Any, *index: int) -> Any:
        dims = list(range(len(index)))
        kept = call("slice", stacked, dim=dims, start=list(index), end=[each + 1 for each in index])
        return call("reshape", kept, shape=list(stacked.shape[len(index) :]))

    def normed(hidden: Any, weight: Any, bias: Any) -> Any:
        return call("layer_norm", hidden, weight, bias, normalized_shape=[size])

    # Weights are sliced once, not for every decoded token.
    blocks = [
        (
            [row(norms, layer, index) for index in range(4)],
            [row(attention, layer, index) for index in range(4)],
            (row(up, layer), row(down, layer)),
            _Cache(attributes["num_heads"]),
        )
        for layer in range(layers)
    ]
    final = [row(final_norm, index) for index in range(2)]
    used = call("slice", positions, dim=[0], start=[0], end=[tokens.shape[0]])
    logits = []
    for ids, rows in zip(
        _prefill_and_decode(call, tokens, prefill), _prefill_and_decode(call, used, prefill), strict=True
    ):
        hidden = call("add", call("embedding", embedding, ids), rows)
        for norm, (query, key, value, output), (to_hidden, from_hidden), cache in blocks:
            pairs = ((query, None), (key, None), (value, None))
            context = cache.extend(call, normed(hidden, *norm[:2]), *pairs)
            hidden = call("add", hidden, call("linear", context, output))
            activated = call("gelu", call("linear", normed(hidden, *norm[2:]), to_hidden))
            hidden = call("add", hidden, call("linear", activated, from_hidden))
        logits.append(call("linear", normed(hidden, *final), embedding))
    return (_concatenated(call, logits),)


def gpt_at_once(call: Calls, inputs: Inputs, attributes: Attributes) -> Tensors:
    """Compute :func:`gpt` for all tokens at once, the result that every ``prefill`` has to equal."""
    return gpt(call, inputs, {**attributes, "prefill": 0})


def yarn_rotary_embedding(call: Calls, inputs: Inputs, attributes: Attributes) -> Tensors:
    """Rotate pairs of elements by angles of YaRN, and copy elements beyond ``rotary_embedding_dim``."""
    tensor, positions = inputs
    frequencies = _yarn_frequencies(attributes["rotary_embedding_dim"] or tensor.shape[-1], attributes)
    grown = 0.1 * math.log(max(1.0, attributes["factor"]))
    scale = call.constant(
        np.asarray([(grown * attributes["mscale"] + 1.0) / (grown * attributes["mscale_all_dim"] + 1.0)])
    )
    column = call("reshape", positions, shape=[positions.shape[0], 1])
    angles = call("mul", column, call.constant(frequencies))
    cos, sin = (call("mul", call(name, angles), scale) for name in ("cos", "sin"))
    # (x₁·cos − x₂·sin, x₂·cos + x₁·sin) for the halves x₁ and x₂ of the rotated elements
    half, size = cos.shape[-1], tensor.shape[-1]
    first, second = (call("slice", tensor, dim=[-1], start=[at], end=[at + half]) for at in (0, half))
    parts = [
        call("sub", call("mul", first, cos), call("mul", second, sin)),
        call("add", call("mul", second, cos), call("mul", first, sin)),
    ]
    rest = [call("slice", tensor, dim=[-1], start=[2 * half], end=[size])] if size > 2 * half else []
    return (call("concat", *parts, *rest, dim=-1),)


def _yarn_frequencies(size: int, attributes: Attributes) -> Any:
    """Return the ``size // 2`` frequencies base^(−2i/D), scaled by YaRN.

    They are unchanged above beta_fast turns in the original length, divided by factor below beta_slow, and a linear mix
    in between.
    """
    base, length = attributes["base"], attributes["original_length"]

    def index_of(turns: float) -> float:
        return size * math.log(length / (turns * 2.0 * math.pi)) / (2.0 * math.log(base))

    low = max(0.0, math.floor(index_of(attributes["beta_fast"])))
    high = min(size - 1.0, math.ceil(index_of(attributes["beta_slow"])))
    indices = np.arange(size // 2, dtype=np.float64)
    # 1e-3 in place of a difference of 0, as in transformers.
    slow = np.clip((indices - low) / max(high - low, 1e-3), 0.0, 1.0)
    frequencies = base ** (-2.0 * indices / size)
    return frequencies * (1.0 - slow) + frequencies / attributes["factor"] * slow


def training_step(call: Calls, inputs: Inputs, attributes: Attributes) -> Tensors:
    """Compute one step of gradient descent: the new weight, the new bias and the loss before it."""
    tensor, weight, bias, target = inputs
    error = call("sub", _linear_with_bias(call, tensor, weight, bias), target)
    loss = call("mean", call("mul", error, error))
    # The derivative of the mean squared error is 2/n times the error.
    rate = call.constant(np.asarray([2.0 * attributes["learning_rate"] / max(1, math.prod(target.shape))]))
    step = call("mul", error, rate)
    new_weight = call("sub", weight, call("matmul", call("permute", step, dims=[1, 0]), tensor))
    new_bias = call("sub", bias, call("sum", step, dim=[0]))
    return (new_weight, new_bias, loss)


feed_forward_reference = reference_of(feed_forward)
feed_forward_terms = budget_of(feed_forward)
gated_feed_forward_reference = reference_of(gated_feed_forward)
gated_feed_forward_terms = budget_of(gated_feed_forward)
multi_head_attention_reference = reference_of(attention_at_once)
multi_head_attention_terms = budget_of(attention_at_once)
gpt_reference = reference_of(gpt_at_once)
gpt_terms = budget_of(gpt_at_once)
yarn_rotary_embedding_reference = reference_of(yarn_rotary_embedding)
yarn_rotary_embedding_terms = budget_of(yarn_rotary_embedding)
training_step_reference = reference_of(training_step)
training_step_terms = budget_of(training_step)


quiet_hooks(globals())
