"""Assertions for tests of one's own: what a kernel made, judged by the rules of ``optest run``.

    from optest.testing import assert_right

    def test_softmax():
        x = torch.randn(8, 1000, dtype=torch.float16)
        assert_right(my_softmax(x), op="softmax", inputs=[x], dim=-1)

Tensors are NumPy arrays, torch tensors, or those of a library that has ``__array__`` or ``__dlpack__``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from optest.backends import BackendDriver, wrong_numerics
from optest.backends.arrays import library_of, to_array
from optest.core.actual import BackendAnswer, in_order
from optest.core.comparison import Comparison
from optest.core.expected import expected_outputs
from optest.core.extensions import load_extensions
from optest.core.phases import Clock
from optest.core.results import result_of
from optest.core.verdicts import verdict_of
from optest.errors import InternalError, PlanError, UnknownName, UsageError
from optest.numerics import Array, dtype_of, is_known, widen
from optest.operators import operators
from optest.plan import CaseRequest, PlanHost, build_cases
from optest.plan.from_samples import document_of
from optest.reporting.explain import explain
from optest.spec import (
    BAD_STATUSES,
    BackendTarget,
    Fault,
    Layer,
    Numerics,
    OperatorDescriptor,
    Reason,
    Rule,
    RuleClass,
    Status,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    format_shape,
)

__all__ = ["Numerics", "Rule", "RuleClass", "assert_close", "assert_right"]

__tracebackhide__ = True
"""pytest shows the line of the test alone."""
_OF_THE_CALLER = frozenset({Reason.BAD_CASE, Reason.REFERENCE_FAILED})
"""Reasons that say nothing of the kernel."""
_RULES = {
    "close": Rule(kind=RuleClass.CLOSE, source="torch.testing.assert_close"),
    "exact": Rule(kind=RuleClass.EXACT),
    "movement": Rule(kind=RuleClass.MOVEMENT),
}


def assert_right(
    actual: Any,
    op: str,
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    attributes: Mapping[str, Any] | None = None,
    tolerance: Mapping[str, Any] | None = None,
    numerics: Numerics | None = None,
    **named: Any,
) -> None:
    """Require that ``actual`` is what the operator ``op`` makes of ``inputs``, by the operator's own rule.

    ``actual`` is a tensor, or a list or a mapping of all outputs. ``inputs`` are in the operator's order, None for an
    optional one that is left out, or by name; they are the values from before the call. Attributes are keywords, or in
    ``attributes`` where their name is one of a parameter; those left out have the operator's defaults.

    ``tolerance`` replaces the rule, as ``{"rtol": 1e-3, "atol": 0}`` in a plan does. ``numerics`` says how the kernel
    computes, where that is not the way of the dtypes: ``Numerics(operands="tf32")``. What lies on a CPU, as NumPy
    arrays do, has the sharper ceilings of a CPU unless ``Numerics(processor="accelerator")`` says otherwise.

    Raises:
        AssertionError: with the block that ``optest run`` prints for such a failure; also for a pass that proves little
            (SUSPECT), as of results that are all NaN, and where no output has an element (NOTHING_COMPARED).
        UsageError: for an operator, attribute, input or tolerance that does not fit, and for an output that shares
            memory with an input, whose values from before the call are then unknown.
    """
    tensors = _inputs(inputs)
    outputs = _outputs(actual)
    _require_own_memory(outputs, tensors)
    driver = _Made(outputs, numerics)
    case = _case(op, tensors, {**(attributes or {}), **named}, tolerance, driver)
    arrays = [tensors[argument.fill.parameters["place"]].array for argument in case.inputs]
    _require_right(case, arrays, outputs, driver)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rule: str | Rule = "close",
    rtol: float | None = None,
    atol: float | None = None,
    tolerance: Mapping[str, Any] | None = None,
    numerics: Numerics | None = None,
) -> None:
    """Require that ``actual`` is ``expected`` within a rule; both are tensors, or lists or mappings of tensors.

    ``expected`` has the dtype of ``actual`` or is wider, as a reference in float64 is. ``rule`` is ``close``
    (the tolerances of ``torch.testing`` by dtype, smaller where zeros would pass), ``exact`` (equal values),
    ``movement`` (equal bits), or a rule such as ``Rule(kind=RuleClass.ULP, ulp=4)``, in ulp of the arithmetic, which is
    float32 for 16-bit results. ``tolerance`` and ``numerics`` are those of :func:`assert_right`; ``rtol`` and ``atol``
    are a tolerance, where one that is left out is 0. Integers and bool are equal, unless a tolerance is stated.

    Raises:
        AssertionError: as :func:`assert_right` does.
        UsageError: for a rule that needs the terms of an operator, and for an ``expected`` that shares memory with
            ``actual``.
    """
    outputs, wanted = _outputs(actual), _outputs(expected, "expected")
    if not wanted:
        raise UsageError("expected has no tensor: nothing can be compared")
    if rtol is not None or atol is not None:
        if tolerance is not None:
            raise UsageError("rtol and atol are a tolerance; state one of both")
        tolerance = {"rtol": rtol or 0.0, "atol": atol or 0.0}
    for each in wanted:
        _require_tensor(each)
    _require_own_memory(outputs, wanted)
    driver = _Made(outputs, numerics)
    case = _case_of_pairs(outputs, wanted, _rule(rule), tolerance, driver)
    _require_right(case, [], outputs, driver)


class _Tensor(NamedTuple):
    """A tensor that was handed over; ``extent`` is the device and the first and the last address that it has there."""

    name: str
    array: Any
    device: str = "cpu"
    extent: tuple[int, int] = (0, 0)


def _tensor(name: str, value: Any) -> _Tensor:
    """A tensor as an array; what is none is kept as it is."""
    if callable(value):
        called = getattr(value, "__name__", type(value).__name__)
        raise UsageError(f"{name} is {called} itself, but should be a result of it; call it: {called}(x)")
    try:
        array = to_array(value)
    except (KeyError, TypeError, ValueError, BufferError, RuntimeError) as error:
        raise UsageError(f"{name} is a {type(value).__name__} that cannot be read: {error}") from None
    if not isinstance(array, (np.ndarray, np.generic)) or isinstance(array, np.ma.MaskedArray):
        return _Tensor(name, array)  # whoever judges it says what is wrong with it
    array = np.asarray(array)
    address, strides = array.__array_interface__["data"][0], list(array.strides)
    device = str(getattr(value, "device", "cpu"))
    if library_of(value) == "torch":
        address, strides = value.data_ptr(), [step * value.element_size() for step in value.stride()]
    elif device.lower().startswith("cpu"):
        device = "cpu"  # as JAX writes it: TFRT_CPU_0
    if not array.size:
        return _Tensor(name, array, device)
    reach = [(size - 1) * step for size, step in zip(array.shape, strides, strict=True)]
    low, high = sum(min(each, 0) for each in reach), sum(max(each, 0) for each in reach)
    return _Tensor(name, array, device, (address + low, address + high + array.itemsize))


def _inputs(inputs: Any) -> list[_Tensor]:
    """Every input that is there, with the name that a plan has for it.

    Raises:
        UsageError: for what is no list or mapping of tensors.
    """
    if isinstance(inputs, Mapping):
        named = {str(name): value for name, value in inputs.items()}
    elif isinstance(inputs, (list, tuple)):
        named = {f"input{place}": value for place, value in enumerate(inputs)}
    else:
        raise UsageError(
            f"inputs is a {type(inputs).__name__}, but should be a list or a mapping of tensors: inputs=[x]"
        )
    tensors = [_tensor(name, value) for name, value in named.items() if value is not None]
    for each in tensors:
        _require_tensor(each)
    return tensors


def _require_tensor(tensor: _Tensor) -> None:
    if not isinstance(tensor.array, np.ndarray) or isinstance(tensor.array, np.ma.MaskedArray):
        raise UsageError(f"{tensor.name} is a {type(tensor.array).__name__}, but should be a tensor")
    if not is_known(tensor.array.dtype):
        raise UsageError(f"{tensor.name} has elements of type {tensor.array.dtype}, which no operator takes")


def _outputs(values: Any, name: str = "actual") -> list[_Tensor]:
    """Each output with what it is called: its name, or its place."""
    if isinstance(values, Mapping):
        return [_tensor(str(key), value) for key, value in values.items()]
    if isinstance(values, (list, tuple)):
        return [_tensor(f"output{place}", value) for place, value in enumerate(values)]
    return [_tensor(name, values)]


def _require_own_memory(outputs: Sequence[_Tensor], others: Sequence[_Tensor]) -> None:
    for output in outputs:
        for other in others:
            first, last = max(output.extent[0], other.extent[0]), min(output.extent[1], other.extent[1])
            if output.device == other.device and first < last:
                raise UsageError(
                    f"{output.name} shares memory with {other.name}, which may hold what the kernel wrote\n"
                    "  hand over a copy from before the call: x.clone(), x.copy()"
                )


class _Made(BackendDriver):
    """Stands for whoever made the outputs; ``wanted`` is what they should be, where that was handed over."""

    name = "actual"
    isolated = False

    def __init__(self, outputs: Sequence[_Tensor], numerics: Numerics | None) -> None:
        if not isinstance(numerics, (Numerics, type(None))):
            raise UsageError(f"numerics is {numerics!r}, but should be a Numerics: Numerics(operands='tf32')")
        if numerics is not None and (wrong := wrong_numerics(asdict(numerics))):
            raise UsageError(wrong)
        devices = [each.device for each in outputs if each.device != "cpu"]
        self._device = devices[0] if devices else None
        self.kind = "gpu" if devices else "cpu"
        self.numerics = numerics or Numerics()
        self.wanted: list[Array] | None = None

    def device(self) -> str | None:
        return self._device

    def golden(self, case: TestCase) -> list[Array] | None:  # noqa: ARG002 - part of the protocol
        return self.wanted

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:  # noqa: ARG002 - a layer was made as a whole
        return None

    def target(self) -> BackendTarget:
        return BackendTarget(name=self.name, kind=self.kind, device=self._device)


def _case(
    op: str,
    inputs: Sequence[_Tensor],
    attributes: Mapping[str, Any],
    tolerance: Mapping[str, Any] | None,
    driver: _Made,
) -> TestCase:
    """The case that a plan would state so; the fill of each argument says which of ``inputs`` it is.

    Raises:
        UsageError: with everything that is wrong with it.
    """
    if not isinstance(op, str):
        raise UsageError(f"op is {op!r}, but should be the name of an operator: 'softmax'")
    load_extensions()
    try:
        stated = operators.spelling(op) or operators.get(op)
    except UnknownName as error:
        raise error.with_traceback(None) from None
    if isinstance(stated, OperatorDescriptor) and stated.reference is None:
        raise UsageError(f"{op} has no reference, so nobody knows what is right; use assert_close with what you expect")
    known = [each.name for each in stated.tensors.inputs]
    if len(inputs) > len(known) and not stated.tensors.is_variadic:
        raise UsageError(f"{op} takes {len(known)} inputs ({', '.join(known)}), but here are {len(inputs)}")
    entry: dict[str, Any] = {
        "op": op,
        "shapes": {each.name: _layout(each.array) for each in inputs},
        "dtypes": {each.name: dtype_of(each.array.dtype).name for each in inputs},
        "generator": {each.name: {"fill": "argument", "place": place} for place, each in enumerate(inputs)},
        "attributes": {name: _plain(value) for name, value in attributes.items()},
        "tolerance": tolerance,
    }
    document = document_of([{key: value for key, value in entry.items() if value}], "assert_right")
    host = PlanHost(operators=operators, target=driver.target(), check_fill=lambda _: None)
    try:
        (case,) = build_cases(document, CaseRequest(), host)
    except PlanError as error:
        lines = ["\n  ".join(filter(None, (f"{op}: {each.message}", each.hint))) for each in error.problems]
        raise UsageError("\n".join(dict.fromkeys(lines))) from None
    return case


def _layout(array: Array) -> Any:
    """A shape, with strides and offset in elements where the array is not row-major."""
    steps = [step // array.itemsize for step in array.strides]
    shape = list(array.shape)
    if array.flags.c_contiguous or any(step % array.itemsize for step in array.strides):
        return shape
    return {
        "shape": shape,
        "strides": steps,
        "offset": sum((size - 1) * -step for size, step in zip(shape, steps, strict=True) if step < 0 < size),
    }


def _plain(value: Any) -> Any:
    """An attribute as a plan has it: dtypes by name, sequences as lists, scalars as numbers."""
    if library_of(value) == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value).name
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _rule(rule: str | Rule) -> Rule:
    if isinstance(rule, Rule):
        if rule.kind in (RuleClass.ACCUMULATE, RuleClass.COMPOSED):
            raise UsageError(f"rule {rule.kind.value} needs the terms of an operator; use assert_right")
        return rule
    if rule not in _RULES:
        raise UnknownName("rule", rule, _RULES)
    return _RULES[rule]


def _case_of_pairs(
    outputs: Sequence[_Tensor],
    wanted: Sequence[_Tensor],
    rule: Rule,
    tolerance: Mapping[str, Any] | None,
    driver: _Made,
) -> TestCase:
    """Each output with its expected one by name; ``driver`` keeps these."""
    by_name = {each.name: each.array for each in outputs}
    names = [each.name if len(wanted) > 1 or each.name != "expected" else "actual" for each in wanted]
    specs, values = [], []
    for name, each in zip(names, wanted, strict=True):
        made = by_name.get(name)
        kind = dtype_of(each.array.dtype)
        own = dtype_of(made.dtype) if isinstance(made, np.ndarray) and is_known(made.dtype) else kind
        is_wider = own.is_inexact and own.kind is kind.kind and own.precision < kind.precision
        specs.append(TensorSpec(dtype=own if is_wider else kind, shape=each.array.shape))
        values.append(widen(each.array) if is_wider else each.array)
    driver.wanted = values
    try:
        stated = () if tolerance is None else (Tolerance.from_mapping(tolerance),)
    except UnknownName as error:
        raise error.with_traceback(None) from None
    return TestCase(
        descriptor=OperatorDescriptor(name="assert_close", signature=f"-> {', '.join(names)}", rule=rule),
        inputs=(),
        outputs=tuple(specs),
        backend=driver.target(),
        tolerances=tuple(ToleranceLayer(layer=Layer.CASE, tolerance=each) for each in stated),
    )


def _require_right(case: TestCase, inputs: Sequence[Array], outputs: Sequence[_Tensor], driver: _Made) -> None:
    """Judge as a run does.

    Raises:
        AssertionError: with the failure block.
        UsageError: for what is no fault of who made the outputs.
    """
    try:
        expected, notes = expected_outputs([case], inputs, None, driver)
        answer = _answer(case, outputs)
        comparison = Comparison(case, driver, inputs, answer.outputs, expected, Clock(None))
        verdict = verdict_of(comparison, answer._replace(checks=notes))
    except Fault as fault:
        raise UsageError(f"{case.descriptor.name}: {fault.message}") from None
    if verdict.status is Status.PASSED and not any(each.compared for each in verdict.measures):
        nothing = "no output has an element; where that is meant, assert shape and dtype"
        verdict = replace(verdict, status=Status.FAILED, reason=Reason.NOTHING_COMPARED, evidence=None, message=nothing)
    result = result_of(case, verdict)
    if driver.wanted is not None:
        shown = f"assert_close({', '.join(f'{each.dtype}[{format_shape(each.shape)}]' for each in case.outputs)})"
        result = replace(result, id=shown, reference="expected")
    text = "\n".join(explain(result))
    if verdict.reason is Reason.INTERNAL:
        raise InternalError(text)
    if verdict.reason in _OF_THE_CALLER or verdict.status is Status.UNCHECKED:
        raise UsageError(f"{case.descriptor.name}: {verdict.message}")
    if verdict.status in BAD_STATUSES:
        raise AssertionError(text)


def _answer(case: TestCase, outputs: Sequence[_Tensor]) -> BackendAnswer:
    """The outputs in the operator's order, or what is wrong with them before any value is looked at."""
    is_named = any(each.name != "actual" and not each.name.startswith("output") for each in outputs)
    values = [each.array for each in outputs]
    try:
        arrays = in_order(case, {each.name: each.array for each in outputs} if is_named else values)
    except Fault as fault:
        return BackendAnswer((), (), fault, further=())
    return BackendAnswer(arrays, (), further=())
