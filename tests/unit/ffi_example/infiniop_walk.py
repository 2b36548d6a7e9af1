"""A bare ctypes walk through the protocol of examples/c_library: `infiniop_walk.py LIB_FOLDER [CASE ...]`.

With INFINIOP_WALK_EXACT=1 tensors have no guards: AddressSanitizer sees where their memory ends.

Prints one JSON object: what is wrong with each case (an empty list: nothing) and a digest of all output bytes.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import math
import os
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

CODES = {
    "int8": 3,
    "int16": 4,
    "int32": 5,
    "int64": 6,
    "uint8": 7,
    "uint16": 8,
    "uint32": 9,
    "uint64": 10,
    "float16": 12,
    "float32": 13,
    "float64": 14,
    "bfloat16": 19,
}
FLOATS = ("float16", "bfloat16", "float32", "float64")
LAYOUTS = ("dense", "reversed", "negative", "gaps", "broadcast")
BAD_PARAM, NULL_POINTER, NO_DEVICE, BAD_DTYPE, BAD_SHAPE, BAD_STRIDES, SHORT = 3, 4, 5, 10, 11, 12, 13
EXACT = os.environ.get("INFINIOP_WALK_EXACT") == "1"
GUARD = 0 if EXACT else 256

digest = hashlib.sha256()


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def strides_of(shape, layout):
    """Strides in elements. reversed: column-major; gaps: a stride of 2 and padded rows; broadcast: 0 in front."""
    if layout == "reversed":
        return tuple(int(np.prod([max(each, 1) for each in shape[:d]])) for d in range(len(shape)))
    gaps = layout == "gaps"
    strides, next_stride = [], 2 if gaps else 1
    for size in reversed(shape):
        strides.insert(0, next_stride)
        next_stride = next_stride * max(size, 1) + 3 * gaps
    if layout == "negative":
        strides = [-each for each in strides]
    if layout == "broadcast" and strides:
        strides[0] = 0
    return tuple(strides)


class Tensor:
    """Elements in memory of its own, with guards around them and poison in the gaps."""

    def __init__(self, values, dtype, layout="dense", base=None):
        values = np.asarray(values)
        self.name, self.dtype, self.shape = dtype, numpy_dtype(dtype), values.shape
        self.strides = strides_of(self.shape, layout) if isinstance(layout, str) else tuple(layout)
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True) if size > 0]
        low, high = sum(min(each, 0) for each in reach), sum(max(each, 0) for each in reach)
        size = self.dtype.itemsize
        self.memory = np.full(2 * GUARD + (high - low + 1) * size + 64 * (not EXACT), 0xFF, np.uint8)
        self.start = GUARD - low * size + (0 if EXACT else -self.memory.ctypes.data % 64)
        self.bytes_strides = tuple(each * size for each in self.strides)
        self.view = np.ndarray(self.shape, self.dtype, self.memory, self.start, self.bytes_strides)
        with np.errstate(over="ignore"):
            self.view[...] = values.astype(self.dtype)
        self.before = self.memory.copy()
        self.base = base

    @property
    def pointer(self):
        return ctypes.c_void_p(self.memory.ctypes.data + self.start)

    @property
    def wide(self):
        return self.view.astype(np.longdouble if self.name == "float64" else np.float64)

    def untouched_outside(self):
        """Whether every byte that is no element's still is what it was."""
        now, before = self.memory.copy(), self.before.copy()
        for each in (now, before):
            np.ndarray(self.shape, self.dtype, each, self.start, self.bytes_strides)[...] = 0
        return bool((now == before).all())

    def unchanged(self):
        return bool((self.memory == self.before).all())


def bits(tensor):
    """The bytes of the elements, every NaN the same."""
    values = np.array(tensor.view)
    if tensor.name in FLOATS:
        values[np.isnan(values)] = np.nan
    return values.tobytes()


def environment():
    """What a call has done to the floating-point environment of its thread."""
    tiny, one, least = np.array([2.3e-308, 1.0, 1e-20])
    wrong = [] if tiny * 0.5 > 0 else ["the processor flushes subnormal numbers to zero"]
    return wrong + ([] if one + least == one and one - least == one else ["the rounding mode is another"])


