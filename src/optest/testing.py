"""Assertions for user-defined tests: compare the outputs of a kernel by the rules of ``optest run``.

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
from optest.core.actual import PLAIN_ARRAYS, BackendResult, outputs_in_order
from optest.core.comparison import Comparison
from optest.core.expected import expected_outputs
from optest.core.extensions import load_extensions
from optest.core.phases import Clock
from optest.core.results import result_of
from optest.core.verdicts import verdict_of
from optest.errors import InternalError, PlanError, UnknownName, UsageError
from optest.numerics import Array, dtype_of, is_known, widen
from optest.operators import operators
from optest.plan.layers import PlanHost
from optest.plan.make_case import build_case
from optest.plan.values import GeneratorChoice, Layout, Misfit, read_tolerances
from optest.registry import load_object
from optest.reporting.explain import explain
from optest.spec import (
    BAD_STATUSES,
    BackendTarget,
    DType,
    Fault,
    Fill,
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

# pytest hides the frames of this module and shows the line of the test.
__tracebackhide__ = True
# Reasons that are the test's fault, not the kernel's.
_OF_THE_CALLER = frozenset({Reason.BAD_CASE, Reason.REFERENCE_FAILED})
_NOTHING = "no output has an element; if that is intended, assert shape and dtype"
# Largest number of outputs in the first line of a failure.
_SHOWN = 4
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
    """Require that ``actual`` is the output of the operator ``op`` for ``inputs``, within the operator's rule.

    ``actual`` is a tensor, or a list or a mapping of all outputs. ``inputs`` are a list in the operator's order, with
    None for an omitted optional input, or a mapping by name; they hold the values from before the call. Pass attributes
    as keywords, or in ``attributes`` if a parameter has the same name; missing ones have the operator's defaults.

    ``tolerance`` replaces the rule, as ``{"rtol": 1e-3, "atol": 0}`` in a plan does. ``numerics`` declares how the
    kernel computes if it does not use the arithmetic of the dtypes: ``Numerics(operands="tf32")``. Outputs on a CPU,
    such as NumPy arrays, have to meet the tighter bounds of a CPU unless ``Numerics(processor="accelerator")`` is
    passed.

    Raises:
        AssertionError: with the failure block that ``optest run`` prints; also for an inconclusive pass (SUSPECT), such
            as results that are all NaN, and if no output has an element (NOTHING_COMPARED).
        UsageError: for an operator, attribute, input or tolerance that does not fit, and for an output that shares
            memory with an input, because the input's values from before the call are then unknown.
    """
    tensors = _input_tensors(inputs)
    outputs = _output_tensors(actual)
    _require_separate_memory(outputs, tensors)
    driver = _FinishedDriver(outputs, numerics)
    case = _build_case(op, tensors, {**(attributes or {}), **named}, tolerance, driver)
    arrays = [tensors[argument.fill.parameters["place"]].array for argument in case.inputs]
    _require_right(case, arrays, _order_outputs(case, outputs), driver)


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
    """Require that ``actual`` is ``expected`` within a rule; a stricter replacement of ``torch.testing.assert_close``.

    Both are tensors of any layout, numbers, None, or sequences and mappings of these. The parameters mean the same as
    in torch's function, and the default tolerances by dtype are the same. The differences:

    - An inconclusive comparison (SUSPECT) fails: if zeros, or the mean of the expected values, would also meet the
      tolerance (torch's own default tolerance is reduced instead), or if ``expected`` is NaN or infinite everywhere.
    - Tensors without values to compare (empty or ``meta``) fail, and shared memory is rejected.
    - ``expected`` may have a wider dtype than ``actual``, such as float64, and belong to another library.
    - ``rtol`` or ``atol`` defaults to 0 if the other is passed, float8 accepts both, and nested tensors are compared
      one by one.

    ``rule`` is ``close``, ``exact`` (equal values), ``movement`` (equal bits), or a rule such as
    ``Rule(kind=RuleClass.ULP, ulp=4)``, in ulp of the arithmetic, which is float32 for 16-bit results; except
    for ``close``, NaN equals NaN. ``tolerance`` and ``numerics`` are those of :func:`assert_right`.

    Raises:
        AssertionError: as :func:`assert_right` does; ``msg`` replaces its text, or is called with it.
        UsageError: for a rule that needs the terms of an operator, an ``expected`` that shares memory with ``actual``,
            and values that cannot be compared.
    """
    flags = (not allow_subclasses, check_device, check_dtype, check_layout, check_stride)
    checks = dict(zip(_ATTRIBUTES, flags, strict=False))
    bounds = None if rtol is atol is None else {"rtol": rtol or 0.0, "atol": atol or 0.0}
    if bounds is not None and tolerance is not None:
        raise UsageError("rtol and atol are a tolerance; set only one of them")
    try:
        pairs, fault = [*_pairs("", actual, expected, checks)], None
    except Fault as error:
        pairs, fault = [], error
    driver = _FinishedDriver([pair.output for pair in pairs], numerics)
    case = _build_pairs_case(pairs, _resolve_rule(rule), tolerance, bounds, driver)
    try:
        fault = fault or (None if pairs else Fault(Reason.NOTHING_COMPARED, _NOTHING))
        _require_right(case, [], _order_outputs(case, [pair.output for pair in pairs], fault), driver)
        # The comparison itself takes NaN for equal to NaN.
        nan = [pair.output.name for pair in pairs if pair.dtype.is_inexact and np.isnan(widen(pair.wanted)).any()]
        if nan and not equal_nan and (rule == "close" or case.tolerances):
            fault = Fault(Reason.NAN, f"{nan[0]} has NaN, as expected", details={"waive": "equal_nan=True"})
            _require_right(case, [], _order_outputs(case, (), fault), driver)
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


class _Tensor(NamedTuple):
    """A tensor argument as an array; ``extent`` is its first address and the address after its last on ``device``.

    ``is_copy`` is True if ``array`` is a copy of the tensor's memory.
    """

    name: str
    array: Any
    device: str = "cpu"
    extent: tuple[int, int] = (0, 0)
    is_copy: bool = False


def _read_tensor(name: str, value: Any) -> _Tensor:
    """Convert ``value`` to an array with its memory extent; keep a value that is no tensor for the comparison.

    Raises:
        UsageError: for a callable, and for a tensor that cannot be read.
    """
    if callable(value):
        function = getattr(value, "__name__", type(value).__name__)
        raise UsageError(f"{name} is the function {function}, expected its result; call it: {function}(x)")
    try:
        array = to_array(value)
    except (KeyError, TypeError, ValueError, BufferError, RuntimeError) as error:
        raise UsageError(f"{name} is a {type(value).__name__} that cannot be read: {error}") from None
    # The comparison reports what is wrong with it.
    if type(array) not in PLAIN_ARRAYS and not isinstance(array, np.generic):
        return _Tensor(name, array)
    array = np.asarray(array)
    address = start = array.__array_interface__["data"][0]
    strides = list(array.strides)
    device = str(getattr(value, "device", "cpu"))
    if library_of(value) == "torch":
        address, strides = value.data_ptr(), [step * value.element_size() for step in value.stride()]
    elif device.lower().startswith("cpu"):
        # JAX numbers its devices: cpu:0
        device = "cpu"
    if not array.size:
        return _Tensor(name, array, device)
    low = high = 0
    for size, step in zip(array.shape, strides, strict=True):
        low, high = low + min((size - 1) * step, 0), high + max((size - 1) * step, 0)
    return _Tensor(name, array, device, (address + low, address + high + array.itemsize), is_copy=address != start)


def _input_tensors(inputs: Any) -> list[_Tensor]:
    """Return the inputs that are not None, named as in a plan: by key, or ``input0``, ``input1``.

    Raises:
        UsageError: for anything but a list, tuple or mapping of tensors.
    """
    if isinstance(inputs, Mapping):
        named = {str(name): value for name, value in inputs.items()}
    elif isinstance(inputs, (list, tuple)):
        named = {f"input{index}": value for index, value in enumerate(inputs)}
    else:
        raise UsageError(f"inputs is a {type(inputs).__name__}, expected a list or a mapping of tensors: inputs=[x]")
    tensors = [_read_tensor(name, value) for name, value in named.items() if value is not None]
    for tensor in tensors:
        _require_tensor(tensor)
    return tensors


def _require_tensor(tensor: _Tensor) -> None:
    """Raise UsageError unless the argument is a tensor with a dtype that optest knows."""
    if type(tensor.array) not in PLAIN_ARRAYS:
        raise UsageError(f"{tensor.name} is a {type(tensor.array).__name__}, expected a tensor")
    if not is_known(tensor.array.dtype):
        raise UsageError(f"{tensor.name} has elements of type {tensor.array.dtype}, which no operator takes")


def _output_tensors(values: Any) -> list[_Tensor]:
    """Return the outputs, named by key, by index (``output0``), or ``actual`` if there is only one."""
    if isinstance(values, Mapping):
        return [_read_tensor(str(key), value) for key, value in values.items()]
    if isinstance(values, (list, tuple)):
        return [_read_tensor(f"output{index}", value) for index, value in enumerate(values)]
    return [_read_tensor("actual", values)]


def _require_separate_memory(outputs: Sequence[_Tensor], tensors: Sequence[_Tensor]) -> None:
    """Raise UsageError if an output shares memory with one of ``tensors``; overlapping extents count if in doubt."""
    for output in outputs:
        for tensor in tensors:
            first, last = max(output.extent[0], tensor.extent[0]), min(output.extent[1], tensor.extent[1])
            # Copies say nothing of the original memory.
            are_originals = not output.is_copy and not tensor.is_copy
            # Extents overlap without a shared element, for example in two columns of one matrix.
            is_separate = are_originals and not np.shares_memory(output.array, tensor.array)
            if output.device == tensor.device and first < last and not is_separate:
                raise UsageError(
                    f"{output.name} shares memory with {tensor.name}, so the kernel may have overwritten it\n"
                    "  pass a copy from before the call: x.clone(), x.copy()"
                )


class _Pair(NamedTuple):
    """An output with its expected value and dtype; ``close`` are torch's rtol and atol for it, 0 if torch has none.

    An ``is_exact`` output has to be equal regardless of the tolerance: indices, bool, None, infinity.
    """

    output: _Tensor
    wanted: Array
    dtype: DType
    close: tuple[float, float] = (0.0, 0.0)
    is_exact: bool = False


_NUMBERS = (bool, int, float, complex, np.bool_, np.number)
# Word and reason of each attribute that is compared in addition to values, by the parameter that controls it. The first
# five are parameters of assert_close, in the order in which it zips them; the others are always compared.
_ATTRIBUTES = {
    "allow_subclasses": ("type", Reason.DTYPE),
    "check_device": ("device", Reason.WRONG_DEVICE),
    "check_dtype": ("dtype", Reason.DTYPE),
    "check_layout": ("layout", Reason.SHAPE),
    "check_stride": ("stride", Reason.SHAPE),
    "shape": ("shape", Reason.SHAPE),
    "quantisation": ("quantisation", Reason.DTYPE),
}


def _pairs(name: str, actual: Any, expected: Any, checks: Mapping[str, bool]) -> Iterator[_Pair]:
    """Yield pairs of outputs and expected values, named by index or key: ``output1[0]``, ``weights['a']``.

    Raises:
        Fault: for lengths, keys, types or attributes of tensors that differ and are checked.
        UsageError: for an expected value that cannot be compared, or that shares memory with the actual one.
    """
    both, label = (actual, expected), name or "actual"
    if all(getattr(x, "is_nested", False) for x in both):
        both = actual, expected = actual.unbind(), expected.unbind()
    if all(isinstance(x, Sequence) and not isinstance(x, str) for x in both):
        both = actual, expected = dict(enumerate(actual)), dict(enumerate(expected))
    if all(isinstance(x, Mapping) for x in both):
        if actual.keys() != expected.keys():
            missing = [repr(key) for key in expected if key not in actual]
            reason = Reason.MISSING_OUTPUT if missing else Reason.EXTRA_OUTPUT
            lack = f"; {missing[0]} is missing" if missing else ""
            raise Fault(reason, f"{label} has {len(actual)} elements, expected {len(expected)}{lack}")
        for key, value in expected.items():
            path = f"{name}[{key!r}]" if name else key if isinstance(key, str) else f"output{key}"
            yield from _pairs(path, actual[key], value, checks)
    elif actual is None or expected is None:
        if actual is not expected:
            reason = Reason.MISSING_OUTPUT if actual is None else Reason.EXTRA_OUTPUT
            raise Fault(reason, f"{label} is {actual!r:.60}, expected {expected!r:.60}")
        yield _Pair(_Tensor(label, np.asarray(True)), np.asarray(True), dtype("bool"), is_exact=True)
    else:
        attributes, parts = _attributes_and_parts(actual, expected, checks)
        for option, (word, reason) in _ATTRIBUTES.items():
            got, required = (x.get(option) for x in attributes)
            if got != required and None not in (got, required) and checks.get(option, True):
                details = {"waive": f"{option}={option == 'allow_subclasses'}"} if option in checks else {}
                raise Fault(reason, f"{label}: the {word} is {got}, expected {required}", details=details)
        kinds = [x.get("kind") for x in attributes]
        for suffix in [key for key in parts[1] if key in parts[0]]:
            output, wanted = _read_tensor(label + suffix, parts[0][suffix]), _read_tensor("expected", parts[1][suffix])
            _require_tensor(wanted)
            _require_separate_memory([output], [wanted])
            yield _pair_arrays(output, wanted.array, kinds, suffix, has_one_dtype=checks["check_dtype"])


def _attributes_and_parts(
    actual: Any, expected: Any, checks: Mapping[str, bool]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return attributes to compare and dense parts by suffix (``""``, ``.values``) of two tensors or two numbers.

    Numbers become 0-d arrays of 64 bits. If the layout is not checked, a sparse tensor is converted to a dense one.
    """
    both: tuple[Any, ...] = (actual, expected)
    attributes: list[dict[str, Any]] = [{"allow_subclasses": type(x).__name__} for x in both]
    parts: list[dict[str, Any]] = [{"": x} for x in both]
    if all(isinstance(x, _NUMBERS) for x in both):
        numbers = [x.item() if isinstance(x, np.generic) else x for x in both]
        attributes = [{"check_dtype": type(x).__name__} for x in numbers]
        # No dtype holds larger integers: compare their difference with 0.
        if all(isinstance(x, int) for x in numbers) and max(map(abs, numbers)) >= 2**63:
            numbers = [float(numbers[0] - numbers[1]), 0.0]
        parts = [{"": np.asarray(x)} for x in numbers]
    elif all(any(f"{cls.__module__}.{cls.__name__}" == "torch.Tensor" for cls in type(x).__mro__) for x in both):
        if actual.layout != expected.layout and not checks["check_layout"]:
            both = tuple(x if str(x.layout) == "torch.strided" else x.to_dense() for x in both)
        for index, tensor in enumerate(both):
            tensor_attributes, parts[index] = load_object("optest.torch.tensors:attributes_and_parts")(tensor)
            attributes[index] |= tensor_attributes
    elif library_of(actual) == library_of(expected):
        for entry, x in zip(attributes, both, strict=True):
            entry |= {"check_device": str(getattr(x, "device", "")), "check_stride": getattr(x, "strides", None)}
    return attributes, parts


def _pair_arrays(
    output: _Tensor, array: Array, kinds: Sequence[str | None], suffix: str, *, has_one_dtype: bool
) -> _Pair:
    """Pair an output with its expected array in a common dtype, with torch's tolerance for the dtypes.

    ``kinds`` are the dtypes under which torch looks up the tolerance, None for that of the array. Without
    ``has_one_dtype`` both arrays are converted to a common dtype; else a wider expected float keeps its values, and
    the output's dtype counts.
    """
    kind = dtype_of(array.dtype)
    if not isinstance(output.array, np.ndarray) or not is_known(output.array.dtype):
        # The comparison reports what is wrong with the output.
        return _Pair(output, array, kind)
    actual_kind = dtype_of(output.array.dtype)
    names = [str(name or default) for name, default in zip(kinds, (actual_kind, kind), strict=True)]
    if actual_kind != kind and not has_one_dtype:
        wide = [widen(x) for x in (output.array, array)]
        common = np.result_type(*wide) if {x.dtype.kind for x in wide} & {*"fc"} else np.dtype(np.int64)
        array, kind = wide[1].astype(common), dtype_of(common)
        output = output._replace(array=wide[0].astype(common))
    elif actual_kind.is_inexact and actual_kind.kind is kind.kind and actual_kind.precision < kind.precision:
        array, kind, names = widen(array), actual_kind, names[:1]
    rtol, atol = map(max, zip(*(close_tolerance(name) or (0.0, 0.0) for name in names), strict=True))
    is_nonfinite = not array.ndim and not np.isfinite(widen(array))
    is_exact = is_nonfinite or kind.name == "bool" or suffix not in ("", ".values")
    return _Pair(output, array, kind, (rtol, atol), is_exact)


class _FinishedDriver(BackendDriver):
    """Driver in place of the code that computed the outputs; ``wanted`` are the expected outputs, if passed."""

    name = "actual"
    isolated = False

    def __init__(self, outputs: Sequence[_Tensor], numerics: Numerics | None) -> None:
        if not isinstance(numerics, (Numerics, type(None))):
            raise UsageError(f"numerics is {numerics!r}, expected a Numerics such as Numerics(operands='tf32')")
        if numerics is not None and (wrong := wrong_numerics(asdict(numerics))):
            raise UsageError(wrong)
        devices = [output.device for output in outputs if output.device != "cpu"]
        self._device = devices[0] if devices else None
        self.kind = "gpu" if devices else "cpu"
        self.numerics = numerics or Numerics()
        self.wanted: list[Array] | None = None
        self.rules: list[Rule | None] = []

    def device(self) -> str | None:
        return self._device

    def golden(self, case: TestCase) -> list[Array] | None:  # noqa: ARG002 - part of the protocol
        return self.wanted

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:  # noqa: ARG002 - the outputs exist
        return None

    def target(self) -> BackendTarget:
        return BackendTarget(name=self.name, kind=self.kind, device=self._device)


def _build_case(
    op: str,
    inputs: Sequence[_Tensor],
    attributes: Mapping[str, Any],
    tolerance: Mapping[str, Any] | None,
    driver: _FinishedDriver,
) -> TestCase:
    """Build the case of ``op``; the fill of each argument holds its index in ``inputs`` as ``place``.

    Raises:
        UsageError: with all faults of operator, inputs, attributes and tolerance.
    """
    if not isinstance(op, str):
        raise UsageError(f"op is {op!r}, expected the name of an operator: 'softmax'")
    # The user's extensions may define it.
    if op not in operators and operators.spelling(op) is None:
        load_extensions()
    try:
        operator = operators.spelling(op) or operators.get(op)
    except UnknownName as error:
        raise error.with_traceback(None) from None
    if isinstance(operator, OperatorDescriptor) and operator.reference is None:
        raise UsageError(f"{op} has no reference to compute expected outputs; pass them to assert_close instead")
    known = [parameter.name for parameter in operator.tensors.inputs]
    if len(inputs) > len(known) and not operator.tensors.is_variadic:
        raise UsageError(f"{op} has {len(inputs)} inputs, expected at most {len(known)}: {', '.join(known)}")
    fills = {x.name: Fill(kind="argument", parameters={"place": index}) for index, x in enumerate(inputs)}
    entry: dict[str, Any] = {
        "op": op,
        "shapes": {x.name: _layout_of(x.array) for x in inputs},
        "dtypes": {x.name: dtype_of(x.array.dtype) for x in inputs},
        "generator": GeneratorChoice(by_tensor=fills),
        "attributes": {name: _plan_value(value) for name, value in attributes.items()},
    }
    host = PlanHost(operators=operators, target=driver.target(), check_fill=lambda _: None)
    try:
        if tolerance:
            entry["tolerance"] = read_tolerances(tolerance)
        return build_case(entry, host)
    except PlanError as error:
        problems = [(x.message, x.hint) for x in error.problems]
    except Misfit as error:
        problems = [(x.message, x.hint) for x in error.all_below()]
    lines = ["\n  ".join(filter(None, (f"{op}: {message}", hint))) for message, hint in problems]
    raise UsageError("\n".join(dict.fromkeys(lines)))


def _layout_of(array: Array) -> Layout:
    """Return the shape; for an array that is not row-major, with its strides and offset in elements.

    Strides that are no multiple of the element size are left out, as no case can have them.
    """
    if array.flags.c_contiguous or any(step % array.itemsize for step in array.strides):
        return Layout(array.shape)
    steps = tuple(step // array.itemsize for step in array.strides)
    offset = sum((size - 1) * -step for size, step in zip(array.shape, steps, strict=True) if step < 0 < size)
    return Layout(array.shape, steps, offset)


def _plan_value(value: Any) -> Any:
    """Convert an attribute to its form in a plan: dtypes to names, sequences to lists, NumPy scalars to numbers."""
    if library_of(value) == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value).name
    if isinstance(value, (list, tuple)):
        return [_plan_value(element) for element in value]
    return value.item() if isinstance(value, np.generic) else value


def _resolve_rule(rule: str | Rule) -> Rule:
    """Return the rule of a name, or a :class:`Rule` unchanged.

    Raises:
        UsageError: for a rule that needs the terms of an operator.
        UnknownName: for an unknown name.
    """
    if isinstance(rule, Rule):
        if rule.kind in (RuleClass.ACCUMULATE, RuleClass.COMPOSED):
            raise UsageError(f"rule {rule.kind.value} needs the terms of an operator; use assert_right")
        return rule
    if rule not in _RULES:
        raise UnknownName("rule", rule, _RULES)
    return _RULES[rule]


def _build_pairs_case(
    pairs: Sequence[_Pair],
    rule: Rule,
    tolerance: Mapping[str, Any] | None,
    bounds: Mapping[str, float] | None,
    driver: _FinishedDriver,
) -> TestCase:
    """Build a case without inputs; store the expected values, and rules for single outputs, in ``driver``.

    ``tolerance`` applies as in a plan; ``bounds`` (rtol, atol) apply to all outputs that are not exact, integers too.
    """
    driver.wanted, driver.rules = [pair.wanted for pair in pairs], []
    for pair in pairs:
        is_default = rule == _RULES["close"] and tolerance is bounds is None
        pair_rule = (
            replace(rule, close=pair.close) if is_default and pair.close != close_tolerance(pair.dtype) else None
        )
        is_exact = pair.is_exact or (pair_rule is not None and not any(pair.close))
        driver.rules.append(_RULES["exact"] if is_exact else pair_rule)
    layers = []
    try:
        if tolerance is not None:
            layers = [ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance.from_mapping(tolerance))]
        elif bounds is not None:
            layers = [
                ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance.from_mapping(bounds), output=f"output{index}")
                for index, pair in enumerate(pairs)
                if not pair.is_exact
            ]
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


