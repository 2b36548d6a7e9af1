"""Assertions for tests of one's own: what a kernel made, judged by the rules of ``optest run``.

    from optest.testing import assert_right

    def test_softmax():
        x = torch.randn(8, 1000, dtype=torch.float16)
        assert_right(my_softmax(x), op="softmax", inputs=[x], dim=-1)

Tensors are NumPy arrays, torch tensors, or those of a library that has ``__array__`` or ``__dlpack__``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from optest.backends import BackendDriver, wrong_numerics
from optest.backends.arrays import library_of, to_array
from optest.compare.assert_close import close_tolerance
from optest.core.actual import PLAIN_ARRAYS, BackendAnswer, in_order
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
from optest.registry import load_object
from optest.reporting.explain import explain
from optest.spec import (
    BAD_STATUSES,
    BackendTarget,
    DType,
    Fault,
    Layer,
    Numerics,
    OperatorDescriptor,
    Reason,
    Rule,
    RuleClass,
    Signature,
    Status,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    dtype,
    format_shape,
)

__tracebackhide__ = True
"""pytest shows the line of the test alone."""
_OF_THE_CALLER = frozenset({Reason.BAD_CASE, Reason.REFERENCE_FAILED})
"""Reasons that say nothing of the kernel."""
_NOTHING = "no output has an element; if that is intended, assert shape and dtype"
_SHOWN = 4
"""Largest number of outputs in the first line of a failure."""
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
    _require_right(case, arrays, _answer(case, outputs), driver)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rule: str | Rule = "close",
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    tolerance: Mapping[str, Any] | None = None,
    numerics: Numerics | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Require that ``actual`` is ``expected`` within a rule, in place of ``torch.testing.assert_close``.

    Both are tensors of any layout, numbers, None, or sequences and mappings of these. The parameters of torch's
    function mean the same here, and so do its tolerances by dtype. The differences:

    - SUSPECT fails: a tolerance that zeros, or the mean of the expected values, would meet (torch's own default becomes
      smaller), and an expected tensor that is NaN or infinite everywhere.
    - Nothing compared fails (only empty or ``meta`` tensors), and memory that both share is refused.
    - ``expected`` may be wider than ``actual``, as a reference in float64 is, and of another library.
    - ``rtol`` or ``atol`` without the other is one of 0, float8 takes both, and nested tensors are compared one by one.

    ``rule`` is ``close``, ``exact`` (equal values), ``movement`` (equal bits), or a rule such as
    ``Rule(kind=RuleClass.ULP, ulp=4)``, in ulp of the arithmetic, which is float32 for 16-bit results; except
    for ``close``, NaN equals NaN. ``tolerance`` and ``numerics`` are those of :func:`assert_right`.

    Raises:
        AssertionError: as :func:`assert_right` does; ``msg`` replaces its text, or is called with it.
        UsageError: for a rule that needs the terms of an operator, an ``expected`` that shares memory with ``actual``,
            and values that cannot be compared.
    """
    stated = (not allow_subclasses, check_device, check_dtype, check_layout, check_stride)
    checks = dict(zip(_ATTRIBUTES, stated, strict=False))
    of_each = None if rtol is atol is None else {"rtol": rtol or 0.0, "atol": atol or 0.0}
    if of_each is not None and tolerance is not None:
        raise UsageError("rtol and atol are a tolerance; set only one of them")
    try:
        pairs, fault = [*_pairs("", actual, expected, checks)], None
    except Fault as error:
        pairs, fault = [], error
    driver = _Made([pair.output for pair in pairs], numerics)
    case = _case_of_pairs(pairs, _rule(rule), tolerance, of_each, driver)
    try:
        fault = fault or (None if pairs else Fault(Reason.NOTHING_COMPARED, _NOTHING))
        _require_right(case, [], _answer(case, [pair.output for pair in pairs], fault), driver)
        nan = [each.output.name for each in pairs if each.dtype.is_inexact and np.isnan(widen(each.wanted)).any()]
        if nan and not equal_nan and (rule == "close" or case.tolerances):
            fault = Fault(Reason.NAN, f"{nan[0]} has NaN, as expected", details={"waive": "equal_nan=True"})
            _require_right(case, [], _answer(case, (), fault), driver)
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