class Library:
    def __init__(self, folder):
        self.rt = ctypes.CDLL(str(Path(folder) / "libinfinirt.so"))
        self.op = ctypes.CDLL(str(Path(folder) / "libinfiniop.so"))
        self.handle = ctypes.c_void_p()
        assert self.rt.infinirtSetDevice(0, 0) == 0
        assert self.op.infiniopCreateHandle(ctypes.byref(self.handle)) == 0

    def describe(self, tensor):
        if tensor is None:
            return ctypes.c_void_p()
        n = len(tensor.shape)
        shape, strides = (ctypes.c_size_t * n)(*tensor.shape), (ctypes.c_ssize_t * n)(*tensor.strides)
        result = ctypes.c_void_p()
        status = self.op.infiniopCreateTensorDescriptor(
            ctypes.byref(result), ctypes.c_size_t(n), shape, strides, CODES[tensor.name]
        )
        assert status == 0, status
        return result

    def create(self, operator, tensors, extra=()):
        """(status, descriptor); the tensor descriptors are gone when it returns."""
        described = [self.describe(each) for each in tensors]
        result = ctypes.c_void_p()
        status = getattr(self.op, f"infiniopCreate{operator}Descriptor")(
            self.handle, ctypes.byref(result), *described, *extra
        )
        for each in described:
            if each:
                self.op.infiniopDestroyTensorDescriptor(each)
        return status, result

    def run(self, operator, descriptor, pointers, extra=(), short=0, poison=0xFF):
        if operator == "Rearrange":
            return self.op.infiniopRearrange(descriptor, *pointers, ctypes.c_void_p())
        size = ctypes.c_size_t()
        assert getattr(self.op, f"infiniopGet{operator}WorkspaceSize")(descriptor, ctypes.byref(size)) == 0
        workspace = np.full(size.value + 64 * (not EXACT), poison, np.uint8)
        status = getattr(self.op, f"infiniop{operator}")(
            descriptor,
            ctypes.c_void_p(workspace.ctypes.data if size.value else None),
            ctypes.c_size_t(max(size.value - short, 0)),
            *pointers,
            *extra,
            ctypes.c_void_p(),
        )
        assert (workspace[size.value :] == poison).all(), "the workspace was overrun"
        return status

    def call(self, operator, tensors, outputs=1, create=(), run=()):
        """What is wrong, apart from the values. A tensor may stand for several arguments."""
        status, descriptor = self.create(operator, tensors, create)
        if status:
            return [f"{operator}: create gives {status}"]
        pointers = [ctypes.c_void_p() if each is None else each.pointer for each in tensors]
        in_place = any(each in tensors[outputs:] for each in tensors[:outputs])
        if not in_place:
            self.run(operator, descriptor, pointers, run, poison=0)
            once = [bits(each) for each in tensors[:outputs]]
            for each in tensors[:outputs]:
                each.memory[:] = each.before
        status = self.run(operator, descriptor, pointers, run)
        wrong = environment()
        if not in_place and once != [bits(each) for each in tensors[:outputs]]:
            wrong.append(f"{operator}: gives other bits when it is run again with another workspace")
        wrong += [f"{operator}: run gives {status}"] if status else []
        if getattr(self.op, f"infiniopDestroy{operator}Descriptor")(descriptor):
            wrong.append(f"{operator}: destroy fails")
        for index, each in enumerate(tensors):
            if each is None:
                continue
            if not each.untouched_outside():
                wrong.append(f"{operator}: wrote outside of the elements of tensor {index}")
            if index >= outputs and each not in tensors[:outputs] and not each.unchanged():
                wrong.append(f"{operator}: changed input {index}")
        for each in tensors[:outputs]:
            digest.update(bits(each))
        return wrong

    def refused(self, operator, tensors, wanted, create=(), run=(), pointers=None, short=0):
        status, descriptor = self.create(operator, tensors, create)
        if status == 0:
            if pointers is None:
                pointers = [ctypes.c_void_p() if each is None else each.pointer for each in tensors]
            status = self.run(operator, descriptor, pointers, run, short)
            getattr(self.op, f"infiniopDestroy{operator}Descriptor")(descriptor)
        return [] if status == wanted else [f"{operator}: gives {status}, not {wanted}"]


def ulp(values, dtype):
    info = ml_dtypes.finfo(numpy_dtype(dtype))
    exponent = np.frexp(np.where(np.isfinite(values), values, 1).astype(np.float64))[1] - 1
    return np.ldexp(np.longdouble(1), np.maximum(exponent, int(info.minexp)) - info.nmant)


