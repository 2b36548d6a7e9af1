"""What a call of torch should yield: torch on the CPU, from tensors of its own, in float64 where that is possible."""

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
from optest.torch.calls.refusals import NO_KERNEL, first_line, is_a_lack
from optest.torch.fact_sheet import facts_of
from optest.torch.tensors import WIDE, as_array, copied, on_cpu, to_read, wide, widened

_AS_THEY_ARE = (RuleClass.MOVEMENT, RuleClass.EXACT)


def expected(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """The outputs, unrounded, each with the dtype that the call gives it; what the call changes comes after these.

    With ``grad`` the gradients follow. A note says so where torch cannot make the call in float64.

    Raises:
        Fault: UNSUPPORTED for a call whose result is drawn at random, BAD_CASE for one that torch on the CPU refuses.
    """
    return _expected(inputs, attributes, in_own_dtype=False)


def expected_in_own_dtype(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """The same as torch on the CPU has it in the dtype of the case, to be compared with for parity alone."""
    return _expected(inputs, attributes, in_own_dtype=True)


def _expected(inputs: Sequence[Any], attributes: Mapping[str, Any], *, in_own_dtype: bool) -> list[Any]:
    try:
        call = torch_call(attributes["call"])
    except NoSuchCallable as error:  # another process had it, as an operator that pytest's conftest.py registers
        raise Fault(Reason.BAD_CASE, str(error)) from None
    rule = descriptor_of(call.call.function).rule
    with _nothing_drawn(call), foreign_kernels_used(call.call.operator) as foreign:
        found = _results(call, rule, inputs, in_own_dtype)
    if call.call.spelled.is_foreign:  # nobody but its library says what it should yield
        found.append(ReferenceNote(f"{call.call.function} itself, on the CPU", itself_on="cpu"))
    elif foreign:
        found.append(ReferenceNote(f"with kernels that are not torch's: {', '.join(foreign)}", itself_on="cpu"))
    return [*found, *_gradients(call, inputs, in_own_dtype)] if attributes.get("grad") else found


def _gradients(call: TorchCall, inputs: Sequence[Any], in_own_dtype: bool) -> list[Any]:
    """The gradients; where torch has none, its results are judged all the same, and a note says why."""
    try:
        return expected_gradients(call, inputs, in_own_dtype=in_own_dtype)
    except Fault as fault:
        if fault.reason is not Reason.UNSUPPORTED:
            raise
        return [ReferenceNote(f"no gradients: {fault.message}")]


def _results(call: TorchCall, rule: Rule | None, inputs: Sequence[Any], in_own_dtype: bool) -> list[Any]:
    is_moved = rule is not None and rule.kind in _AS_THEY_ARE
    # What only compares has a number beside tensors in their dtype, and float64 has other ties.
    if (is_moved and not call.beside) or facts_of(call.call.function).is_comparison:
        with _refusal_is_a_fault(call):
            leaves = _made(call, on_cpu(inputs))
        return [_unrounded(leaf, _dtype_of(leaf)) for leaf in leaves]
    with _refusal_is_a_fault(call):
        tensors = [to_read(array) for array in inputs]
        kinds = _kinds(call, tensors)
    results: list[Any] | None = None
    notes: list[Any] = []
    if not in_own_dtype:
        results, notes = _in_float64(call, inputs, tensors, [shape for shape, _ in kinds])
    # Words, truth values and integers say what a tensor is, its dtype, too: float64 is no nearer to the truth.
    if results is None or not any(isinstance(leaf, (torch.Tensor, float, complex)) for leaf in results):
        with _refusal_is_a_fault(call):
            results = _made(call, on_cpu(inputs))
        kinds = [(_shape(leaf), _dtype_of(leaf)) for leaf in results]
    found = [_unrounded(leaf, kind) for leaf, (_, kind) in zip(results, kinds, strict=True)]
    # What the call changes beside its results has a name, and torch.testing's defaults in place of their rule. So has
    # what it moves after it changed that, as ``embedding`` does with ``max_norm``: neither is exact.
    names = [f"output{number}" if is_moved else "" for number in range(len(found) - len(call.beside))]
    names += [f"input{index} afterwards" for index in call.beside]
    named = [NamedOutput(name, each, rule=CLOSE) if name else each for name, each in zip(names, found, strict=True)]
    return [*named, *notes]


@contextmanager
def _refusal_is_a_fault(call: TorchCall) -> Iterator[None]:
    """While inside, torch's refusal of the call as the case writes it is the case's fault; a kernel that the CPU has
    not got is not.

    Raises:
        Fault: BAD_CASE, in torch's words.
    """
    try:
        yield
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        if is_a_lack(error):
            raise
        message = f"torch on the CPU refuses {call_text(call.call)}: {type(error).__name__}: {str(error).strip()}"
        raise Fault(
            Reason.BAD_CASE, f"{message}; correct the call, or state expects_error if it should be refused"
        ) from None


def _in_float64(
    call: TorchCall, inputs: Sequence[Any], tensors: Sequence[torch.Tensor], shapes: list[tuple[int, ...]]
) -> tuple[list[Any] | None, list[Any]]:
    """The results, None where torch does not have them in float64, and a note that says why it has not.

    ``tensors`` are the inputs, to be read.
    """
    try:
        leaves = in_blocks(call, inputs, [lambda each: each]) if _are_large(inputs) else None
        if leaves is None:
            leaves = _made(with_rounded_scalars(call, inputs), [wide(each) for each in tensors], dtypes=WIDE)
    except NO_KERNEL as error:
        return None, _narrow(call, inputs, first_line(error))
    if [_shape(leaf) for leaf in leaves] != shapes:
        return None, _narrow(call, inputs, "there its results have other shapes")
    return leaves, []


_LARGE = 1 << 21
"""Elements of all operands from which blocks of a contraction pay."""


def _are_large(inputs: Sequence[Any]) -> bool:
    return bool(sum(array.size for array in inputs) >= _LARGE)


def _narrow(call: TorchCall, inputs: Sequence[Any], why: str) -> list[Any]:
    """The note, if float64 would have been another thing."""
    if all(each.dtype not in WIDE for each in map(to_read, inputs)):
        return []
    return [ReferenceNote(f"{call.call.function} on the CPU in the case's own dtype, not in float64: {why}")]


def terms(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """Σ|t|, Σt² and the number of terms of a contraction: it is linear in each operand, so it says so itself.

    The terms of a result are products of elements. Made on |operands| the call adds up |t|, on their squares t².
    """
    call = torch_call(attributes["call"])
    blocks = in_blocks(call, inputs, [torch.Tensor.abs_, torch.Tensor.square_]) if _are_large(inputs) else None
    if blocks is not None:
        (absolute, squared), operands = ([each] for each in blocks), [to_read(array) for array in inputs]
    else:
        operands = [each if each.dtype is torch.bool else each.abs() for each in widened(inputs)]
        # before a call in place adds into the operands; ends of groups are no operands
        keeps = facts_of(call.call.function).terms == "product of groups"
        squares = [each if keeps and not each.is_floating_point() else each.square() for each in operands]
        absolute = _made(with_alpha_beta_to_power(call, 1), operands, dtypes=WIDE)
        squared = _made(with_alpha_beta_to_power(call, 2), squares, dtypes=WIDE)
    counts = _counts(call, operands, len(absolute)) if any(each.numel() for each in absolute) else [0] * len(absolute)
    return [
        Terms(as_array(one), as_array(two), count) for one, two, count in zip(absolute, squared, counts, strict=True)
    ]


def _counts(call: TorchCall, tensors: Sequence[torch.Tensor], outputs: int) -> list[int]:
    """How many terms an element of each output has at most: what the call yields for ones, where shapes do not say."""
    count = _count_by_shapes(call, tensors)
    if count is not None:
        return [count] * outputs  # a call in place yields its one result twice
    ones = [torch.ones((), dtype=torch.float64).expand(each.shape) for each in tensors]
    ones = [each.clone() if index in call.changes else each for index, each in enumerate(ones)]
    leaves = _made(with_alpha_beta_to_power(call, 0), ones, dtypes=WIDE)
    return [int(each.max()) if each.numel() else 0 for each in leaves]


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


def _made(
    call: TorchCall, tensors: Sequence[torch.Tensor], *, dtypes: Mapping[torch.dtype, torch.dtype] | None = None
) -> list[Any]:
    with torch.no_grad():
        leaves = call.on(tensors, dtypes=dtypes)()
    strange = next((leaf for leaf in leaves if not isinstance(leaf, _RESULTS)), None)
    if strange is not None:
        kind = type(strange)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise Fault(Reason.UNSUPPORTED, f"{call.call.function} returns a {name}, which is nothing that can be compared")
    return leaves


_RESULTS = (
    torch.Tensor, bool, int, float, complex, str,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme,
)  # fmt: skip


@contextmanager
def _nothing_drawn(call: TorchCall) -> Iterator[None]:
    """Raises:
    Fault: UNSUPPORTED if random numbers were drawn inside.
    """
    before = _random_state()
    yield
    if before != _random_state():
        raise Fault(Reason.UNSUPPORTED, f"{call.call.function} draws random numbers, so no result is the right one")


def _random_state() -> bytes:
    return bytes(torch.get_rng_state().numpy())


def _kinds(call: TorchCall, tensors: Sequence[torch.Tensor]) -> list[tuple[tuple[int, ...], Any]]:
    """Shape and dtype of each output, without computing one if torch can tell.

    Of operators with several outputs it cannot: statistics beside a norm are float32 without a device, the dtype of
    the input on the CPU, and empty where they are not asked for.
    """
    if sum(each.numel() for each in tensors) <= _QUICKLY_MADE:
        with suppress(*NO_KERNEL):
            return [(_shape(leaf), _dtype_of(leaf)) for leaf in _made(call, [copied(each) for each in tensors])]
    with suppress(*NO_KERNEL):  # where the values decide
        leaves = call.without_values(tensors)
        if len(leaves) == 1 and isinstance(leaves[0], torch.Tensor):
            return [(_shape(leaf), _dtype_of(leaf)) for leaf in leaves]
    return [(_shape(leaf), _dtype_of(leaf)) for leaf in _made(call, [copied(each) for each in tensors])]


_QUICKLY_MADE = 1 << 22
"""Elements up to which the call itself takes less than torch does to say what it would yield."""


def _shape(leaf: Any) -> tuple[int, ...]:
    return tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else ()


def _dtype_of(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _dtype_called(torch.float32 if leaf.is_quantized else leaf.dtype)  # what as_array makes of levels
    return dtype_of(as_array(leaf).dtype)


@cache
def _dtype_called(kind: torch.dtype) -> Any:
    return dtype_of(as_array(torch.empty((0,), dtype=kind)).dtype)


def _unrounded(leaf: Any, kind: Any) -> Any:
    array = as_array(leaf)
    if not kind.is_inexact or array.dtype not in (np.float64, np.complex128):
        return array
    return Unrounded(array, kind)


# Operators of torch for which somebody else registered a kernel: torch on the CPU is no reference for these.


_REGISTERED = re.compile(r"^(?P<key>\w+)[^:]*: registered at (?P<file>.*?):\d+", re.M)
"""A line of what the dispatcher knows of an operator: ``CPU: registered at FILE:LINE``; ``debug`` is its schema."""

_KEYS_OF_A_CPU = re.compile(r"debug|CPU|AutogradCPU|Autograd|ADInplaceOrView|Composite\w*|BackendSelect")
_PACKAGE = str(Path(torch.__file__).parent)
_SOURCES = "/pytorch/"
"""In the paths of the files that torch itself was built from."""


def foreign_kernels() -> frozenset[str]:
    """The operators with a kernel for the CPU, or a schema, from a file that is none of torch's: ``aten::silu``.

    Operators of other libraries' own namespaces are not meant: their names say whose they are.
    """
    return _found(len(torch.library._impls), len(torch.library._defs), len(torch.ops.loaded_libraries))


@lru_cache(maxsize=4)
def _found(*_registrations: int) -> frozenset[str]:
    """Asked again when something was registered since; asking of all operators takes a tenth of a second."""
    names = torch._C._dispatch_get_all_op_names()
    return frozenset(name.partition(".")[0] for name in names if _is_foreign(torch._C._dispatch_dump(name)))


def _is_foreign(dump: str) -> bool:
    return any(
        _KEYS_OF_A_CPU.fullmatch(found["key"]) and _SOURCES not in found["file"] and _PACKAGE not in found["file"]
        for found in _REGISTERED.finditer(dump)
    )


@contextmanager
def foreign_kernels_used(operator: str) -> Iterator[list[str]]:
    """The foreign kernels among what a call of ``operator`` makes while inside, in the list when it is left."""
    used: list[str] = []
    if not (known := foreign_kernels()):
        yield used
        return
    with OperatorsSeen() as seen:
        yield used
    used += sorted(known & {f"aten::{operator}", *(each._schema.name for each in seen.operators)})
