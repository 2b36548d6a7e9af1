"""Descriptors, inference and samples of layers: feed-forward, attention, GPT, YaRN positions, a training step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.operators.attention.rope import rotated_size
from optest.operators.calls import MAIN_FLOATS, Call, call, reshaped, uniform, without
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.samples import error_samples, in_layouts_at_once, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, first_size, index_range, require_spec
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments
from optest.spec.declared_shapes import inference, match_declaration

_ACTIVATION = attribute("activation: str = 'gelu'", "Between the products.", choices=("gelu", "relu", "silu"))
_STATES = attribute("states: bool = False", "Return intermediate results, too.")
_WIDE = (("float32",), ("float64",))
_SAMPLED = composed("errors of the parts, carried to the result by runs with simulated errors")

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="feed_forward",
        signature="input, up, down, up_bias?, down_bias? -> out, hidden?",
        attributes=(_ACTIVATION, _STATES),
        parts=("linear", "add", "gelu|relu|silu"),
        description="linear(activation(linear(input, up, up_bias)), down, down_bias); weights are (outputs, inputs), "
        "as torch's. With `states` also the activation's result.",
    ),
    OperatorDescriptor(
        name="gated_feed_forward",
        signature="input, gate, up, down, gate_bias?, up_bias?, down_bias? -> out, hidden?",
        attributes=(attribute("activation: str = 'silu'", "Of the gate.", choices=("gelu", "relu", "silu")), _STATES),
        parts=("linear", "add", "gelu|relu|silu", "mul"),
        description="linear(activation(linear(input, gate)) · linear(input, up), down), as in Llama (SwiGLU). With "
        "`states` also the product.",
    ),
    OperatorDescriptor(
        name="multi_head_attention",
        signature="input, query, key, value, output, query_bias?, key_bias?, value_bias?, output_bias? "
        "-> out, context?, key_cache?, value_cache?",
        attributes=(
            attribute("num_heads: int", "Heads of the query."),
            attribute("num_key_value_heads: int = 0", "Heads of key and value, shared by those of the query; 0: all."),
            attribute("is_causal: bool = True", "Each token attends to itself and to earlier tokens."),
            attribute(
                "prefill: int = 0",
                "Number of tokens computed at once; the others follow one by one from the cache. 0 means all. The "
                "result is the same.",
            ),
            _STATES,
        ),
        parts=(
            "linear",
            "add",
            "reshape",
            "permute",
            "broadcast_to",
            "scaled_dot_product_attention",
            "concat",
            "slice",
        ),
        description="Attention of a sequence (S, E) to itself, with the weights of its four projections, (outputs, "
        "inputs). With `states` also the context before the last one, and the caches (heads, S, E / heads).",
    ),
    OperatorDescriptor(
        name="gpt",
        signature="embedding, tokens, positions, norms, attention, up, down, final_norm -> logits",
        attributes=(
            attribute("num_heads: int", "Heads of every attention layer."),
            attribute(
                "prefill: int = 0",
                "Number of tokens computed at once; the others follow one by one, with caches of keys and values. "
                "0 means all. The result is the same.",
            ),
        ),
        parts=(
            "embedding",
            "add",
            "layer_norm",
            "linear",
            "gelu",
            "scaled_dot_product_attention",
            "reshape",
            "permute",
            "concat",
            "slice",
        ),
        dtype_variants=tuple((name, "int64", *[name] * 6) for name in ("float32", "float64")),
        domain="gpt_domain",
        generator={"tokens": "randint"},
        description="Logits (S, V) of a language model of GPT-2's form for S tokens, without biases: embedding (V, E), "
        "tied to the output, plus positions (C, E); L blocks of causal attention and a feed-forward layer with gelu, "
        "each after a layer_norm; a layer_norm at the end. Weights are stacked: norms (L, 4, E) are weight and bias "
        "of both, attention (L, 4, E, E) query, key, value and output, up is (L, H, E), down (L, E, H), final_norm "
        "(2, E).",
    ),
    OperatorDescriptor(
        name="yarn_rotary_embedding",
        signature="input, positions -> out",
        attributes=(
            attribute("base: float = 10000.0", "Base of the frequencies base^(−2i/D)."),
            attribute("factor: float = 4.0", "Factor by which the context grows."),
            attribute("original_length: int = 2048", "Context length in training."),
            attribute("beta_fast: float = 32.0", "Frequencies with more turns in original_length are unchanged."),
            attribute("beta_slow: float = 1.0", "Frequencies with fewer turns are divided by factor."),
            attribute("rotary_embedding_dim: int = 0", "Number of leading elements that are rotated; 0 means all."),
            attribute("mscale: float = 1.0", "Weight of g in the numerator of the tables' scale."),
            attribute("mscale_all_dim: float = 0.0", "Weight of g in its denominator."),
        ),
        parts=("reshape", "mul", "cos", "sin", "slice", "sub", "add", "concat"),
        dtype_variants=_WIDE,
        domain={"positions": Interval(low=0.0, high=4096.0)},
        generator={"positions": {"fill": "arange", "start": 0.0, "step": 1.0}},
        description="Rotates pairs of (…, S, D) as rope does, with frequencies scaled by YaRN (Peng et al., 2023, "
        "arXiv 2309.00071), and tables times (mscale·g + 1) / (mscale_all_dim·g + 1), g = 0.1·ln(max(1, factor)). As "
        "in transformers, f(β) = D·ln(L/2πβ)/(2·ln base) is the index of a frequency that turns β times in the "
        "original length L; frequency i is divided by factor to the share (i − low)/(high − low), clamped to [0, 1], "
        "with low = max(0, ⌊f(beta_fast)⌋) and high = min(D − 1, ⌈f(beta_slow)⌉). Positions have the input's dtype.",
    ),
    OperatorDescriptor(
        name="training_step",
        signature="input, weight, bias, target -> new_weight, new_bias, loss",
        attributes=(attribute("learning_rate: float = 0.5", "Learning rate."),),
        parts=("linear", "add", "sub", "mul", "mean", "sum", "permute", "matmul"),
        description="One step of gradient descent of a linear layer: p − learning_rate · ∂loss/∂p, with the mean "
        "squared error as loss.",
    ),
    dtype_variants=FLOATS,
    rule=_SAMPLED,
)


def infer_feed_forward(specs: Specs, attributes: Attributes) -> Outputs:
    weights = "input: T[*rows, size], up: T[hidden, size], down: T[outputs, hidden]"
    return _infer_feed_forward(specs, f"{weights}, up_bias?: T[hidden], down_bias?: T[outputs]", attributes)


def infer_gated_feed_forward(specs: Specs, attributes: Attributes) -> Outputs:
    weights = "input: T[*rows, size], gate: T[hidden, size], up: T[hidden, size], down: T[outputs, hidden]"
    biases = "gate_bias?: T[hidden], up_bias?: T[hidden], down_bias?: T[outputs]"
    return _infer_feed_forward(specs, f"{weights}, {biases}", attributes)


def _infer_feed_forward(specs: Specs, declared: str, attributes: Attributes) -> Outputs:
    _, outputs = match_declaration(specs, f"{declared} -> T[*rows, outputs], T[*rows, hidden]")
    return outputs if attributes.get("states") else outputs[:1]


def infer_multi_head_attention(specs: Specs, attributes: Attributes) -> Outputs:
    weights = "input: T[tokens, size], query: T[whole, size], key: T[shared, size], value: T[shared, size]"
    biases = "query_bias?: T[whole], key_bias?: T[shared], value_bias?: T[shared], output_bias?: T[outputs]"
    outs = "T[tokens, outputs], T[tokens, whole]"
    n, outputs = match_declaration(specs, f"{weights}, output: T[outputs, whole], {biases} -> {outs}")
    heads = attributes["num_heads"]
    shared = attributes.get("num_key_value_heads") or heads
    if heads < 1 or n.whole % heads:
        raise UnfitArguments(f"num_heads is {heads}, expected a divisor of {n.whole}, the rows of query")
    if shared < 1 or heads % shared:
        raise UnfitArguments(f"num_key_value_heads is {shared}, expected a divisor of {heads}, num_heads")
    width = n.whole // heads
    if n.shared != width * shared:
        raise UnfitArguments(
            f"key and value are {n.shared}x{n.size}, expected {width * shared}x{n.size}: {shared} heads as wide as "
            "those of query"
        )
    prefill = attributes.get("prefill", 0)
    if not 0 <= prefill <= n.tokens:
        raise UnfitArguments(f"prefill is {prefill}, expected 0 to {n.tokens}, the number of tokens")
    if prefill and not attributes.get("is_causal", True):
        raise UnfitArguments(f"prefill is {prefill}, expected 0 with is_causal: false, as tokens see later ones")
    cache = dense(n.T, (shared, n.tokens, width))
    return (*outputs, cache, cache) if attributes.get("states") else outputs[:1]


def infer_gpt(specs: Specs, attributes: Attributes) -> Outputs:
    weights = "norms: T[layers, 4, size], attention: T[layers, 4, size, size], up: T[layers, hidden, size]"
    tables = "embedding: T[words, size], tokens: [length], positions: T[context, size]"
    declared = f"{tables}, {weights}, down: T[layers, size, hidden], final_norm: T[2, size] -> T[length, words]"
    n, outputs = match_declaration(specs, declared)
    heads = attributes["num_heads"]
    if heads < 1 or n.size % heads:
        raise UnfitArguments(f"num_heads is {heads}, expected a divisor of {n.size}, the size of a row")
    prefill = attributes.get("prefill", 0)
    if not 0 <= prefill <= n.length:
        raise UnfitArguments(f"prefill is {prefill}, expected 0 to {n.length}, the number of tokens")
    if n.length > n.context:
        raise UnfitArguments(f"tokens has {n.length} elements, expected at most {n.context}, the rows of positions")
    return outputs


def gpt_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the range of tokens: indices of rows of the embedding."""
    return {"tokens": index_range(first_size(specs, 0))}