def differences(what, tensor, wanted, slack, exact=False):
    """`wanted` in more digits than the tensor has; `slack`: how far off results may be; exact: ties go to even."""
    got, wanted = tensor.wide, np.asarray(wanted)
    largest = float(ml_dtypes.finfo(tensor.dtype).max)
    with np.errstate(all="ignore"):
        rounded = wanted.astype(np.float64).astype(tensor.dtype).astype(np.float64)
        far = np.abs(got - wanted) > slack
        if exact:
            odd = tensor.view.view(f"u{tensor.dtype.itemsize}") & 1
            far |= (np.abs(got - wanted) == slack) & (slack > 0) & (odd == 1)
        same = (got == rounded) | (np.isnan(got) & np.isnan(wanted))
        special = ~np.isfinite(got) | ~np.isfinite(wanted) | (np.abs(wanted) >= largest)
    wrong = np.where(special, ~same, far)
    if not wrong.any():
        return []
    at = tuple(int(each) for each in np.argwhere(wrong)[0]) if wrong.ndim else ()
    place = f"{int(wrong.sum())} wrong, first at {at}: {got[at]} for {wanted[at]}"
    return [f"{what} {tensor.name} strides {tensor.strides}: {place}"]


def random(shape, seed, low=-4.0, high=4.0):
    return np.random.default_rng(seed).uniform(low, high, shape)


def special(shape, seed):
    values = random(shape, seed)
    picks = [np.nan, np.inf, -np.inf, 0.0, -0.0, 6e-8, -1e-40, 1e-310, 65520.0, 3e38, -3e38, 65504.0, -30.0, 90.0]
    values.reshape(-1)[: len(picks)] = picks[: values.size]
    return np.random.default_rng(seed + 1).permutation(values.reshape(-1)).reshape(shape)


def erfc(x):
    return np.vectorize(math.erfc, otypes=[np.float64])(np.asarray(x, np.float64))


def silu(x):
    return x / (1 + np.exp(-x))


UNARY = {
    "Relu": lambda x: np.where(x > 0, x, np.where(np.isnan(x), x, 0)),
    "Gelu": lambda x: 0.5 * x * erfc(-x / np.sqrt(np.float64(2))),
    "Silu": silu,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
}
BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "SwiGLU": lambda a, b: a * silu(b)}
SHAPES = ((), (0, 3), (5,), (1, 7, 1), (3, 5, 7), (91, 97))


def elementwise(library, operator, function, inputs):
    wrong = []
    for dtype, shape in itertools.product(FLOATS, SHAPES):
        for k, layout in enumerate(LAYOUTS):
            others = [LAYOUTS[(k + i) % len(LAYOUTS)] for i in range(inputs)]
            make = special if k % 2 else random
            given = [Tensor(make(shape, 7 * k + i), dtype, each) for i, each in enumerate(others)]
            out = Tensor(np.full(shape, -77.0), dtype, layout if layout != "broadcast" else "gaps")
            wrong += library.call(operator, [out, *given])
            with np.errstate(all="ignore"):
                wanted = function(*(each.wide for each in given))
            exact = operator in ("Relu", "Clip", "Add", "Sub", "Mul")
            units = 0.5 if exact else 0.501 if dtype != "float64" else 4.0
            slack = ulp(wanted, dtype) * units
            if dtype == "float64" and operator in ("Gelu", "SwiGLU", "Silu", "Sigmoid"):
                slack = slack + np.ldexp(64.0, -1074) + (2e-16 * np.abs(given[-1].wide) if operator == "Gelu" else 0)
            slack = np.where(np.isfinite(slack), slack, 0)
            wrong += differences(operator, out, wanted, slack, exact and dtype != "float64")
        same = Tensor(random(shape, 3), dtype, "gaps")
        rest = [Tensor(random(shape, 4 + i), dtype, "reversed") for i in range(inputs - 1)]
        wanted = function(same.wide, *(each.wide for each in rest))
        wrong += library.call(operator, [same, same, *rest])
        if inputs == 2:
            last = Tensor(random(shape, 4), dtype, "gaps")
            wrong += library.call(operator, [last, Tensor(random(shape, 3), dtype), last])
            wrong += (
                [] if np.array_equal(last.view, same.view) else [f"{operator} {dtype}: wrong where b is the output"]
            )
        units = 0.501 if dtype != "float64" else 4.0
        wrong += differences(
            f"{operator} in place", same, wanted, ulp(wanted, dtype) * units + (dtype == "float64") * 1e-15
        )
    return wrong


def case_unary(library):
    return [each for name, function in UNARY.items() for each in elementwise(library, name, function, 1)]


def case_binary(library):
    return [each for name, function in BINARY.items() for each in elementwise(library, name, function, 2)]


def clip(x, low, high):
    return np.where(
        np.isnan(x + low + high) & (np.isnan(x) | np.isnan(low) | np.isnan(high)),
        np.nan,
        np.minimum(np.maximum(x, low), high),
    )