class _Tensor(NamedTuple):
    """A tensor that was handed over; ``extent`` is the device and the first and the last address that it has there."""

    name: str
    array: Any
    device: str = "cpu"
    extent: tuple[int, int] = (0, 0)
    is_copy: bool = False


def _tensor(name: str, value: Any) -> _Tensor:
    """A tensor as an array; what is none is kept as it is."""
    if callable(value):
        called = getattr(value, "__name__", type(value).__name__)
        raise UsageError(f"{name} is {called} itself, but should be a result of it; call it: {called}(x)")
    try:
        array = to_array(value)
    except (KeyError, TypeError, ValueError, BufferError, RuntimeError) as error:
        raise UsageError(f"{name} is a {type(value).__name__} that cannot be read: {error}") from None
    if type(array) not in PLAIN_ARRAYS and not isinstance(array, np.generic):
        return _Tensor(name, array)  # the comparison reports the fault with it
    array = np.asarray(array)
    address = start = array.__array_interface__["data"][0]
    strides = list(array.strides)
    device = str(getattr(value, "device", "cpu"))
    if library_of(value) == "torch":
        address, strides = value.data_ptr(), [step * value.element_size() for step in value.stride()]
    elif device.lower().startswith("cpu"):
        device = "cpu"  # as JAX writes it: TFRT_CPU_0
    if not array.size:
        return _Tensor(name, array, device)
    reach = [(size - 1) * step for size, step in zip(array.shape, strides, strict=True)]
    low, high = sum(min(each, 0) for each in reach), sum(max(each, 0) for each in reach)
    return _Tensor(name, array, device, (address + low, address + high + array.itemsize), is_copy=address != start)


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
    if type(tensor.array) not in PLAIN_ARRAYS:
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
            is_known = not output.is_copy and not other.is_copy  # else the arrays are copies elsewhere
            is_apart = is_known and not np.shares_memory(output.array, other.array)  # as two columns do
            if output.device == other.device and first < last and not is_apart:
                raise UsageError(
                    f"{output.name} shares memory with {other.name}, which may hold what the kernel wrote\n"
                    "  hand over a copy from before the call: x.clone(), x.copy()"
                )


class _Pair(NamedTuple):
    """An output with its expected value and dtype, and the rtol and atol that torch has for it, 0 if there are none.

    ``is_exact`` outputs have to be equal, whatever the tolerance: indices, bool, None, infinity.
    """

    output: _Tensor
    wanted: Array
    dtype: DType
    close: tuple[float, float] = (0.0, 0.0)
    is_exact: bool = False


_NUMBERS = (bool, int, float, complex, np.bool_, np.number)
_ATTRIBUTES = {
    "allow_subclasses": ("type", Reason.DTYPE),
    "check_device": ("device", Reason.WRONG_DEVICE),
    "check_dtype": ("dtype", Reason.DTYPE),
    "check_layout": ("layout", Reason.SHAPE),
    "check_stride": ("stride", Reason.SHAPE),
    "shape": ("shape", Reason.SHAPE),
    "quantisation": ("quantisation", Reason.DTYPE),
}
"""Word and reason of each attribute that is compared in addition to values, by the parameter that disables it."""


def _pairs(name: str, actual: Any, expected: Any, checks: Mapping[str, bool]) -> Iterator[_Pair]:
    """Yield pairs of outputs and expected values, named by index or key: ``output1[0]``, ``weights['a']``.

    Raises:
        Fault: for lengths, keys, types or attributes of tensors that differ and are checked.
        UsageError: for an expected value that cannot be compared, or that shares memory with the actual one.
    """
    both, label = (actual, expected), name or "actual"
    if all(getattr(each, "is_nested", False) for each in both):
        both = actual, expected = actual.unbind(), expected.unbind()
    if all(isinstance(each, Sequence) and not isinstance(each, str) for each in both):
        both = actual, expected = dict(enumerate(actual)), dict(enumerate(expected))
    if all(isinstance(each, Mapping) for each in both):
        if actual.keys() != expected.keys():
            missing = [repr(key) for key in expected if key not in actual]
            reason = Reason.MISSING_OUTPUT if missing else Reason.EXTRA_OUTPUT
            lack = f", {missing[0]} too" if missing else ""
            raise Fault(reason, f"{label} has {len(actual)} elements, but should have {len(expected)}{lack}")
        for key, value in expected.items():
            place = f"{name}[{key!r}]" if name else key if isinstance(key, str) else f"output{key}"
            yield from _pairs(place, actual[key], value, checks)
    elif actual is None or expected is None:
        if actual is not expected:
            reason = Reason.MISSING_OUTPUT if actual is None else Reason.EXTRA_OUTPUT
            raise Fault(reason, f"{label} is {actual!r:.60}, but should be {expected!r:.60}")
        yield _Pair(_Tensor(label, np.asarray(True)), np.asarray(True), dtype("bool"), is_exact=True)
    else:
        yield from _pairs_of_values(label, actual, expected, checks)