def infer_yarn_rotary_embedding(specs: Specs, attributes: Attributes) -> Outputs:
    _, outputs = match_declaration(
        specs, "input: T[*lead, tokens, size], positions: T[tokens] -> T[*lead, tokens, size]"
    )
    rotated_size(require_spec(specs, 0, "input"), attributes)
    return outputs


infer_training_step = inference(
    "input: T[rows, size], weight: T[outputs, size], bias: T[outputs], target: T[rows, outputs]"
    " -> T[outputs, size], T[outputs], T[]"
)


# Samples; they include the shapes of gpt.rs's parity tests.

_INVARIANTS = ("repeat", "stateless")
_INVARIANTS_OF_ROWS = (*_INVARIANTS, "batch(input)", "permutation(input)")


def feed_forward_samples() -> Iterator[Sample]:
    shapes = [(4, 6, 10, True), (3, 4, 12, False), (1, 32, 128, True), (4, 64, 256, True), (7, 13, 31, False)]
    calls = [_feed_forward(rows, size, hidden, biases=biases) for rows, size, hidden, biases in shapes]
    states = [
        _feed_forward(2, 5, 7, biases=True, states=True),
        _feed_forward(4, 32, 128, biases=True, states=True),
        {**_feed_forward(2, 16, 32, biases=True, states=True), "generator": uniform(-10.0, 10.0)},
    ]
    others = [_feed_forward(5, 17, 33, biases=True, activation=name) for name in ("relu", "silu")]
    large = [
        reshaped(calls[0], input=[2, 3, 6]),
        without(_feed_forward(33, 65, 300, biases=True), "up_bias"),
        without(_feed_forward(17, 6, 10, biases=True), "down_bias"),
    ]
    wrong = [reshaped(calls[0], up=[10, 5]), reshaped(calls[0], down_bias=[5])]
    yield from _layer(calls, _INVARIANTS_OF_ROWS, wrong, states=states, attributes=others, sizes=large)