def case_clip(library):
    return elementwise(library, "Clip", clip, 3)


def case_integers(library):
    wrong = []
    functions = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
    functions["Clip"] = lambda x, low, high: np.minimum(np.maximum(x, low), high)
    for (name, function), dtype, layout in itertools.product(functions.items(), list(CODES)[:8], LAYOUTS):
        info = np.iinfo(dtype)
        draw = np.random.default_rng(len(dtype))
        inputs = 3 if name == "Clip" else 2
        given = [
            Tensor(draw.integers(info.min, info.max, (6, 7), dtype, endpoint=True), dtype, layout)
            for _ in range(inputs)
        ]
        out = Tensor(np.zeros((6, 7)), dtype, "reversed")
        wrong += library.call(name, [out, *given])
        with np.errstate(all="ignore"):
            if not (out.view == function(*(each.view for each in given))).all():
                wrong.append(f"{name} {dtype} {layout}: wrong")
    return wrong


def case_movement(library):
    wrong = []
    for dtype, layout in itertools.product(CODES, LAYOUTS):
        source = Tensor(np.arange(90).reshape(5, 6, 3), dtype, layout)
        for to in ("dense", "reversed", "gaps", "negative"):
            out = Tensor(np.full((5, 6, 3), 7), dtype, to)
            wrong += library.call("Rearrange", [out, source])
            if not (out.view == source.view).all():
                wrong.append(f"Rearrange {dtype} from {layout} to {to}: wrong")
        for name, value in (("Zeros", 0), ("Ones", 1)):
            out = Tensor(np.full((5, 6, 3), 7), dtype, layout if layout != "broadcast" else "dense")
            wrong += library.call(name, [out, source])
            if not (out.view == numpy_dtype(dtype).type(value)).all():
                wrong.append(f"{name} {dtype} {layout}: wrong")
    return wrong


def case_gemm(library):
    wrong = []
    sizes = [(3, 4, 5), (1, 1, 1), (4, 9, 0), (0, 3, 2), (37, 150, 131), (16, 16, 16)]
    for dtype, (m, n, k), layout in itertools.product(FLOATS, sizes, LAYOUTS):
        batch = () if layout in ("dense", "gaps") else (2,)
        a = Tensor(random((*batch, m, k), 1), dtype, layout)
        b = Tensor(random((*batch, k, n), 2), dtype, "reversed" if layout == "gaps" else layout)
        for alpha, beta in ((1.0, 0.0), (0.5, -1.5), (0.0, 2.0)):
            c = Tensor(
                np.full((*batch, m, n), np.nan if beta == 0 else 3.0),
                dtype,
                layout if layout != "broadcast" else "gaps",
            )
            before = c.wide.copy() if beta else 0.0
            wanted = alpha * (a.wide @ b.wide) + beta * before
            weight = abs(alpha) * (np.abs(a.wide) @ np.abs(b.wide)) + np.abs(beta * before)
            wrong += library.call("Gemm", [c, a, b], run=(ctypes.c_float(alpha), ctypes.c_float(beta)))
            unit = 2.0**-52 if dtype == "float64" else 2.0**-23
            wrong += differences("Gemm", c, wanted, 8 * unit * weight + 0.5 * ulp(wanted, dtype))
    return wrong


def case_norms(library):
    wrong = []
    for dtype, layout, shape in itertools.product(FLOATS, LAYOUTS, ((3, 5, 33), (1,), (60, 130), (4, 0))):
        x = Tensor((random(shape, 5) + 3.0) * (60 if layout == "reversed" else 1), dtype, layout)
        size = shape[-1]
        w, b = Tensor(random(size, 6), dtype, "negative"), Tensor(random(size, 7), dtype, "gaps")
        like = layout if layout != "broadcast" else "reversed"
        out, standard = Tensor(np.zeros(shape), dtype, like), Tensor(np.zeros(shape), dtype, "gaps")
        deviation = Tensor(np.zeros(shape[:-1]), dtype, like)
        tight = 2.0**-48 if dtype == "float64" else 0.0
        with np.errstate(all="ignore"):
            root = np.sqrt((x.wide**2).mean(-1, keepdims=True) + np.float32(1e-5)) if size else 1.0
            wanted = x.wide / root * w.wide
        wrong += library.call("RMSNorm", [out, x, w], create=(ctypes.c_float(1e-5),))
        wrong += differences("RMSNorm", out, wanted, 0.501 * ulp(wanted, dtype) + tight)
        for bias in (b, None):
            wrong += library.call(
                "LayerNorm", [out, standard, deviation, x, w, bias], 3, create=(ctypes.c_float(1e-2),)
            )
            if size == 0:
                continue
            mean = x.wide.mean(-1, keepdims=True)
            root = np.sqrt(((x.wide - mean) ** 2).mean(-1, keepdims=True) + np.float32(1e-2))
            wanted = (x.wide - mean) / root
            wrong += differences("LayerNorm std", deviation, root[..., 0], 0.501 * ulp(root[..., 0], dtype) + tight)
            wrong += differences("LayerNorm z", standard, wanted, 0.501 * ulp(wanted, dtype) + 1e-14)
            wanted = wanted * w.wide + (0 if bias is None else b.wide)
            wrong += differences("LayerNorm", out, wanted, 0.501 * ulp(wanted, dtype) + 1e-14)
    return wrong