def _pairs_of_values(name: str, actual: Any, expected: Any, checks: Mapping[str, bool]) -> Iterator[_Pair]:
    """Yield the dense parts of two tensors, or two numbers as Python has them, in 64 bits."""
    both: tuple[Any, ...] = (actual, expected)
    attributes: list[dict[str, Any]] = [{"allow_subclasses": type(each).__name__} for each in both]
    parts: list[dict[str, Any]] = [{"": each} for each in both]
    if all(isinstance(each, _NUMBERS) for each in both):
        numbers = [each.item() if isinstance(each, np.generic) else each for each in both]
        attributes = [{"check_dtype": type(each).__name__} for each in numbers]
        if all(isinstance(each, int) for each in numbers) and max(map(abs, numbers)) >= 2**63:
            numbers = [float(numbers[0] - numbers[1]), 0.0]  # no dtype holds them
        parts = [{"": np.asarray(each)} for each in numbers]
    elif all(any(f"{cls.__module__}.{cls.__name__}" == "torch.Tensor" for cls in type(each).__mro__) for each in both):
        if actual.layout != expected.layout and not checks["check_layout"]:
            both = tuple(each if str(each.layout) == "torch.strided" else each.to_dense() for each in both)
        for index, each in enumerate(both):
            further, parts[index] = load_object("optest.torch.tensors:attributes_and_parts")(each)
            attributes[index] |= further
    elif library_of(actual) == library_of(expected):
        for entry, each in zip(attributes, both, strict=True):
            entry |= {"check_device": str(getattr(each, "device", "")), "check_stride": getattr(each, "strides", None)}
    for option, (word, reason) in _ATTRIBUTES.items():
        got, required = (each.get(option) for each in attributes)
        if got != required and None not in (got, required) and checks.get(option, True):
            details = {"waive": f"{option}={option == 'allow_subclasses'}"} if option in checks else {}
            raise Fault(reason, f"{name}: the {word} is {got}, but should be {required}", details=details)
    for suffix in [each for each in parts[1] if each in parts[0]]:
        output, wanted = _tensor(name + suffix, parts[0][suffix]), _tensor("expected", parts[1][suffix])
        _require_tensor(wanted)
        _require_own_memory([output], [wanted])
        if not isinstance(output.array, np.ndarray) or not is_known(output.array.dtype):
            yield _Pair(output, wanted.array, dtype_of(wanted.array.dtype))  # the comparison reports the fault
            continue
        array, kind, given = wanted.array, dtype_of(wanted.array.dtype), dtype_of(output.array.dtype)
        kinds = [str(each.get("kind") or name) for each, name in zip(attributes, (given, kind), strict=True)]
        if given != kind and not checks["check_dtype"]:
            wide = [widen(each) for each in (output.array, array)]
            common = np.result_type(*wide) if {each.dtype.kind for each in wide} & {*"fc"} else np.dtype(np.int64)
            array, kind = wide[1].astype(common), dtype_of(common)
            output = output._replace(array=wide[0].astype(common))
        elif given != kind and given.is_inexact and given.kind is kind.kind and given.precision < kind.precision:
            array, kind, kinds = widen(array), given, kinds[:1]
        rtol, atol = map(max, zip(*(close_tolerance(each) or (0.0, 0.0) for each in kinds), strict=True))
        is_endless = not array.ndim and not np.isfinite(widen(array))
        is_exact = is_endless or kind.name == "bool" or suffix not in ("", ".values")
        yield _Pair(output, array, kind, (rtol, atol), is_exact)


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
        self.rules: list[Rule | None] = []

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
    pairs: Sequence[_Pair],
    rule: Rule,
    tolerance: Mapping[str, Any] | None,
    of_each: Mapping[str, float] | None,
    driver: _Made,
) -> TestCase:
    """Build the case; store the expected values, and rules for single outputs, in ``driver``.

    ``tolerance`` applies as in a plan; ``of_each`` applies to all outputs that are not exact, integers too.
    """
    driver.wanted, driver.rules = [pair.wanted for pair in pairs], []
    for pair in pairs:
        is_default = rule == _RULES["close"] and tolerance is of_each is None
        own = replace(rule, close=pair.close) if is_default and pair.close != close_tolerance(pair.dtype) else None
        driver.rules.append(_RULES["exact"] if pair.is_exact or (own is not None and not any(pair.close)) else own)
    layers = []
    try:
        if tolerance is not None:
            layers = [ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance.from_mapping(tolerance))]
        elif of_each is not None:
            stated, places = Tolerance.from_mapping(of_each), [n for n, pair in enumerate(pairs) if not pair.is_exact]
            layers = [ToleranceLayer(layer=Layer.CASE, tolerance=stated, output=f"output{n}") for n in places]
    except UnknownName as error:
        raise error.with_traceback(None) from None
    names = tuple(pair.output.name for pair in pairs)
    return TestCase(
        descriptor=OperatorDescriptor(name="assert_close", signature=Signature(inputs=(), outputs=names), rule=rule),
        inputs=(),
        outputs=tuple(TensorSpec(dtype=pair.dtype, shape=pair.wanted.shape) for pair in pairs),
        backend=driver.target(),
        tolerances=tuple(layers),
    )


