"""Expected results of torch calls: torch on the CPU, on copies of the inputs, in float64 if it can."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from optest.numerics import dtype_of
from optest.spec import Fault, NamedOutput, Reason, ReferenceNote, Rule, RuleClass, Terms, Unrounded
from optest.spec.calls import call_text
from optest.torch.calls.call import OperatorsSeen, TorchCall, torch_call, with_alpha_beta_to_power, with_rounded_scalars
from optest.torch.calls.contraction_blocks import in_blocks
from optest.torch.calls.descriptors import CLOSE, descriptor_of
from optest.torch.calls.gradients import expected_gradients
from optest.torch.calls.names import NoSuchCallable
from optest.torch.calls.refusals import NO_KERNEL, first_line, is_missing_support
from optest.torch.fact_sheet import facts_of
from optest.torch.tensors import WIDE, as_array, cpu_copies, strided_copy, to_read, wide_copies, wide_copy

# Their expected values are computed in the case's own dtype.
_EXACT_RULES = (RuleClass.MOVEMENT, RuleClass.EXACT)
# Number of operand elements from which contraction in blocks pays.
_LARGE = 1 << 21
# Number of input elements up to which the call itself takes less time than torch's shape inference.
_QUICKLY_EXECUTED = 1 << 22
_RESULT_TYPES = (
    torch.Tensor, bool, int, float, complex, str,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme,
)  # fmt: skip


def compute_expected(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """Return the unrounded outputs, each with the dtype that the call gives it, then the inputs that the call changes.

    Notes follow, and with ``grad`` the gradients, or a note if there are none. The call is computed in float64, except
    movements, exact rules and comparisons (in the case's dtype) and calls that torch cannot execute in float64, which
    get a note.

    Raises:
        Fault: UNSUPPORTED for a call with random results, BAD_CASE for one that torch on the CPU refuses.
    """
    return _expected(inputs, attributes, in_own_dtype=False)


def expected_in_own_dtype(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """Return the same outputs computed in the case's dtype, to test parity with torch on the CPU only."""
    return _expected(inputs, attributes, in_own_dtype=True)


def _expected(inputs: Sequence[Any], attributes: Mapping[str, Any], *, in_own_dtype: bool) -> list[Any]:
    try:
        call = torch_call(attributes["call"])
    except NoSuchCallable as error:  # registered in another process only, for example by pytest's conftest.py
        raise Fault(Reason.BAD_CASE, str(error)) from None
    rule = descriptor_of(call.call.function).rule
    random_state = torch.get_rng_state()
    with foreign_kernels_used(call.call.operator) as foreign:
        outputs = _results(call, rule, inputs, in_own_dtype)
    if not torch.equal(random_state, torch.get_rng_state()):
        raise Fault(Reason.UNSUPPORTED, f"{call.call.function} draws random numbers, so no result is the right one")
    if call.call.spelled.is_foreign:  # only its library defines its results
        outputs.append(ReferenceNote(f"{call.call.function} itself, on the CPU", itself_on="cpu"))
    elif foreign:
        outputs.append(ReferenceNote(f"with kernels that are not torch's: {', '.join(foreign)}", itself_on="cpu"))
    return [*outputs, *_gradients(call, inputs, in_own_dtype)] if attributes.get("grad") else outputs


def _gradients(call: TorchCall, inputs: Sequence[Any], in_own_dtype: bool) -> list[Any]:
    """Return the expected gradients, or a note with the reason if torch cannot differentiate the call."""
    try:
        return expected_gradients(call, inputs, in_own_dtype=in_own_dtype)
    except Fault as fault:
        if fault.reason is not Reason.UNSUPPORTED:
            raise
        return [ReferenceNote(f"no gradients: {fault.message}")]


def _results(call: TorchCall, rule: Rule | None, inputs: Sequence[Any], in_own_dtype: bool) -> list[Any]:
    """Return outputs, changed inputs and notes; each output with its dtype, and a rule if the call's does not hold.

    Compute in float64 unless the rule is exact, the call only compares, float64 fails or ``in_own_dtype``.
    """
    is_moved = rule is not None and rule.kind in _EXACT_RULES
    # A comparison converts a Python number to the tensor's dtype; in float64 other elements would be equal.
    if (is_moved and not call.beside) or facts_of(call.call.function).is_comparison:
        with _refusal_is_a_fault(call):
            leaves = _executed(call, cpu_copies(inputs))
        return [_unrounded(leaf, _dtype_of(leaf)) for leaf in leaves]
    with _refusal_is_a_fault(call):
        tensors = [to_read(array) for array in inputs]
        kinds = _shapes_and_dtypes(call, tensors)
    results: list[Any] | None = None
    notes: list[Any] = []
    if not in_own_dtype:
        results, notes = _in_float64(call, inputs, tensors, [shape for shape, _ in kinds])
    # Strings, bools and integers describe a tensor, for example its dtype: float64 would falsify them.
    if results is None or not any(isinstance(leaf, (torch.Tensor, float, complex)) for leaf in results):
        with _refusal_is_a_fault(call):
            results = _executed(call, cpu_copies(inputs))
        kinds = [(_shape(leaf), _dtype_of(leaf)) for leaf in results]
    outputs = [_unrounded(leaf, kind) for leaf, (_, kind) in zip(results, kinds, strict=True)]
    # Changed inputs, such as running statistics, are compared by torch.testing's defaults. So are results moved from
    # a changed input, as by ``embedding`` with ``max_norm``: neither is exact.
    names = [f"output{number}" if is_moved else "" for number in range(len(outputs) - len(call.beside))]
    names += [f"input{index} afterwards" for index in call.beside]
    named = [NamedOutput(name, out, rule=CLOSE) if name else out for name, out in zip(names, outputs, strict=True)]
    return [*named, *notes]


@contextmanager
def _refusal_is_a_fault(call: TorchCall) -> Iterator[None]:
    """Turn torch's refusal of the call within the block into Fault BAD_CASE; pass on errors for a missing kernel."""
    try:
        yield
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        if is_missing_support(error):
            raise
        message = f"torch on the CPU refuses {call_text(call.call)}: {type(error).__name__}: {str(error).strip()}"
        hint = "correct the call, or set expects_error if it should be refused"
        raise Fault(Reason.BAD_CASE, f"{message}; {hint}") from None


def _in_float64(
    call: TorchCall, inputs: Sequence[Any], tensors: Sequence[torch.Tensor], shapes: list[tuple[int, ...]]
) -> tuple[list[Any] | None, list[Any]]:
    """Return the float64 results and no note; None and a note if torch has no such kernel or gives other ``shapes``.

    ``tensors`` are the inputs, to be read.
    """
    try:
        leaves = in_blocks(call, inputs, [lambda operand: operand]) if _are_large(inputs) else None
        if leaves is None:
            leaves = _executed(
                with_rounded_scalars(call, inputs), [wide_copy(tensor) for tensor in tensors], dtypes=WIDE
            )
    except NO_KERNEL as error:
        return None, _own_dtype_note(call, inputs, first_line(error))
    if [_shape(leaf) for leaf in leaves] != shapes:
        return None, _own_dtype_note(call, inputs, "there its results have other shapes")
    return leaves, []


def _are_large(inputs: Sequence[Any]) -> bool:
    return bool(sum(array.size for array in inputs) >= _LARGE)


def _own_dtype_note(call: TorchCall, inputs: Sequence[Any], why: str) -> list[Any]:
    """Return a note that the reference is not in float64; [] if no input would have been widened."""
    if all(tensor.dtype not in WIDE for tensor in map(to_read, inputs)):
        return []
    return [ReferenceNote(f"{call.call.function} on the CPU in the case's own dtype, not in float64: {why}")]


def terms(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """Return Σ|t|, Σt² and the number of terms t of each output of a contraction.

    The terms are products of elements, so the call on |operands| yields Σ|t|, and on squared operands Σt².
    """
    call = torch_call(attributes["call"])
    blocks = in_blocks(call, inputs, [torch.Tensor.abs_, torch.Tensor.square_]) if _are_large(inputs) else None
    if blocks is not None:
        (absolute, squared), operands = ([result] for result in blocks), [to_read(array) for array in inputs]
    else:
        operands = [t if t.dtype is torch.bool else t.abs() for t in wide_copies(inputs)]
        # Square before an in-place call adds into the operands. Group offsets are no operands.
        has_offsets = facts_of(call.call.function).terms == "product of groups"
        squares = [t if has_offsets and not t.is_floating_point() else t.square() for t in operands]
        absolute = _executed(with_alpha_beta_to_power(call, 1), operands, dtypes=WIDE)
        squared = _executed(with_alpha_beta_to_power(call, 2), squares, dtypes=WIDE)
    counts = _term_counts(call, operands, len(absolute)) if any(t.numel() for t in absolute) else [0] * len(absolute)
    return [Terms(as_array(a), as_array(s), count) for a, s, count in zip(absolute, squared, counts, strict=True)]


def _term_counts(call: TorchCall, tensors: Sequence[torch.Tensor], outputs: int) -> list[int]:
    """Return the largest number of terms of an element of each output: from the shapes, else by the call on ones."""
    count = _count_by_shapes(call, tensors)
    if count is not None:
        return [count] * outputs  # an in-place call yields its one result twice
    ones = [torch.ones((), dtype=torch.float64).expand(tensor.shape) for tensor in tensors]
    ones = [one.clone() if index in call.changes else one for index, one in enumerate(ones)]
    leaves = _executed(with_alpha_beta_to_power(call, 0), ones, dtypes=WIDE)
    return [int(leaf.max()) if leaf.numel() else 0 for leaf in leaves]


def _count_by_shapes(call: TorchCall, tensors: Sequence[torch.Tensor]) -> int | None:
    if call.call.spelled.is_reflected:
        return None
    operands = call.call.tensors()
    match facts_of(call.call.function).terms:
        case "product of groups":
            return int(tensors[operands[0]].shape[-1])
        case "product added" if len(call.call.args) == 3:
            return int(tensors[operands[1]].shape[-1]) + 1
        case "product" if tensors[0].dim():
            return int(tensors[0].shape[-1]) + (len(tensors) > 2)
        case "convolution":
            return int(tensors[1].numel()) // max(int(tensors[1].shape[0]), 1) + (len(tensors) > 2)
    return None


def _executed(
    call: TorchCall, tensors: Sequence[torch.Tensor], *, dtypes: Mapping[torch.dtype, torch.dtype] | None = None
) -> list[Any]:
    with torch.no_grad():
        leaves = call.on(tensors, dtypes=dtypes)()
    unknown = next((leaf for leaf in leaves if not isinstance(leaf, _RESULT_TYPES)), None)
    if unknown is not None:
        kind = type(unknown)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise Fault(Reason.UNSUPPORTED, f"{call.call.function} returns a {name}, which optest cannot compare")
    return leaves


def _shapes_and_dtypes(call: TorchCall, tensors: Sequence[torch.Tensor]) -> list[tuple[tuple[int, ...], Any]]:
    """Return shape and dtype of each output: of large calls with one output by shape inference, else by the call."""
    # Shape inference is wrong for further outputs: statistics of a norm are float32 on meta and the input's dtype on
    # the CPU, and they are empty there if the call does not request them.
    if sum(tensor.numel() for tensor in tensors) <= _QUICKLY_EXECUTED:
        with suppress(*NO_KERNEL):
            return [(_shape(leaf), _dtype_of(leaf)) for leaf in _executed(call, [strided_copy(t) for t in tensors])]
    with suppress(*NO_KERNEL):  # the shapes may depend on values
        leaves = call.without_values(tensors)
        if len(leaves) == 1 and isinstance(leaves[0], torch.Tensor):
            return [(_shape(leaf), _dtype_of(leaf)) for leaf in leaves]
    return [(_shape(leaf), _dtype_of(leaf)) for leaf in _executed(call, [strided_copy(t) for t in tensors])]


def _shape(leaf: Any) -> tuple[int, ...]:
    return tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else ()


def _dtype_of(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _dtype_of_torch(torch.float32 if leaf.is_quantized else leaf.dtype)  # as_array dequantizes
    return dtype_of(as_array(leaf).dtype)


@cache
def _dtype_of_torch(kind: torch.dtype) -> Any:
    return dtype_of(as_array(torch.empty((0,), dtype=kind)).dtype)


def _unrounded(leaf: Any, kind: Any) -> Any:
    array = as_array(leaf)
    if not kind.is_inexact or array.dtype not in (np.float64, np.complex128):
        return array
    return Unrounded(array, kind)


# torch on the CPU is no reference for operators whose kernels another library has replaced.

# A line of the dispatcher's dump of an operator: ``CPU: registered at FILE:LINE``; ``debug`` is its schema.
_REGISTERED = re.compile(r"^(?P<key>\w+)[^:]*: registered at (?P<file>.*?):\d+", re.M)
_CPU_KEYS = re.compile(r"debug|CPU|AutogradCPU|Autograd|ADInplaceOrView|Composite\w*|BackendSelect")
_PACKAGE = str(Path(torch.__file__).parent)
# Part of the path of every file that torch itself was built from.
_SOURCES = "/pytorch/"


def foreign_kernels() -> frozenset[str]:
    """Return the operators with a CPU kernel or schema registered by a file outside torch, such as ``aten::silu``."""
    return _scan_registry(len(torch.library._impls), len(torch.library._defs), len(torch.ops.loaded_libraries))


# A scan of all operators takes 0.1 s: the counts of registrations are the key of the cache.
@lru_cache(maxsize=4)
def _scan_registry(*_registrations: int) -> frozenset[str]:
    names = torch._C._dispatch_get_all_op_names()
    return frozenset(name.partition(".")[0] for name in names if _is_foreign(torch._C._dispatch_dump(name)))


def _is_foreign(dump: str) -> bool:
    return any(
        _CPU_KEYS.fullmatch(line["key"]) and _SOURCES not in line["file"] and _PACKAGE not in line["file"]
        for line in _REGISTERED.finditer(dump)
    )


@contextmanager
def foreign_kernels_used(operator: str) -> Iterator[list[str]]:
    """Yield a list; on exit, fill it with the foreign kernels among ``operator`` and the operators that ran inside."""
    used: list[str] = []
    if not (known := foreign_kernels()):
        yield used
        return
    with OperatorsSeen() as seen:
        yield used
    used += sorted(known & {f"aten::{operator}", *(overload._schema.name for overload in seen.operators)})