def case_softmax(library):
    wrong = []
    for dtype, layout, shape in itertools.product(FLOATS, LAYOUTS, ((3, 5, 9), (2, 60, 80), (2, 0, 3), (1, 1, 1500))):
        x = Tensor(random(shape, 8, 80, 99) * (-2 if layout == "gaps" else 1), dtype, layout)
        like = layout if layout != "broadcast" else "negative"
        for axis in (-3, -1, 0, 1):
            out = Tensor(np.zeros(shape), dtype, like)
            wrong += library.call("Softmax", [out, x], create=(axis,))
            if x.view.size:
                power = np.exp(x.wide - x.wide.max(axis, keepdims=True))
                wanted = power / power.sum(axis, keepdims=True)
                wrong += differences(
                    f"Softmax {axis}", out, wanted, 0.501 * ulp(wanted, dtype) + 64 * 2.0**-53 * wanted
                )
        out = Tensor(np.full(shape, 5.0), dtype, like)
        seen = np.tri(shape[1], shape[2], shape[2] - shape[1], dtype=bool)
        x = Tensor(np.where(seen, random(shape, 8, 80, 99), np.nan), dtype, layout)
        wrong += library.call("CausalSoftmax", [out, x])
        if x.view.size:
            power = np.where(seen, np.exp(x.wide - np.where(seen, x.wide, -np.inf).max(-1, keepdims=True)), 0)
            wanted = power / power.sum(-1, keepdims=True)
            wrong += differences("CausalSoftmax", out, wanted, 0.501 * ulp(wanted, dtype) + 64 * 2.0**-53 * wanted)
    return wrong