def _require_right(case: TestCase, inputs: Sequence[Array], answer: BackendResult, driver: _FinishedDriver) -> None:
    """Compare ``answer`` with the expected outputs as a run does.

    Raises:
        AssertionError: with the failure block, for a bad status or if no element was compared.
        UsageError: if the case or its reference is at fault, or the outputs cannot be checked.
        InternalError: if optest itself fails.
    """
    try:
        expected, notes = expected_outputs([case], inputs, None, driver)
        if driver.rules:
            expected = [replace(output, rule=rule) for output, rule in zip(expected, driver.rules, strict=True)]
        comparison = Comparison(case, driver, inputs, answer.outputs, expected, Clock(None))
        verdict = verdict_of(comparison, answer._replace(checks=notes))
    except Fault as fault:
        raise UsageError(f"{case.descriptor.name}: {fault.message}") from None
    if verdict.status is Status.PASSED and not any(measure.compared for measure in verdict.measures):
        reason = Reason.NOTHING_COMPARED
        verdict = replace(verdict, status=Status.FAILED, reason=reason, evidence=None, message=_NOTHING)
    if verdict.reason in _OF_THE_CALLER or verdict.status is Status.UNCHECKED:
        raise UsageError(f"{case.descriptor.name}: {verdict.message}")
    if verdict.status not in BAD_STATUSES:
        return
    result = result_of(case, verdict)
    if driver.wanted is not None:
        words = [f"{spec.dtype}[{format_shape(spec.shape)}]" for spec in case.outputs]
        words = words if len(words) <= _SHOWN else [*words[: _SHOWN - 1], f"{len(words) - _SHOWN + 1} more"]
        result = replace(result, id=f"assert_close({', '.join(words)})", reference="expected")
    text = "\n".join(explain(result))
    raise InternalError(text) if verdict.reason is Reason.INTERNAL else AssertionError(text)


def _order_outputs(case: TestCase, outputs: Sequence[_Tensor], fault: Fault | None = None) -> BackendResult:
    """Return the outputs in the operator's order; or ``fault``, or the fault of missing and extra outputs."""
    if fault is not None:
        return BackendResult((), (), fault, further=())
    is_named = any(output.name != "actual" and not output.name.startswith("output") for output in outputs)
    arrays = {output.name: output.array for output in outputs} if is_named else [output.array for output in outputs]
    try:
        arrays = outputs_in_order(case, arrays)
    except Fault as fault:
        return BackendResult((), (), fault, further=())
    return BackendResult(arrays, (), further=())
