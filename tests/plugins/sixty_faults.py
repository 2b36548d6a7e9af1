"""Backends that are honest but for one fault each: ``softmax-without-shift`` and so on, and ``without-fault``.

Every backend answers with the references, rounded once; its fault replaces the outputs of one operator. A fault is what
people who write kernels get wrong: an ignored attribute, a tail, a layout, an unstable formula, a narrow accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optest.backends import BackendDriver, backend_manager
from optest.backends.arguments import at_their_places
from optest.backends.numpy_reference import NumpyBackend
from optest.numerics import round_to
from optest.registry import load_object
from optest.spec import Numerics, Reason, TestCase

Array = Any
Change = Callable[["Call"], "Sequence[Array] | Array | None"]

FAULTS: dict[str, Fault] = {}
_honest = NumpyBackend()


@dataclass(frozen=True)
class Fault:
    """``change`` returns the outputs, not yet rounded, or None where the fault does not show."""

    name: str
    op: str
    reasons: tuple[Reason, ...]
    change: Change


@dataclass(frozen=True)
class Call:
    """One call of the operator, with its right outputs."""

    case: TestCase
    inputs: Sequence[Array]
    right: Sequence[Array]

    def __getitem__(self, place: int) -> Array:
        """The input at a place of the signature, None if it is left out."""
        return at_their_places(self.case, self.inputs)[place] if place < len(self.inputs) + 3 else None

    def attribute(self, name: str) -> Any:
        return self.case.attributes[name]

    def with_attributes(self, **changed: Any) -> Sequence[Array]:
        """What the reference yields for other attributes."""
        return _referred(self.case, self.inputs, {**self.case.attributes, **changed})

    def with_inputs(self, *inputs: Array) -> Sequence[Array]:
        return _referred(self.case, inputs, dict(self.case.attributes))

    @property
    def is_float(self) -> bool:
        return bool(self.case.inputs) and self.case.inputs[0].spec.dtype.is_float

    @property
    def is_16_bit(self) -> bool:
        return self.is_float and self.case.inputs[0].spec.dtype.bits == 16

    @property
    def dim(self) -> int:
        dim = self.attribute("dim")
        return int(dim[0] if isinstance(dim, tuple) else -1 if dim is None else dim)


def _referred(case: TestCase, inputs: Sequence[Array], attributes: dict[str, Any]) -> Sequence[Array]:
    reference = load_object(str(case.descriptor.reference))
    return tuple(reference(at_their_places(case, list(inputs)), attributes))


class Faulty(BackendDriver):
    kind = "faulty"
    isolated = False
    numerics = Numerics(accumulator="float64")

    def __init__(self, name: str, fault: Fault | None) -> None:
        self.name = name
        self._fault = fault

    def run(self, case: TestCase, inputs: Sequence[Array]) -> Sequence[Array]:
        fault = self._fault
        if fault is None or fault.op != case.descriptor.name:
            return _honest.run(case, inputs)
        if fault.reasons == (Reason.NOT_REFUSED,):
            return _accepting(case, inputs)
        right = _honest.run(case, inputs)
        with np.errstate(all="ignore"):
            outputs = fault.change(Call(case, inputs, right))
        if outputs is None:
            return right
        listed = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        return [_stored(output, spec.dtype) for output, spec in zip(listed, case.outputs, strict=True)]


def _accepting(case: TestCase, inputs: Sequence[Array]) -> Sequence[Array]:
    try:
        return _honest.run(case, inputs)
    except (ValueError, IndexError):
        return [np.zeros(1, np.float32)]


def _stored(output: Array, dtype: Any) -> Array:
    array = np.asarray(output)
    known = array.dtype == np.bool_ or array.dtype.kind in "iuf"
    return round_to(array, dtype) if known and array.dtype != np.float16 else array


def fault(name: str, op: str, *reasons: Reason) -> Callable[[Change], Change]:
    def keep(change: Change) -> Change:
        FAULTS[name] = Fault(name, op, reasons or (Reason.VALUE,), change)
        return change

    return keep


def register() -> None:
    for name, each in FAULTS.items():
        backend_manager.register(Faulty(name, each))
    backend_manager.register(Faulty("without-fault", None))


# What many faults are made of


def wide(array: Array) -> Array:
    return np.asarray(array).astype(np.float64)


def single(array: Array) -> Array:
    return np.asarray(array).astype(np.float32)


def half(array: Array) -> Array:
    """Rounded to 11 bits of precision, of any range."""
    return cut(single(array), 13)


def cut(array: Array, bits: int) -> Array:
    """float32 with so many of its last bits rounded away."""
    words = np.ascontiguousarray(array, np.float32).view(np.uint32)
    step = np.uint32(1 << bits)
    rounded = (words + step // np.uint32(2)) & ~(step - np.uint32(1))
    return np.where(np.isfinite(array), rounded.view(np.float32).reshape(np.shape(array)), array)


def truncated(call: Call, place: int = 0) -> Array | None:
    """The right output of 16 bits, cut instead of rounded."""
    if not call.is_16_bit:
        return None
    exact = wide(_referred(call.case, call.inputs, dict(call.case.attributes))[place])
    rounded = call.right[place]
    above = np.abs(wide(rounded)) > np.abs(exact)
    one_less = (rounded.view(np.uint16) - np.uint16(1)).view(rounded.dtype)
    return np.where(above & np.isfinite(exact) & (wide(rounded) != 0), one_less, rounded)


def read_as_dense(call: Call, place: int = 0) -> Array:
    """What a kernel sees that goes through the storage of an input and asks for no stride."""
    argument, array = call.case.inputs[place], call.inputs[place]
    spec = argument.spec
    if spec.is_dense or not array.size:
        return array
    strides = spec.strides or tuple(np.array(array.strides) // array.itemsize)
    storage = np.zeros(spec.storage_elements, array.dtype)
    offsets = np.full(spec.shape, spec.offset, np.int64)
    for axis, (size, stride) in enumerate(zip(spec.shape, strides, strict=True)):
        offsets += (np.arange(size) * stride).reshape([-1 if i == axis else 1 for i in range(len(spec.shape))])
    storage[offsets.reshape(-1)] = array.reshape(-1)
    return np.resize(storage[spec.offset :], array.size).reshape(array.shape)


def ignoring(*names: str) -> Change:
    """Attributes that are never looked at: their defaults stand."""

    def change(call: Call) -> Sequence[Array]:
        return call.with_attributes(**{name: call.case.descriptor.attribute(name).default for name in names})

    return change


def tail_dropped(width: int) -> Change:
    """Elements beyond the last full vector are left at 0."""

    def change(call: Call) -> Array:
        out = np.array(call.right[0], order="C")
        flat = out.reshape(-1)
        flat[flat.size - flat.size % width :] = 0
        return out

    return change


def sums_in(call: Call, step: Callable[[Array], Array]) -> Array:
    """The sum over one dimension, one after the other, each partial sum through ``step``."""
    values = np.moveaxis(single(call[0]), call.dim, 0)
    total = np.zeros(values.shape[1:], np.float32)
    for row in values:
        total = step(total + row)
    return total


def over_one_dim(call: Call) -> bool:
    dim = call.case.attributes.get("dim")
    return call.is_float and call[0].ndim > 0 and (isinstance(dim, int) or (isinstance(dim, tuple) and len(dim) == 1))


def kept(call: Call, out: Array) -> Array:
    return np.expand_dims(out, call.dim) if call.case.attributes.get("keepdim") else out


# Elementwise

fault("add-ignores-alpha", "add")(ignoring("alpha"))
fault("add-drops-tail", "add", Reason.VALUE, Reason.NAN)(tail_dropped(8))
fault("add-truncates", "add")(truncated)
fault("sub-truncates", "sub")(truncated)
fault("mul-drops-tail-of-1024", "mul")(lambda call: tail_dropped(1024)(call) if call.right[0].size > 1024 else None)


@fault("add-reads-dense", "add")
def _(call: Call) -> Array:
    return call.with_inputs(read_as_dense(call, 0), read_as_dense(call, 1))


@fault("mul-asks-whether-alike-not-whether-dense", "mul")
def _(call: Call) -> Array | None:
    one, other = (argument.spec for argument in call.case.inputs)
    if one.shape != other.shape or one.strides != other.strides or one.offset != other.offset:
        return None
    return call.with_inputs(read_as_dense(call, 0), read_as_dense(call, 1))


@fault("sub-swaps-operands", "sub")
def _(call: Call) -> Array:
    return call.with_inputs(call.inputs[1], call.inputs[0])


@fault("mul-integers-through-float32", "mul")
def _(call: Call) -> Array | None:
    if call.right[0].dtype.kind not in "i" or call.right[0].itemsize < 4:
        return None
    product = single(call[0]) * single(call[1])
    info = np.iinfo(call.right[0].dtype)
    return np.clip(product.astype(np.float64), info.min, float(info.max) * (1 - 2**-24)).astype(call.right[0].dtype)


@fault("div-by-rounded-reciprocal", "div", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not call.is_16_bit or call.attribute("rounding_mode"):
        return None
    return single(call[0]) * half(1 / single(call[1]))


@fault("div-is-approximate", "div", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not call.is_float or call.attribute("rounding_mode"):
        return None
    return wide(call.right[0]) * (1 + 2.0**-20)


@fault("floor-divide-truncates", "floor_divide")
def _(call: Call) -> Array | None:
    if call.right[0].dtype.kind != "i":
        return None
    quotient, rest = wide(call[0]) / wide(call[1]), wide(call.right[0])
    return np.where((quotient < 0) & (quotient != rest), rest + 1, rest)


@fault("remainder-has-the-sign-of-c", "remainder", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    return np.fmod(wide(call[0]), wide(call[1])) if call.is_float else None


@fault("pow-by-exp-and-log", "pow", Reason.NAN, Reason.VALUE)
def _(call: Call) -> Array | None:
    if not call.is_float or not call.case.outputs[0].dtype.is_float:
        return None
    return np.exp(wide(call[1]) * np.log(wide(call[0])))


@fault("eq-allows-a-little", "eq")
def _(call: Call) -> Array | None:
    if not call.is_float or call[0].dtype.itemsize < 4:
        return None
    return call.right[0] | (np.abs(wide(call[0]) - wide(call[1])) <= 1e-6 * np.abs(wide(call[0])))


@fault("lt-is-le", "lt")
def _(call: Call) -> Array:
    return call.right[0] | (wide(call[0]) == wide(call[1]))


@fault("ge-is-not-lt", "ge")
def _(call: Call) -> Array:
    return call.right[0] | np.isnan(wide(call[0])) | np.isnan(wide(call[1]))


@fault("logical-xor-of-bits", "logical_xor")
def _(call: Call) -> Array | None:
    if call[0].dtype.kind not in "iu" or call[1].dtype.kind not in "iu":
        return None
    return (call[0].astype(np.int64) ^ call[1].astype(np.int64)) != 0


@fault("bitwise-not-negates", "bitwise_not")
def _(call: Call) -> Array | None:
    return -call[0] if call[0].dtype.kind == "i" else None


@fault("abs-drops-nan", "abs", Reason.NAN)
def _(call: Call) -> Array | None:
    return np.where(np.isnan(wide(call[0])), 0, wide(call.right[0])) if call.is_float else None


@fault("sign-of-zero-is-one", "sign")
def _(call: Call) -> Array | None:
    return np.where(wide(call[0]) >= 0, 1.0, wide(call.right[0])) if call.is_float else None


@fault("exp-overflows-early", "exp")
def _(call: Call) -> Array | None:
    return np.where(wide(call[0]) > 80, np.inf, wide(call.right[0])) if call[0].dtype == np.float32 else None


@fault("exp-in-16-bits", "exp")
def _(call: Call) -> Array | None:
    return half(np.exp(single(call[0]))) if call[0].dtype == np.float32 else None


@fault("log1p-as-log-of-a-sum", "log1p")
def _(call: Call) -> Array | None:
    return np.log(np.float32(1) + single(call[0])) if call[0].dtype == np.float32 else None


@fault("expm1-as-exp-minus-1", "expm1")
def _(call: Call) -> Array | None:
    return np.exp(single(call[0])) - np.float32(1) if call[0].dtype == np.float32 else None


@fault("sqrt-of-negative-is-0", "sqrt", Reason.NAN)
def _(call: Call) -> Array | None:
    return np.sqrt(np.maximum(wide(call[0]), 0)) if call.is_float else None


@fault("rsqrt-with-one-step", "rsqrt", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if call[0].dtype != np.float32:
        return None
    x = single(call[0])
    guess = cut(single(call.right[0]), 14)
    return np.where(x > 0, guess * (np.float32(1.5) - np.float32(0.5) * x * guess * guess), call.right[0])


@fault("sin-reduces-in-float32", "sin")
def _(call: Call) -> Array | None:
    if call[0].dtype != np.float32:
        return None
    x, turn = single(call[0]), np.float32(2 * np.pi)
    return np.sin(x - np.round(x / turn) * turn)


@fault("tanh-saturates-early", "tanh")
def _(call: Call) -> Array | None:
    return np.where(np.abs(wide(call[0])) > 4, np.sign(wide(call[0])), wide(call.right[0])) if call.is_float else None


@fault("erf-of-a-handbook", "erf")
def _(call: Call) -> Array | None:
    """Abramowitz and Stegun 7.1.26, good to 1.5e-7 absolutely."""
    if call[0].dtype != np.float32:
        return None
    x = np.abs(wide(call[0]))
    t = 1 / (1 + 0.3275911 * x)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.where(np.isnan(x), np.nan, np.sign(wide(call[0])) * (1 - poly * np.exp(-x * x)))


@fault("floor-truncates", "floor")
def _(call: Call) -> Array | None:
    return np.trunc(wide(call[0])) if call.is_float else None


@fault("ceil-adds-1", "ceil")
def _(call: Call) -> Array | None:
    return np.trunc(wide(call[0])) + (wide(call[0]) > 0) if call.is_float else None


@fault("round-half-away", "round")
def _(call: Call) -> Array | None:
    if not call.is_float or call.attribute("decimals"):
        return None
    x = wide(call[0])
    return np.where(np.isfinite(x), np.sign(x) * np.floor(np.abs(x) + 0.5), x)


fault("round-ignores-decimals", "round")(ignoring("decimals"))


@fault("maximum-drops-nan", "maximum", Reason.NAN)
def _(call: Call) -> Array | None:
    return np.fmax(wide(call[0]), wide(call[1])) if call.is_float else None


@fault("where-swaps-branches", "where", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array:
    return call.with_inputs(call.inputs[0], call.inputs[2], call.inputs[1])


def without_bound(ignored: str, other: str) -> Change:
    return lambda call: call.with_attributes(**{ignored: None}) if call.attribute(other) is not None else None


fault("clip-ignores-max", "clip")(without_bound("max", "min"))
fault("clip-ignores-min", "clip")(without_bound("min", "max"))


@fault("cast-rounds-to-integers", "cast")
def _(call: Call) -> Array | None:
    if not call.is_float or call.case.outputs[0].dtype.kind.name not in ("INT",) or call.right[0].itemsize < 4:
        return None
    x = wide(call[0])
    ordinary = np.isfinite(x) & (np.abs(x) < 2**30)
    return np.where(ordinary, np.rint(np.where(ordinary, x, 0)).astype(np.int64), call.right[0].astype(np.int64))


@fault("cast-truncates-to-bfloat16", "cast")
def _(call: Call) -> Array | None:
    if call[0].dtype != np.float32 or call.case.outputs[0].dtype.name != "bfloat16":
        return None
    words = np.ascontiguousarray(call[0]).view(np.uint32) >> np.uint32(16)
    bits = words.astype(np.uint16).reshape(np.shape(call[0]))
    return np.where(np.isnan(call[0]), call.right[0], bits.view(call.right[0].dtype))


# Activation


@fault("relu-drops-nan", "relu", Reason.NAN)
def _(call: Call) -> Array | None:
    return np.where(wide(call[0]) > 0, wide(call[0]), 0) if call.is_float else None


@fault("relu-ends-at-6", "relu")
def _(call: Call) -> Array | None:
    return np.minimum(wide(call.right[0]), 6) if call.is_float else None


fault("leaky-relu-ignores-slope", "leaky_relu")(ignoring("negative_slope"))
fault("gelu-ignores-approximate", "gelu")(ignoring("approximate"))
fault("elu-ignores-alpha", "elu")(ignoring("alpha"))
fault("softplus-ignores-beta", "softplus")(ignoring("beta"))


@fault("gelu-is-always-tanh", "gelu")
def _(call: Call) -> Array:
    return call.with_attributes(approximate="tanh")


@fault("sigmoid-overflows", "sigmoid", Reason.NAN, Reason.VALUE)
def _(call: Call) -> Array | None:
    x = single(call[0])
    return np.exp(x) / (1 + np.exp(x)) if call.is_float else None


@fault("silu-truncates", "silu")
def _(call: Call) -> Array | None:
    return truncated(call)


@fault("hardswish-without-upper-end", "hardswish")
def _(call: Call) -> Array | None:
    x = wide(call[0])
    return x * np.maximum(x + 3, 0) / 6 if call.is_float else None


@fault("swiglu-swaps-gate-and-up", "swiglu", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    return call.with_inputs(call.inputs[1], call.inputs[0]) if len(call.inputs) == 2 else None


# Reductions

fault("sum-ignores-keepdim", "sum", Reason.SHAPE)(ignoring("keepdim"))
fault("var-ignores-correction", "var", Reason.VALUE, Reason.NAN)(ignoring("correction"))
fault("norm-ignores-p", "norm", Reason.VALUE, Reason.NAN)(ignoring("p"))


@fault("sum-accumulates-in-16-bits", "sum")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or not over_one_dim(call):
        return None
    dtype = call[0].dtype
    return kept(call, sums_in(call, lambda total: total.astype(dtype).astype(np.float32)))


@fault("sum-drops-the-tail-of-a-row", "sum")
def _(call: Call) -> Array | None:
    if not over_one_dim(call):
        return None
    values = np.moveaxis(wide(call[0]), call.dim, -1)
    size = values.shape[-1]
    return kept(call, values[..., : size - size % 4 if size > 4 else size].sum(-1))


@fault("sum-reads-dense", "sum", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array:
    return call.with_inputs(read_as_dense(call))


@fault("mean-divides-by-one-less", "mean", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array:
    count = max(1, call[0].size // max(1, call.right[0].size))
    return wide(call.right[0]) * count / max(1, count - 1)


@fault("prod-drops-the-last", "prod", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not over_one_dim(call) or not call[0].size:
        return None
    return kept(call, np.delete(wide(call[0]), -1, call.dim).prod(call.dim))


@fault("cumsum-leaves-itself-out", "cumsum", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not call.is_float or not call[0].ndim:
        return None
    return wide(call.right[0]) - wide(call[0])


@fault("dot-drops-the-last", "dot", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    return wide(call[0])[:-1] @ wide(call[1])[:-1] if call.is_float and call[0].size > 1 else None


@fault("var-as-mean-of-squares", "var", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not over_one_dim(call) or call.attribute("correction") != 1 or not call[0].size:
        return None
    x, dim = single(call[0]), call.dim
    count = np.float32(x.shape[dim])
    mean = x.mean(dim, dtype=np.float32)
    biased = (x * x).mean(dim, dtype=np.float32) - mean * mean
    return kept(call, biased * count / (count - 1))


@fault("logsumexp-without-shift", "logsumexp", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    return kept(call, np.log(np.exp(single(call[0])).sum(call.dim))) if over_one_dim(call) else None


@fault("amax-begins-at-0", "amax", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    return np.maximum(wide(call.right[0]), 0) if call.is_float else None


@fault("amin-drops-nan", "amin", Reason.NAN)
def _(call: Call) -> Array | None:
    return kept(call, np.fmin.reduce(wide(call[0]), axis=call.dim)) if over_one_dim(call) and call[0].size else None


@fault("argmax-takes-the-last", "argmax")
def _(call: Call) -> Array | None:
    if not over_one_dim(call) or np.isnan(wide(call[0])).any():
        return None
    size = call[0].shape[call.dim]
    return kept(call, size - 1 - np.argmax(np.flip(wide(call[0]), call.dim), call.dim))


@fault("any-overlooks-nan", "any")
def _(call: Call) -> Array | None:
    return call.with_inputs(np.nan_to_num(wide(call[0]), nan=0.0)) if call.is_float else None


@fault("all-looks-at-the-first", "all")
def _(call: Call) -> Array | None:
    dim = call.attribute("dim")
    if not isinstance(dim, int) and not (isinstance(dim, tuple) and len(dim) == 1):
        return None
    if not call[0].ndim or not call[0].size:
        return None
    return kept(call, np.take(np.asarray(call[0]).astype(bool), 0, call.dim))


# Normalisation


@fault("softmax-without-shift", "softmax", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not call[0].ndim:
        return None
    terms = np.exp(single(call[0]))
    return terms / terms.sum(call.dim, keepdims=True)


@fault("softmax-over-the-last-always", "softmax", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array:
    return call.with_attributes(dim=-1)


@fault("softmax-with-terms-in-16-bits", "softmax", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not call[0].ndim or not call[0].size:
        return None
    x = single(call[0])
    terms = half(np.exp(x - x.max(call.dim, keepdims=True)))
    return terms / terms.sum(call.dim, keepdims=True)


def _normalized(call: Call, centre: bool = True, eps: float | None = None, one_pass: bool = False) -> Array | None:
    dims = tuple(range(-len(call.attribute("normalized_shape")), 0))
    x = single(call[0])
    if not x.size or (call.case.descriptor.name == "layer_norm" and call.attribute("statistics")):
        return None
    mean = x.mean(dims, keepdims=True)
    variance = (x * x).mean(dims, keepdims=True) - mean * mean if one_pass else x.var(dims, keepdims=True)
    added = np.float32(call.attribute("eps") if eps is None else eps)
    out = (x - mean * centre) / np.sqrt(variance + added)
    for place, operation in ((1, np.multiply), (2, np.add)):
        if call[place] is not None:
            out = operation(out, single(call[place]))
    return out


@fault("layer-norm-without-eps", "layer_norm", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    return _normalized(call, eps=0.0) if call[0].dtype != np.float64 else None


@fault("layer-norm-in-one-pass", "layer_norm", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    return _normalized(call, one_pass=True) if call[0].dtype != np.float64 else None


@fault("layer-norm-without-centre", "layer_norm", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    return _normalized(call, centre=False) if call[0].dtype != np.float64 else None


@fault("log-softmax-as-log-of-softmax", "log_softmax", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not call[0].ndim or not call[0].size or call[0].dtype == np.float64:
        return None
    x = single(call[0])
    terms = np.exp(x - x.max(call.dim, keepdims=True))
    return np.log(terms / terms.sum(call.dim, keepdims=True))


# Attention

fault("attention-ignores-is-causal", "scaled_dot_product_attention", Reason.VALUE, Reason.NAN)(ignoring("is_causal"))
fault("attention-ignores-scale", "scaled_dot_product_attention", Reason.VALUE, Reason.NAN)(ignoring("scale"))
fault("rope-ignores-interleaved", "rope", Reason.VALUE, Reason.NAN)(ignoring("interleaved"))

# Contraction

fault("gemm-ignores-trans-a-of-squares", "gemm")(
    lambda call: call.with_attributes(trans_a=False) if call[0].shape[0] == call[0].shape[1] else None
)
fault("gemm-ignores-beta", "gemm", Reason.VALUE, Reason.NAN)(ignoring("beta"))
fault("conv2d-drops-tail", "conv2d", Reason.VALUE, Reason.NAN)(tail_dropped(16))
fault("matmul-truncates", "matmul")(truncated)
fault("matmul-accepts-misfits", "matmul", Reason.NOT_REFUSED)(lambda _: None)


@fault("matmul-cuts-operands", "matmul")
def _(call: Call) -> Array | None:
    return call.with_inputs(half(call[0]), half(call[1])) if call[0].dtype == np.float32 else None


@fault("matmul-accumulates-in-16-bits", "matmul")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or call[0].ndim != 2 or call[1].ndim != 2 or call[0].dtype != call[1].dtype:
        return None
    total = np.zeros((call[0].shape[0], call[1].shape[1]), call[0].dtype)
    for k in range(call[0].shape[1]):
        total = (single(total) + np.outer(single(call[0][:, k]), single(call[1][k]))).astype(total.dtype)
    return wide(total)


@fault("matmul-drops-the-tail-of-k", "matmul", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not call.is_float or call[0].ndim != 2 or call[1].ndim != 2:
        return None
    k = call[0].shape[1] - call[0].shape[1] % 8
    return wide(call[0])[:, :k] @ wide(call[1])[:k]


@fault("gemm-multiplies-c-by-0", "gemm", Reason.NAN)
def _(call: Call) -> Array | None:
    if call.attribute("beta") != 0 or call[2] is None or not call.is_float:
        return None
    return wide(call.right[0]) + 0.0 * wide(call[2])


@fault("linear-forgets-bias", "linear", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    return call.with_inputs(call.inputs[0], call.inputs[1], 0 * wide(call.inputs[2])) if len(call.inputs) == 3 else None


@fault("bmm-takes-the-first-of-the-batch", "bmm", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not call[1].shape[0]:
        return None
    return call.with_inputs(call.inputs[0], np.broadcast_to(call.inputs[1][:1], call.inputs[1].shape))


@fault("conv2d-flips-the-kernel", "conv2d", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array:
    return call.with_inputs(call.inputs[0], np.flip(call.inputs[1], (2, 3)), *call.inputs[2:])


@fault("conv1d-drops-the-last-tap", "conv1d", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array:
    weight = np.array(call.inputs[1])
    weight[..., -1] = 0
    return call.with_inputs(call.inputs[0], weight, *call.inputs[2:])


# Pooling


@fault("max-pool-pads-with-0", "max_pool2d", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    padding = call.attribute("padding")
    if not any(padding):
        return None
    top, left, bottom, right = padding * (4 // len(padding))
    widths = [(0, 0)] * (call[0].ndim - 2) + [(top, bottom), (left, right)]
    padded = np.pad(call.inputs[0], widths)
    return _same_shape(call, _referred(call.case, [padded], {**call.case.attributes, "padding": (0,)}))


def _same_shape(call: Call, outputs: Sequence[Array]) -> Sequence[Array] | None:
    return outputs if outputs[0].shape == call.case.outputs[0].shape else None


@fault("max-pool-begins-at-0", "max_pool2d", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array:
    return np.maximum(wide(call.right[0]), 0)


fault("avg-pool-ignores-count-include-pad", "avg_pool2d")(ignoring("count_include_pad"))
fault("avg-pool-ignores-divisor", "avg_pool2d")(ignoring("divisor_override"))

# Movement

fault("tril-ignores-diagonal", "tril")(ignoring("diagonal"))
fault("pad-ignores-value", "pad", Reason.VALUE, Reason.NAN)(ignoring("value"))
fault("sort-ignores-descending", "sort", Reason.VALUE, Reason.NAN)(ignoring("descending"))
fault("topk-ignores-largest", "topk", Reason.VALUE, Reason.NAN)(ignoring("largest"))
fault("embedding-drops-tail", "embedding", Reason.VALUE, Reason.NAN)(tail_dropped(8))


@fault("transpose-reshapes", "transpose", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array:
    return np.ascontiguousarray(call.inputs[0]).reshape(call.right[0].shape)


@fault("flip-the-first-of-several", "flip", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(dims=call.attribute("dims")[:1]) if len(call.attribute("dims")) > 1 else None


@fault("roll-the-other-way", "roll", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Sequence[Array]:
    return call.with_attributes(shifts=tuple(-each for each in call.attribute("shifts")))


@fault("concat-swaps-the-last-two", "concat", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Sequence[Array] | None:
    shapes = {argument.spec.shape for argument in call.case.inputs}
    if len(shapes) != 1 or len(call.inputs) < 2:
        return None
    return call.with_inputs(*call.inputs[:-2], call.inputs[-1], call.inputs[-2])


@fault("scatter-add-overwrites", "scatter_add", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array | None:
    if not call.inputs[0].ndim:
        return None
    out = np.array(call.inputs[0])
    index, source = call.inputs[1], call.inputs[2]
    cut_source = source[tuple(slice(size) for size in index.shape)]
    np.put_along_axis(out, np.asarray(index, np.int64), cut_source, call.dim) if _fits(out, index, call.dim) else None
    return out


def _fits(out: Array, index: Array, dim: int) -> bool:
    others = [size for axis, size in enumerate(out.shape) if axis != dim % out.ndim]
    return others == [size for axis, size in enumerate(index.shape) if axis != dim % out.ndim]