def _require_right(case: TestCase, inputs: Sequence[Array], answer: BackendAnswer, driver: _Made) -> None:
    """Judge as a run does.

    Raises:
        AssertionError: with the failure block.
        UsageError: for what is no fault of who made the outputs.
    """
    try:
        expected, notes = expected_outputs([case], inputs, None, driver)
        if driver.rules:
            expected = [replace(each, rule=rule) for each, rule in zip(expected, driver.rules, strict=True)]
        comparison = Comparison(case, driver, inputs, answer.outputs, expected, Clock(None))
        verdict = verdict_of(comparison, answer._replace(checks=notes))
    except Fault as fault:
        raise UsageError(f"{case.descriptor.name}: {fault.message}") from None
    if verdict.status is Status.PASSED and not any(each.compared for each in verdict.measures):
        reason = Reason.NOTHING_COMPARED
        verdict = replace(verdict, status=Status.FAILED, reason=reason, evidence=None, message=_NOTHING)
    result = result_of(case, verdict)
    if driver.wanted is not None:
        kinds = [f"{each.dtype}[{format_shape(each.shape)}]" for each in case.outputs]
        kinds = kinds if len(kinds) <= _SHOWN else [*kinds[: _SHOWN - 1], f"{len(kinds) - _SHOWN + 1} more"]
        result = replace(result, id=f"assert_close({', '.join(kinds)})", reference="expected")
    text = "\n".join(explain(result))
    if verdict.reason is Reason.INTERNAL:
        raise InternalError(text)
    if verdict.reason in _OF_THE_CALLER or verdict.status is Status.UNCHECKED:
        raise UsageError(f"{case.descriptor.name}: {verdict.message}")
    if verdict.status in BAD_STATUSES:
        raise AssertionError(text)


def _answer(case: TestCase, outputs: Sequence[_Tensor], fault: Fault | None = None) -> BackendAnswer:
    """Return the outputs in the operator's order, or a fault that is known before values are compared."""
    if fault is not None:
        return BackendAnswer((), (), fault, further=())
    is_named = any(each.name != "actual" and not each.name.startswith("output") for each in outputs)
    values = [each.array for each in outputs]
    try:
        arrays = in_order(case, {each.name: each.array for each in outputs} if is_named else values)
    except Fault as fault:
        return BackendAnswer((), (), fault, further=())
    return BackendAnswer(arrays, (), further=())