def case_rope(library):
    wrong = []
    for dtype, layout, algorithm, ids in itertools.product(FLOATS, LAYOUTS, (0, 1), ("int32", "uint8", "int64")):
        for shape in ((5, 3, 8), (2, 40, 4, 16), (1, 1, 2)):
            batch, length, size = shape[:-3], shape[-3], shape[-1]
            x = Tensor(random(shape, 9), dtype, layout)
            out = Tensor(np.zeros(shape), dtype, layout if layout != "broadcast" else "gaps")
            sin, cos = Tensor(random((50, size // 2), 10), dtype, "gaps"), Tensor(random((50, size // 2), 11), dtype)
            many = (*batch, length) if algorithm else (length,)
            positions = Tensor(np.random.default_rng(12).integers(0, 50, many), ids, "negative")
            wrong += library.call("RoPE", [out, x, positions, sin, cos], create=(algorithm,))
            at = positions.view.astype(np.int64)
            s, c = sin.wide[at][..., None, :], cos.wide[at][..., None, :]
            first, second = (
                (slice(size // 2), slice(size // 2, None)) if algorithm else (slice(0, None, 2), slice(1, None, 2))
            )
            one, two = x.wide[..., first], x.wide[..., second]
            wanted = np.zeros(shape, x.wide.dtype)
            wanted[..., first], wanted[..., second] = one * c - two * s, two * c + one * s
            wrong += differences("RoPE", out, wanted, 0.501 * ulp(wanted, dtype) + (dtype == "float64") * 1e-14)
            if layout == "broadcast":
                continue
            same = Tensor(random(shape, 9), dtype, "gaps")
            wrong += library.call("RoPE", [same, same, positions, sin, cos], create=(algorithm,))
            wrong += differences(
                "RoPE in place", same, wanted, 0.501 * ulp(wanted, dtype) + (dtype == "float64") * 1e-14
            )
    return wrong


def sample(logits, value, topp, topk, temperature):
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if topk <= 1 or topp == 0 or temperature == 0:
        return order[0]
    power = np.exp((logits[order] - logits[order[0]]) / temperature)
    sums = np.cumsum(power) / power.sum()
    limit = value * min(topp, sums[min(topk, len(sums)) - 1])
    return order[int(np.searchsorted(sums, limit))]


def case_random_sample(library):
    wrong = []
    scalars = itertools.product((0.0, 0.3, 0.83, 0.995), (0.0, 0.5, 1.0), (0, 1, 5, 400), (0.0, 0.5, 2.0))
    for dtype, (value, topp, topk, temperature) in itertools.product(FLOATS, scalars):
        logits = Tensor(random(257, 13), dtype, "negative" if topk == 5 else "gaps")
        result = Tensor(np.array(99), "int16" if dtype == "float16" else "int64")
        extra = (ctypes.c_float(value), ctypes.c_float(topp), topk, ctypes.c_float(temperature))
        wrong += library.call("RandomSample", [result, logits], run=extra)
        wanted = sample(logits.view.astype(np.float64), np.float32(value), topp, topk, temperature)
        if int(result.view) != wanted:
            wrong.append(f"RandomSample {dtype} {value, topp, topk, temperature}: {int(result.view)}, not {wanted}")
    return wrong


def correlate(x, w, bias, pads, strides, dilations):
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pads)])
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    out = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    result = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
    for taps in itertools.product(*(range(k) for k in w.shape[2:])):
        axes = zip(taps, dilations, out, strides, strict=True)
        part = x[(slice(None), slice(None), *(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in axes))]
        result += np.einsum("bc...,oc->bo...", part, w[(slice(None), slice(None), *taps)])
    return result + (0 if bias is None else bias.reshape(-1, *(1,) * len(out)))


CONVOLUTIONS = (
    ((2, 3, 9), (4, 3, 3), (1,), (2,), (2,)),
    ((2, 3, 12, 11), (5, 3, 3, 2), (1, 0), (1, 2), (1, 2)),
    ((1, 2, 5, 6, 4), (3, 2, 2, 3, 1), (0, 1, 2), (2, 1, 1), (1, 1, 3)),
    ((1, 1, 4), (1, 1, 1), (0,), (1,), (1,)),
    ((2, 0, 4), (3, 0, 2), (0,), (1,), (1,)),
)


def case_conv(library):
    wrong = []
    for dtype, layout, (x_shape, w_shape, pads, strides, dilations) in itertools.product(FLOATS, LAYOUTS, CONVOLUTIONS):
        x, w = (
            Tensor(random(x_shape, 14), dtype, layout),
            Tensor(random(w_shape, 15), dtype, LAYOUTS[-1 - LAYOUTS.index(layout)]),
        )
        bias = Tensor(random(w_shape[0], 16), dtype, "negative") if layout != "gaps" else None
        n, b = len(pads), None if bias is None else bias.wide
        wanted = correlate(x.wide, w.wide, b, pads, strides, dilations)
        weight = correlate(np.abs(x.wide), np.abs(w.wide), None, pads, strides, dilations)
        y = Tensor(np.full(wanted.shape, 9.0), dtype, layout if layout != "broadcast" else "reversed")
        extra = ((ctypes.c_size_t * n)(*pads), (ctypes.c_ssize_t * n)(*strides), (ctypes.c_size_t * n)(*dilations))
        wrong += library.call("Conv", [y, x, w, bias], create=(*extra, ctypes.c_size_t(n)))
        wrong += differences("Conv", y, wanted, 0.501 * ulp(wanted, dtype) + 2.0**-49 * (weight + 1))
    return wrong


def zeros(shape, dtype="float32", layout="dense"):
    return Tensor(np.zeros(shape), dtype, layout)


def case_refusals(library):
    t, null, f = zeros((2, 3)), ctypes.c_void_p(), ctypes.c_float
    wrong = []
    for name, inputs in (
        ("Add", 2),
        ("Sub", 2),
        ("Mul", 2),
        ("Clip", 3),
        ("Relu", 1),
        ("Gelu", 1),
        ("SwiGLU", 2),
        ("Rearrange", 1),
        ("Zeros", 1),
    ):
        given = [zeros((2, 3)) for _ in range(inputs)]
        wrong += library.refused(name, [t, *given[:-1], zeros((3, 2))], BAD_SHAPE)
        wrong += library.refused(name, [t, *given[:-1], zeros((6,))], BAD_SHAPE)
        wrong += library.refused(name, [t, *given[:-1], zeros((2, 3), "float64")], BAD_DTYPE)
        wrong += library.refused(name, [zeros((2, 3), layout=(0, 1)), *given], BAD_STRIDES)
        wrong += library.refused(name, [zeros((2, 3), layout=(1, 1)), *given], BAD_STRIDES)
        wrong += library.refused(name, [t, *given[:-1], None], NULL_POINTER)
        wrong += library.refused(name, [t, *given], NULL_POINTER, pointers=[null, *(each.pointer for each in given)])
        wrong += library.refused(name, [t, *given], NULL_POINTER, pointers=[t.pointer] * inputs + [null])
        beside = ctypes.c_void_p(t.pointer.value + 4)
        wrong += library.refused(name, [t, *given], BAD_PARAM, pointers=[t.pointer, *[beside] * inputs])
    wrong += library.refused("Relu", [zeros(2, "int32"), zeros(2, "int32")], BAD_DTYPE)
    one, ab = (f(1), f(0)), (zeros((2, 4)), zeros((4, 3)))
    wrong += library.refused("Gemm", [t, ab[0], zeros((5, 3))], BAD_SHAPE, run=one)
    wrong += library.refused("Gemm", [t, ab[0], zeros(4)], BAD_SHAPE, run=one)
    wrong += library.refused("Gemm", [t, *ab], SHORT, run=one, short=1)
    wrong += library.refused("Gemm", [t, *ab], NULL_POINTER, run=one, pointers=[t.pointer, null, ab[1].pointer])
    wrong += library.refused("Gemm", [t, *ab], BAD_PARAM, run=one, pointers=[t.pointer, t.pointer, ab[1].pointer])
    wrong += library.refused("RMSNorm", [t, zeros((2, 3)), zeros(2)], BAD_SHAPE, create=(f(1),))
    wrong += library.refused("RMSNorm", [t, zeros((2, 3)), zeros(3)], SHORT, create=(f(1),), short=1)
    layer = [zeros((2, 3)), zeros((2, 3)), zeros(2), zeros((2, 3)), zeros(3)]
    wrong += library.refused("LayerNorm", [*layer, zeros(2)], BAD_SHAPE, create=(f(1),))
    wrong += library.refused("LayerNorm", [*layer[:2], zeros(3), *layer[3:], None], BAD_SHAPE, create=(f(1),))
    wrong += library.refused("LayerNorm", [*layer[:4], None, None], NULL_POINTER, create=(f(1),))
    for axis in (2, -3, 1000):
        wrong += library.refused("Softmax", [t, zeros((2, 3))], BAD_PARAM, create=(axis,))
    wrong += library.refused("Softmax", [t, zeros((2, 3))], SHORT, create=(0,), short=1)
    wrong += library.refused("CausalSoftmax", [zeros((3, 2)), zeros((3, 2))], BAD_SHAPE)
    overlapping = [zeros((2, 3), layout=(2, 1)), zeros((2, 3)), zeros(3)]
    wrong += library.refused("RMSNorm", overlapping, BAD_STRIDES, create=(f(1),))
    wrong += library.refused("LayerNorm", [*layer[:4], zeros(2), None], BAD_SHAPE, create=(f(1),))
    rope = [zeros((2, 1, 4)), zeros((2, 1, 4)), Tensor([0, 5], "int32"), zeros((5, 2)), zeros((5, 2))]
    wrong += library.refused("RoPE", rope, BAD_PARAM, create=(0,))
    wrong += library.refused("RoPE", [*rope[:2], Tensor([-1, 0], "int64"), *rope[3:]], BAD_PARAM, create=(0,))
    wrong += library.refused("RoPE", rope, BAD_PARAM, create=(2,))
    wrong += library.refused("RoPE", [*rope[:2], zeros(2), *rope[3:]], BAD_DTYPE, create=(0,))
    drawn = [Tensor(np.array(0), "int8"), zeros(200)]
    wrong += library.refused("RandomSample", drawn, BAD_DTYPE)
    drawn = [Tensor(np.array(0), "int32"), zeros(9)]
    for scalars in ((1.5, 1, 5, 1), (0.5, -1, 5, 1), (0.5, 1, -1, 1), (0.5, 1, 5, -1)):
        extra = (f(scalars[0]), f(scalars[1]), scalars[2], f(scalars[3]))
        wrong += library.refused("RandomSample", drawn, BAD_PARAM, run=extra)
    two = (ctypes.c_size_t * 1)(1)
    conv = [zeros((1, 1, 5)), zeros((1, 2, 5)), zeros((1, 2, 3)), None]
    wrong += library.refused(
        "Conv", [*conv[:2], zeros((1, 1, 3)), None], BAD_SHAPE, create=(two, two, two, ctypes.c_size_t(1))
    )
    wrong += library.refused("Conv", conv, SHORT, create=(two, two, two, ctypes.c_size_t(1)), short=1)
    wrong += library.refused("Conv", conv, BAD_PARAM, create=(two, (ctypes.c_size_t * 1)(0), two, ctypes.c_size_t(1)))
    wrong += library.refused("Conv", conv, NULL_POINTER, create=(null, two, two, ctypes.c_size_t(1)))
    return wrong + refused_without_tensors(library)


def refused_without_tensors(library):
    op, rt, null = library.op, library.rt, ctypes.c_void_p()
    here, one = ctypes.c_void_p(), (ctypes.c_size_t * 1)(1)
    huge = (ctypes.c_size_t * 2)(2**40, 2**40)
    device, number = ctypes.c_int(-1), ctypes.c_int(-1)
    status, add = library.create("Add", [zeros(2), zeros(2), zeros(2)])
    calls = [
        (op.infiniopCreateTensorDescriptor(ctypes.byref(here), ctypes.c_size_t(1), one, null, 0), BAD_DTYPE),
        (op.infiniopCreateTensorDescriptor(ctypes.byref(here), ctypes.c_size_t(1), one, null, 99), BAD_DTYPE),
        (op.infiniopCreateTensorDescriptor(ctypes.byref(here), ctypes.c_size_t(1), null, null, 13), NULL_POINTER),
        (op.infiniopCreateTensorDescriptor(null, ctypes.c_size_t(1), one, null, 13), NULL_POINTER),
        (op.infiniopCreateTensorDescriptor(ctypes.byref(here), ctypes.c_size_t(2), huge, null, 13), BAD_SHAPE),
        (op.infiniopCreateTensorDescriptor(ctypes.byref(here), ctypes.c_size_t(17), one, null, 13), BAD_SHAPE),
        (op.infiniopCreateHandle(null), NULL_POINTER),
        (op.infiniopDestroyHandle(null), NULL_POINTER),
        (op.infiniopCreateAddDescriptor(null, ctypes.byref(here), null, null, null), NULL_POINTER),
        (op.infiniopDestroyAddDescriptor(null), NULL_POINTER),
        (op.infiniopDestroyMulDescriptor(add), BAD_PARAM),
        (op.infiniopGetMulWorkspaceSize(add, ctypes.byref(ctypes.c_size_t())), BAD_PARAM),
        (op.infiniopDestroyAddDescriptor(add), status),
        (rt.infinirtSetDevice(1, 0), NO_DEVICE),
        (rt.infinirtGetDevice(ctypes.byref(device), ctypes.byref(number)), 0),
        (rt.infinirtSetDevice(0, 1), 6),
        (device.value, 0),
        (number.value, 0),
    ]
    return [f"call {index}: gives {got}, not {wanted}" for index, (got, wanted) in enumerate(calls) if got != wanted]


def case_state(library):
    """What a call or a descriptor must not learn from another one."""
    a, b, c = Tensor(np.eye(3), "float32"), Tensor(random((3, 3), 17), "float32"), zeros((3, 3))
    factors = (ctypes.c_float(1), ctypes.c_float(0))
    wrong = library.call("Gemm", [c, a, b], run=factors)
    b.view += 1
    b.before = b.memory.copy()
    wrong += library.call("Gemm", [c, a, b], run=factors)
    wrong += [] if (c.view == b.view).all() else ["Gemm: knows b from the last call"]
    y, x, w = zeros((1, 3)), Tensor([[1.0, 1.0, 1.0]], "float32"), Tensor([1.0, 1.0, 1.0], "float32")
    first = library.create("RMSNorm", [y, x, w], (ctypes.c_float(3.0),))[1]
    second = library.create("RMSNorm", [y, x, w], (ctypes.c_float(0.0),))[1]
    wrong += [] if library.run("RMSNorm", first, [each.pointer for each in (y, x, w)]) == 0 else ["RMSNorm: fails"]
    wrong += [] if (y.view == 0.5).all() else [f"RMSNorm: {y.view} with the epsilon of another descriptor"]
    for each in (first, second):
        library.op.infiniopDestroyRMSNormDescriptor(each)
    return wrong


CASES = {name.removeprefix("case_"): value for name, value in globals().items() if name.startswith("case_")}


def main(folder, *names):
    library = Library(folder)
    results = {name: CASES[name](library)[:3] for name in names or CASES}
    print(json.dumps({"results": results, "digest": digest.hexdigest()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
