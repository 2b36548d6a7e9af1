"""The judge, judged: correct implementations must never fail, and planted faults must.

    python benchmarks/verdict_quality.py [--draws 10000] [--seed 0] [--only OP] [--verbose]

Every draw is an operator, a dtype, a layout and a fill. On it, several correct implementations (torch, float32
arithmetic rounded once, chunked, permuted and sequential accumulation) and several wrong ones are judged by the
built-in rules. A wrong one is asked only where its bits differ from those of the correctly rounded result.
Prints two Markdown tables; exits with 1 if a correct implementation failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from optest.compare import Expected
from optest.compare.verdict import judge
from optest.numerics import numpy_dtype, round_to, ulp, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Argument, DType, Fill, Numerics, Status, TensorSpec, TestCase, Verdict, dtype

try:
    import torch
except ModuleNotFoundError:  # the other implementations are judged all the same
    torch = None  # type: ignore[assignment]

Array = np.ndarray[Any, Any]
NUMERICS = Numerics()
FLOATS = ("float32", "float32", "float16", "float16", "bfloat16", "bfloat16", "float64")
SUMS = ("sum", "matmul", "gemm")


@dataclasses.dataclass(kw_only=True)
class Draw:
    """One question: a case, its inputs, its reference, and what a float32 kernel needs to know of it."""

    operator: str
    dtype: DType
    layout: str
    fill: str
    case: TestCase
    inputs: list[Array | None]
    attributes: dict[str, Any]
    reference: Array
    terms: Any
    output: DType
    rng: np.random.Generator

    def judge(self, actual: Array) -> Verdict:
        wanted = Expected(
            name="out", dtype=self.output, shape=self.reference.shape, value=self.reference, terms=self.terms
        )
        return judge(self.case, [actual], [wanted], numerics=NUMERICS, inputs=self.inputs)

    @property
    def rounded(self) -> Array:
        return round_to(self.reference, self.output)

    @property
    def working(self) -> type[np.floating[Any]]:
        """What a kernel computes in: float32, and float64 for float64."""
        return np.float64 if self.dtype.name == "float64" else np.float32

    def singles(self) -> list[Array]:
        """The inputs in the working precision."""
        return [widen(each).astype(self.working) for each in self.inputs if each is not None]


# drawing


def values(rng: np.random.Generator, fill: str, shape: tuple[int, ...], entry: DType, depth: int) -> Array:
    """Values of one operand in its dtype. ``depth`` is the number of terms that one output adds up."""
    if fill == "normal":
        drawn = rng.standard_normal(shape)
    elif fill == "positive":
        drawn = rng.random(shape)
    elif fill == "constant":
        drawn = np.full(shape, rng.choice([0.1, 1.0 / 3.0, -0.7, 1.0]))
    elif fill == "one-hot":
        drawn = np.zeros(shape)
        drawn.reshape(-1)[:: max(2, shape[-1] + 1)] = 1.0
    elif fill == "scaled rows":
        drawn = rng.standard_normal(shape)
        drawn[: max(1, shape[0] // 8)] *= 30.0 if entry.name == "float16" else 1000.0
    elif fill == "wide":
        drawn = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 6, shape)
    elif fill == "near-constant":
        drawn = 1.003 + 1e-4 * rng.standard_normal(shape)
    elif fill == "integer-exact":
        top = int(max(1, min(4, (2.0**22 / depth) ** 0.5)))
        drawn = rng.integers(1, top + 1, shape) * rng.choice([-1.0, 1.0], shape)
    else:
        raise ValueError(fill)
    return round_to(np.asarray(drawn, dtype=np.float64), entry)


def laid_out(array: Array, layout: str) -> Array:
    """The same shape in another layout; ``broadcast`` repeats the first row with stride 0."""
    if layout == "broadcast" and array.ndim and array.shape[0] > 1:
        return np.broadcast_to(array[:1], array.shape)
    if layout == "transposed" and array.ndim > 1:
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "sliced" and array.ndim:
        storage = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        storage[..., ::2] = array
        return storage[..., ::2]
    return array


FILLS = ("normal", "positive", "constant", "near-constant", "scaled rows", "wide", "one-hot", "integer-exact")
LAYOUTS = ("dense", "broadcast", "transposed", "sliced")


def draw(operator: str, rng: np.random.Generator) -> Draw:
    fill, layout = str(rng.choice(FILLS)), str(rng.choice(LAYOUTS))
    entry = dtype(str(rng.choice(FLOATS)))
    inputs, attributes = OPERANDS[operator](rng, fill, entry)
    inputs = [laid_out(each, layout) if each is not None else None for each in inputs]
    return make(operator, inputs, attributes, entry, layout, fill, rng)


def make(
    operator: str,
    inputs: list[Array | None],
    attributes: dict[str, Any],
    entry: DType,
    layout: str,
    fill: str,
    rng: np.random.Generator,
) -> Draw:
    descriptor = operators.get(operator)
    attributes = descriptor.bind(attributes)
    arguments = tuple(
        Argument(
            name=descriptor.tensors.input_name(index),
            path=f"input{index}",
            spec=TensorSpec(dtype=_entry_of(each), shape=each.shape),
            fill=Fill(kind="integer-exact" if fill == "integer-exact" else "randn"),
        )
        for index, each in enumerate(inputs)
        if each is not None
    )
    specs = [TensorSpec(dtype=_entry_of(each), shape=each.shape) if each is not None else None for each in inputs]
    outputs = tuple(_loaded(descriptor.infer)(specs, attributes))
    case = TestCase(descriptor=descriptor, inputs=arguments, outputs=outputs, attributes=attributes)
    (reference,) = _loaded(descriptor.reference)(inputs, attributes)
    terms = _loaded(descriptor.terms)(inputs, attributes)[0] if descriptor.terms is not None else None
    return Draw(
        operator=operator,
        dtype=entry,
        layout=layout,
        fill=fill,
        case=case,
        inputs=inputs,
        attributes=attributes,
        reference=reference,
        terms=terms,
        output=outputs[0].dtype,
        rng=rng,
    )


def _loaded(hook: Any) -> Callable[..., Any]:
    found: Callable[..., Any] = load_object(hook) if isinstance(hook, str) else hook
    return found


def _entry_of(array: Array) -> DType:
    return dtype(array.dtype.name)


def _size(rng: np.random.Generator, low: int, high: int) -> int:
    return round(2.0 ** rng.uniform(np.log2(low), np.log2(high)))


def _depth(rng: np.random.Generator) -> tuple[int, int, int]:
    """Rows, depth, columns: depths to 65,536, with outputs enough to matter and work that stays small."""
    depth = _size(rng, 2, 65_536) if rng.random() < 0.3 else _size(rng, 2, 1024)
    side = 32 if depth <= 1024 else 12 if depth <= 8192 else 6
    return _size(rng, 4, side) if rng.random() < 0.3 else side, depth, side


def _contraction(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    rows, depth, columns = _depth(rng)
    return [values(rng, fill, (rows, depth), entry, depth), values(rng, fill, (depth, columns), entry, depth)], {}


def _gemm(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    (a, b), _ = _contraction(rng, fill, entry)
    assert a is not None
    assert b is not None
    attributes: dict[str, Any] = {"alpha": float(rng.choice([1.0, 2.0])), "beta": 1.0}
    if fill != "integer-exact":
        attributes = {"alpha": float(rng.choice([1.0, 2.0, 0.3])), "beta": float(rng.choice([1.0, 0.5]))}
    c = values(rng, fill, (a.shape[0], b.shape[1]), entry, a.shape[1]) if rng.random() < 0.6 else None
    if rng.random() < 0.3:
        a, attributes["trans_a"] = np.ascontiguousarray(a.T), True
    if rng.random() < 0.3:
        b, attributes["trans_b"] = np.ascontiguousarray(b.T), True
    return ([a, b] if c is None else [a, b, c]), attributes


def _reduction(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    depth = _size(rng, 2, 65_536) if rng.random() < 0.3 else _size(rng, 2, 2048)
    rows = max(4, min(256, 262_144 // depth))
    return [values(rng, fill, (rows, depth), entry, depth)], {"dim": -1}


def _pair(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    shape = (_size(rng, 2, 64), _size(rng, 2, 64))
    return [values(rng, fill, shape, entry, 1), values(rng, fill, shape, entry, 1)], {}


def _quotient(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    (left, right), _ = _pair(rng, fill, entry)
    assert right is not None
    return [left, np.where(np.abs(widen(right)) < 0.25, right.dtype.type(0.5), right)], {}


def _single(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    return [values(rng, fill, (_size(rng, 2, 64), _size(rng, 2, 64)), entry, 1)], {}


def _exponent(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    (array,), _ = _single(rng, fill, entry)
    assert array is not None
    return [round_to(np.clip(widen(array), -15.0, 11.0), entry)], {}


def _gelu(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    (array,), _ = _exponent(rng, fill, entry)
    return [array], {"approximate": str(rng.choice(["none", "tanh"]))}


def _cast(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    return _single(rng, fill, entry)[0], {"dtype": str(rng.choice(["float16", "bfloat16", "float32"]))}


def _softmax(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    shape = (_size(rng, 4, 32), _size(rng, 2, 4096))
    if fill in ("normal", "positive") and rng.random() < 0.5:  # where exp without the shift overflows
        return [round_to(rng.uniform(84.0, 92.0, shape), entry)], {"dim": -1}
    return [values(rng, fill, shape, entry, shape[1])], {"dim": -1}


def _layer_norm(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    rows, width = _size(rng, 4, 32), _size(rng, 8, 4096)
    x = values(rng, fill, (rows, width), entry, width)
    if fill in ("normal", "positive") and rng.random() < 0.5:  # where eps decides
        x = round_to(rng.standard_normal((rows, width)) * 1e-3, entry)
    inputs: list[Array | None] = [x]
    if rng.random() < 0.5:
        inputs += [values(rng, "normal", (width,), entry, 1), values(rng, "normal", (width,), entry, 1)]
    return inputs, {"normalized_shape": (width,)}


def _transpose(rng: np.random.Generator, fill: str, entry: DType) -> tuple[list[Array | None], dict[str, Any]]:
    return _single(rng, fill, entry)[0], {"dim0": 0, "dim1": 1}


OPERANDS: dict[str, Callable[[np.random.Generator, str, DType], tuple[list[Array | None], dict[str, Any]]]] = {
    "add": _pair,
    "div": _quotient,
    "exp": _exponent,
    "gelu": _gelu,
    "cast": _cast,
    "relu": _single,
    "sum": _reduction,
    "matmul": _contraction,
    "gemm": _gemm,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "transpose": _transpose,
}
WEIGHTS = {"matmul": 5, "gemm": 3, "sum": 4, "softmax": 3, "layer_norm": 3}


# correct implementations


def correct(question: Draw) -> Iterator[tuple[str, Array]]:
    yield "correctly rounded", question.rounded
    if torch is not None:
        yield "torch", by_torch(question)
    if question.operator in SUMS:
        for name, single in SUMMATIONS.items():
            result = single(question)
            if result is not None:
                yield name, finished(question, result)
    elif question.operator in SINGLES:
        yield "float32 arithmetic", finished(question, SINGLES[question.operator](question))
        if question.operator in ("softmax", "layer_norm"):
            yield "chunked", finished(question, CHUNKED[question.operator](question))


def finished(question: Draw, single: Array) -> Array:
    return round_to(single.astype(np.float64), question.output)


def by_torch(question: Draw) -> Array:
    tensors = [None if each is None else _tensor(each) for each in question.inputs]
    return _array(TORCH[question.operator](tensors, question.attributes), question.output)


def _tensor(array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _array(tensor: Any, entry: DType) -> Array:
    tensor = tensor.contiguous()
    if entry.name == "bfloat16":
        found: Array = tensor.view(torch.int16).numpy().view(numpy_dtype(entry))
        return found
    plain: Array = tensor.numpy()
    return plain


def _torch_gemm(tensors: list[Any], attributes: dict[str, Any]) -> Any:
    a = tensors[0].T if attributes["trans_a"] else tensors[0]
    b = tensors[1].T if attributes["trans_b"] else tensors[1]
    alpha, beta = attributes["alpha"], attributes["beta"]
    if len(tensors) > 2:
        return torch.addmm(tensors[2], a, b, alpha=alpha, beta=beta)
    return torch.addmm(torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype), a, b, alpha=alpha, beta=0)


TORCH: dict[str, Callable[[list[Any], dict[str, Any]], Any]] = {
    "add": lambda t, _: t[0] + t[1],
    "div": lambda t, _: t[0] / t[1],
    "exp": lambda t, _: t[0].exp(),
    "gelu": lambda t, a: torch.nn.functional.gelu(t[0], approximate=a["approximate"]),
    "cast": lambda t, a: t[0].to(getattr(torch, a["dtype"])),
    "relu": lambda t, _: t[0].relu(),
    "sum": lambda t, _: t[0].sum(-1),
    "matmul": lambda t, _: t[0] @ t[1],
    "gemm": _torch_gemm,
    "softmax": lambda t, a: t[0].softmax(a["dim"]),
    "layer_norm": lambda t, a: torch.nn.functional.layer_norm(
        t[0], a["normalized_shape"], *(t[1:] or (None, None)), a["eps"]
    ),
    "transpose": lambda t, a: t[0].transpose(a["dim0"], a["dim1"]),
}


def factors(question: Draw) -> tuple[Array, Array, Callable[[Array], Array]]:
    """The float32 factors of a sum or contraction, and what follows the product."""
    singles = question.singles()
    if question.operator == "sum":
        return singles[0], np.ones((singles[0].shape[1], 1), question.working), lambda total: total[:, 0]
    a, b = singles[0], singles[1]
    if question.operator == "matmul":
        return a, b, lambda total: total
    attributes = question.attributes
    a, b = a.T if attributes["trans_a"] else a, b.T if attributes["trans_b"] else b
    alpha, beta = question.working(attributes["alpha"]), question.working(attributes["beta"])

    def scaled(total: Array) -> Array:
        return alpha * total if len(singles) < 3 else alpha * total + beta * singles[2]

    return np.ascontiguousarray(a), np.ascontiguousarray(b), scaled


def _plain(question: Draw) -> Array:
    a, b, then = factors(question)
    return then(a @ b)


def _chunked(question: Draw) -> Array:
    a, b, then = factors(question)
    width = int(question.rng.choice([16, 32, 128, 512]))
    total = np.zeros((a.shape[0], b.shape[1]), question.working)
    for start in range(0, a.shape[1], width):
        total += a[:, start : start + width] @ b[start : start + width]
    return then(total)


def _permuted(question: Draw) -> Array:
    a, b, then = factors(question)
    order = question.rng.permutation(a.shape[1])
    return then(a[:, order] @ b[order])


def _sequential(question: Draw) -> Array | None:
    a, b, then = factors(question)
    if a.shape[0] * a.shape[1] * b.shape[1] > 600_000:
        return None
    products = a.T[:, :, None] * b[:, None, :]
    return then(np.add.accumulate(products, axis=0, dtype=question.working)[-1])


SUMMATIONS: dict[str, Callable[[Draw], Array | None]] = {
    "float32 BLAS": _plain,
    "chunked": _chunked,
    "permuted": _permuted,
    "sequential": _sequential,
}


def _softmax_single(question: Draw) -> Array:
    (x,) = question.singles()
    e = np.exp(x - x.max(-1, keepdims=True))
    found: Array = e / e.sum(-1, keepdims=True)
    return found


def _softmax_online(question: Draw) -> Array:
    """Running maximum and sum over chunks, as flash attention does it."""
    (x,) = question.singles()
    top = np.full((x.shape[0], 1), -np.inf, x.dtype)
    total = np.zeros((x.shape[0], 1), x.dtype)
    for start in range(0, x.shape[1], 64):
        part = x[:, start : start + 64]
        new = np.maximum(top, part.max(-1, keepdims=True))
        total = total * np.exp(top - new) + np.exp(part - new).sum(-1, keepdims=True)
        top = new
    found: Array = np.exp(x - top) / total
    return found


def _layer_norm_single(question: Draw, eps_factor: float = 1.0) -> Array:
    x, *affine = question.singles()
    mean = x.mean(-1, keepdims=True)
    variance = np.square(x - mean).mean(-1, keepdims=True)
    y = (x - mean) / np.sqrt(variance + question.working(question.attributes["eps"] * eps_factor))
    return y * affine[0] + affine[1] if affine else y


def _layer_norm_welford(question: Draw) -> Array:
    """Chunks whose means and squares are merged pairwise (Chan et al.), then x·r - mean·r as many kernels have it."""
    x, *affine = question.singles()
    real = question.working
    count, mean, squares = 0, np.zeros((x.shape[0], 1), real), np.zeros((x.shape[0], 1), real)
    for start in range(0, x.shape[1], 64):
        part = x[:, start : start + 64]
        size = part.shape[1]
        own = part.mean(-1, keepdims=True)
        delta = own - mean
        both = count + size
        squares += np.square(part - own).sum(-1, keepdims=True) + delta * delta * real(count * size / both)
        mean += delta * real(size / both)
        count = both
    y = (x - mean) * (real(1) / np.sqrt(squares / real(count) + real(question.attributes["eps"])))
    return y * affine[0] + affine[1] if affine else y


SINGLES: dict[str, Callable[[Draw], Array]] = {
    "add": lambda q: q.singles()[0] + q.singles()[1],
    "div": lambda q: q.singles()[0] / q.singles()[1],
    "exp": lambda q: np.exp(q.singles()[0]),
    "softmax": _softmax_single,
    "layer_norm": _layer_norm_single,
}
CHUNKED: dict[str, Callable[[Draw], Array]] = {"softmax": _softmax_online, "layer_norm": _layer_norm_welford}


# wrong implementations


def wrong(question: Draw) -> Iterator[tuple[str, Array]]:
    right = question.rounded
    narrow = question.output.bits <= 16
    yield "zeros", np.zeros_like(right)
    yield "one element × 1.5", _one_element(question, right)
    if right.ndim and right.shape[0] > 1:
        order = np.r_[1, 0, 2 : right.shape[0]]
        yield "two rows exchanged", right[order]
    if narrow and question.operator not in ("transpose", "relu"):
        yield "truncated", _truncated(question)
        step = ulp(question.reference, question.output)
        yield "2 ulp of bias", round_to(widen(right) + 2.0 * step, question.output)
    if question.operator in SUMS:
        yield from _wrong_sums(question, narrow)
    if question.operator == "softmax" and float(question.singles()[0].max()) > 88.8 and question.working is np.float32:
        with np.errstate(all="ignore"):
            e = np.exp(question.singles()[0])
            yield "exp without shift", finished(question, e / e.sum(-1, keepdims=True))
    if question.operator == "layer_norm" and _eps_decides(question):
        yield "eps × 10", finished(question, _layer_norm_single(question, 10.0))
    if question.operator == "transpose" and right.size > 1:
        yield "not moved", np.ascontiguousarray(question.inputs[0]).reshape(right.shape)


def _wrong_sums(question: Draw, narrow: bool) -> Iterator[tuple[str, Array]]:
    a, b, then = factors(question)
    if a.shape[1] < 2:
        return
    yield "a product dropped", finished(question, then(a[:, :-1] @ b[:-1]))
    tail = a.shape[1] % 16
    if tail and a.shape[1] > 16:
        yield "tail of k dropped", finished(question, then(a[:, :-tail] @ b[:-tail]))
    if narrow and 32 <= a.shape[1] <= 2048:
        yield "16-bit accumulation", finished(question, then(_narrow_accumulation(question, a, b)))


def _narrow_accumulation(question: Draw, a: Array, b: Array) -> Array:
    total = np.zeros((a.shape[0], b.shape[1]))
    for k in range(a.shape[1]):
        total = widen(round_to(total + a[:, k : k + 1].astype(np.float64) * b[k : k + 1], question.output))
    return total.astype(np.float32)


def _one_element(question: Draw, right: Array) -> Array:
    changed = np.array(right)
    flat = changed.reshape(-1)
    at = int(np.abs(widen(flat)).argmax()) if question.rng.random() < 0.5 else int(question.rng.integers(flat.size))
    flat[at] = round_to(np.asarray(1.5 * float(flat[at])), question.output)
    return changed


def _truncated(question: Draw) -> Array:
    step = ulp(question.reference, question.output)
    return round_to(np.trunc(question.reference / step) * step, question.output)


def _eps_decides(question: Draw) -> bool:
    """Most rows vary, and by no more than eps does."""
    variance = widen(question.inputs[0]).var(-1)
    return bool(((variance > 1e-12) & (variance < 1e-4)).mean() > 0.5)


# the count


def run(draws: int, seed: int, only: str | None, verbose: bool) -> int:
    if torch is not None:
        torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    names = [only] if only else [name for name in OPERANDS for _ in range(WEIGHTS.get(name, 1))]
    asked_right: Counter[tuple[str, str]] = Counter()
    alarms: Counter[tuple[str, str]] = Counter()
    largest: dict[str, float] = defaultdict(float)
    asked: Counter[tuple[str, str]] = Counter()
    caught: Counter[tuple[str, str]] = Counter()
    started = time.perf_counter()
    for number in range(draws):
        operator = str(rng.choice(names))
        question = draw(operator, np.random.default_rng((seed, number)))
        rounded = question.rounded
        for name, actual in correct(question):
            verdict = question.judge(actual)
            asked_right[operator, name] += 1
            z = verdict.measures[0].statistic if verdict.measures else None
            limit = verdict.measures[0].statistic_limit if verdict.measures else None
            if z is not None and limit is not None:
                largest[operator] = max(largest[operator], z / limit)
            if verdict.status is not Status.PASSED:
                alarms[operator, name] += 1
                print(f"FALSE ALARM draw {number}: {_described(question)} {name}: {verdict.message}", file=sys.stderr)
        for name, actual in wrong(question):
            if np.array_equal(_comparable(actual), _comparable(rounded), equal_nan=True):
                continue
            asked[name, question.fill] += 1
            missed = question.judge(actual).status is Status.PASSED
            caught[name, question.fill] += not missed
            if missed and verbose:
                print(f"missed draw {number}: {_described(question)}: {name}", file=sys.stderr)
    _report(draws, time.perf_counter() - started, asked_right, alarms, largest, asked, caught)
    return 1 if alarms else 0


def _described(question: Draw) -> str:
    return f"{question.case.identifier()} {question.layout} {question.fill}"


def _comparable(array: Array) -> Array:
    return widen(array)


def _report(
    draws: int,
    seconds: float,
    asked_right: Counter[tuple[str, str]],
    alarms: Counter[tuple[str, str]],
    largest: dict[str, float],
    asked: Counter[tuple[str, str]],
    caught: Counter[tuple[str, str]],
) -> None:
    print(f"{draws:,} draws in {seconds:.0f} s\n")
    implementations = list(dict.fromkeys(name for _, name in asked_right))
    print("| operator | " + " | ".join(implementations) + " | largest z / limit |")
    print("|---|" + "---|" * (len(implementations) + 1))
    for operator in OPERANDS:
        cells = [
            f"{alarms[operator, name]} of {asked_right[operator, name]:,}" if asked_right[operator, name] else ""
            for name in implementations
        ]
        if any(cells):
            z = f"{largest[operator]:.2f}" if operator in largest else ""
            print(f"| {operator} | " + " | ".join(cells) + f" | {z} |")
    print(f"\nFalse alarms: {sum(alarms.values())} of {sum(asked_right.values()):,}.\n")
    fills = [fill for fill in FILLS if any(each == fill for _, each in asked)]
    print("| fault, rejected / asked | all | " + " | ".join(fills) + " |")
    print("|---|" + "---|" * (len(fills) + 1))
    for fault in dict.fromkeys(name for name, _ in asked):
        total = sum(count for (name, _), count in asked.items() if name == fault)
        found = sum(count for (name, _), count in caught.items() if name == fault)
        cells = [f"{caught[fault, fill]:,}/{asked[fault, fill]:,}" if asked[fault, fill] else "" for fill in fills]
        print(f"| {fault} | {found:,}/{total:,} ({found / total:.1%}) | " + " | ".join(cells) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(OPERANDS))
    parser.add_argument("--verbose", action="store_true", help="name every fault that was not rejected")
    given = parser.parse_args()
    return run(given.draws, given.seed, given.only, given.verbose)


if __name__ == "__main__":
    sys.exit(main())