def _feed_forward(rows: int, size: int, hidden: int, *, biases: bool, **attributes: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {"input": (rows, size), "up": (hidden, size), "down": (size, hidden)}
    return call(attributes, **(shapes | {"up_bias": (hidden,), "down_bias": (size,)} if biases else shapes))


def gated_feed_forward_samples() -> Iterator[Sample]:
    calls = [
        _gated_call(3, 8, 16, biases=True),
        _gated_call(4, 7, 15, biases=False),
        _gated_call(4, 64, 256, biases=True),
    ]
    yield from _layer(
        calls,
        _INVARIANTS_OF_ROWS,
        [reshaped(calls[0], gate=[15, 8]), reshaped(calls[0], down=[8, 15])],
        states=[_gated_call(2, 5, 7, biases=True, states=True), _gated_call(3, 16, 33, biases=False, states=True)],
        attributes=[_gated_call(5, 17, 33, biases=True, activation=name) for name in ("gelu", "relu")],
        sizes=[without(_gated_call(33, 65, 300, biases=True), "gate_bias"), reshaped(calls[0], input=[2, 3, 8])],
    )


def _gated_call(rows: int, size: int, hidden: int, *, biases: bool, **attributes: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {"input": (rows, size), "gate": (hidden, size), "up": (hidden, size)}
    shapes["down"] = (size, hidden)
    more: dict[str, Any] = {"gate_bias": (hidden,), "up_bias": (hidden,), "down_bias": (size,)}
    return call(attributes, **shapes, **(more if biases else {}))


def multi_head_attention_samples() -> Iterator[Sample]:
    calls = [
        _attention_call(5, 8, 4, 2, prefill=3),
        _attention_call(5, 8, 4),
        _attention_call(4, 8, 4, 2),
        _attention_call(3, 8, 4, biases=False),
        _attention_call(1, 32, 4),
        _attention_call(8, 32, 4),
        _attention_call(8, 32, 8, 1),
        _attention_call(8, 32, 8, 2),
        _attention_call(4, 8, 8),
        _attention_call(7, 12, 3, is_causal=False),
    ]
    wrong = [reshaped(calls[1], key=[6, 8]), reshaped(calls[1], value_bias=[7])]
    yield from _layer(
        calls,
        _INVARIANTS,
        wrong,
        states=[_attention_call(4, 8, 4, states=True), _attention_call(6, 16, 4, 2, states=True, is_causal=False)],
        cache=[
            _attention_call(7, 32, 4, prefill=4),
            _attention_call(7, 32, 8, 2, prefill=4, states=True),
            _attention_call(3, 8, 4, prefill=2, states=True),
            _attention_call(9, 8, 4, prefill=1, states=True, dtypes=("float32",)),
        ],
        sizes=[
            _attention_call(33, 128, 2, dtypes=("float32",)),
            without(_attention_call(17, 48, 6, 3, is_causal=False, dtypes=("float32",)), "key_bias"),
            without(_attention_call(19, 24, 3, prefill=17, dtypes=("float32",)), "query_bias"),
        ],
    )


def _attention_call(
    tokens: int,
    size: int,
    heads: int,
    shared: int = 0,
    *,
    biases: bool = True,
    dtypes: Sequence[str] = (),
    **attributes: Any,
) -> dict[str, Any]:
    inner = size // heads * (shared or heads)
    shapes: dict[str, Any] = {"query": (size, size), "key": (inner, size), "value": (inner, size)}
    shapes["output"] = (size, size)
    more: dict[str, Any] = {f"{name}_bias": shape[:1] for name, shape in shapes.items()}
    attributes |= {"num_heads": heads, **({"num_key_value_heads": shared} if shared else {})}
    return call(attributes, dtypes=dtypes, input=(tokens, size), **shapes, **(more if biases else {}))


def gpt_samples() -> Iterator[Sample]:
    calls = [
        _gpt(4, 32, 8, 2, prefill=2),
        _gpt(20, 64, 32, 4, prefill=4),
        _gpt(20, 64, 32, 4),
        _gpt(5, 33, 24, 3, layers=3, prefill=1),
        _gpt(1, 7, 8, 8, layers=1),
    ]
    wrong = [reshaped(calls[0], positions=[16, 7]), reshaped(calls[0], up=[1, 16, 8])]
    yield from _layer(calls, _INVARIANTS, wrong, dtypes=("float32", "float64"))


def _gpt(tokens: int, words: int, size: int, heads: int, *, layers: int = 2, **attributes: Any) -> dict[str, Any]:
    return call(
        {"num_heads": heads, **attributes},
        embedding=(words, size),
        tokens=(tokens,),
        positions=(tokens + 3, size),
        norms=(layers, 4, size),
        attention=(layers, 4, size, size),
        up=(layers, 2 * size, size),
        down=(layers, size, 2 * size),
        final_norm=(2, size),
    )


def yarn_rotary_embedding_samples() -> Iterator[Sample]:
    calls = [
        call(input=(4, 9, 16), positions=(9,)),
        call({"rotary_embedding_dim": 16}, input=(3, 7, 24), positions=(7,)),
        call({"factor": 8.0, "original_length": 512, "base": 5e5}, input=(2, 33, 64), positions=(33,)),
        call({"factor": 8.0, "mscale": 1.35, "mscale_all_dim": 0.75}, input=(2, 12, 16), positions=(12,)),
        call({"beta_fast": 16.0, "beta_slow": 2.0, "original_length": 4096}, input=(2, 17, 32), positions=(17,)),
    ]
    # Positions beyond original_length are the purpose of YaRN.
    far = {"positions": {"fill": "arange", "start": 1500.0, "step": 1.0}}
    later = call({"original_length": 1024}, generator=far, input=(1, 129, 32), positions=(129,))
    wrong = [reshaped(calls[0], positions=[8]), reshaped(calls[0], input=[4, 9, 15])]
    yield from _layer(calls, _INVARIANTS, wrong, dtypes=("float32", "float64"), sizes=[later])


def training_step_samples() -> Iterator[Sample]:
    calls = [_training_step_call(*sizes) for sizes in ((4, 5, 3), (1, 1, 1), (17, 33, 9), (64, 64, 64))]
    calls.append(_training_step_call(7, 13, 5, learning_rate=0.01))
    wrong = [reshaped(calls[0], target=[4, 4]), reshaped(calls[0], bias=[4])]
    yield from _layer(calls, _INVARIANTS, wrong, sizes=[_training_step_call(129, 17, 33)])


def _training_step_call(rows: int, size: int, outputs: int, **attributes: Any) -> dict[str, Any]:
    return call(attributes, input=(rows, size), weight=(outputs, size), bias=(outputs,), target=(rows, outputs))


def _layer(
    calls: Sequence[Call],
    invariants: Sequence[str],
    wrong: Sequence[Call],
    *,
    dtypes: Sequence[str] = MAIN_FLOATS,
    **sets: Sequence[Call],
) -> Iterator[Sample]:
    """Yield the case sets of a layer.

    The first call is the smoke test, and the call for layouts and invariants. ``wrong`` are calls that a backend has to
    refuse, ``sets`` further case sets by name.
    """
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", calls, dtypes=dtypes)
    if "float64" not in dtypes:
        yield from variations("ordinary", calls[:2], dtypes=("float64",))
    for name, members in sets.items():
        yield from variations(name, members, dtypes=dtypes)
    yield from in_layouts_at_once(calls[:1])
    yield Sample(case_set="invariants", case={**calls[0], "dtypes": ["float32"], "invariants": list(invariants)})
    yield from error_samples(*wrong)
