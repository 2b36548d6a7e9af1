"""What the outputs should be: a golden file, the generator's own, or the reference's, with their error terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import KeepsGolden
from optest.compare import Expected
from optest.core.border import Border
from optest.numerics import ErrorStateKept, dtype_of, numpy_dtype, private_copy
from optest.registry import load_object
from optest.spec import (
    Check,
    CheckState,
    ErrorBudget,
    Fault,
    NamedOutput,
    Reason,
    ReferenceNote,
    Rule,
    RuleClass,
    TensorSpec,
    Terms,
    TestCase,
    Unrounded,
    undeclared_output_dtype,
)
from optest.spec.construct import constructor

Array = np.ndarray[Any, Any]
_WITH_TERMS = (RuleClass.ULP, RuleClass.ACCUMULATE, RuleClass.COMPOSED)
_REFERENCE_FAILED = Reason.REFERENCE_FAILED
new_expected = constructor(Expected)

BY_BACKEND = Check(name="expected values", state=CheckState.NOTE, detail="kept by the backend, not the reference's")
BY_ITSELF = Check(name="expected values", state=CheckState.NOTE, detail="the operator's own, which is under test")
_BY_GENERATOR = Check(name="expected values", state=CheckState.NOTE, detail="the generator's, not the reference's")


def expected_outputs(
    cases: Sequence[TestCase],
    inputs: Sequence[Array],
    known: Sequence[Any] | None,
    driver: BackendDriver,
    interrupted: Callable[[], bool] | None = None,
) -> tuple[list[Expected], tuple[Check, ...]]:
    """Return the expected outputs in order, none where the case has no reference at all, and a note of who says so.

    A golden file of the backend goes before what the generator knows, and that before the reference. The cases
    share an execution; each may be judged by another rule.

    Raises:
        Fault: REFERENCE_FAILED if the reference raises or contradicts the outputs that the case declares.
    """
    case = cases[0]
    padded = _with_left_out(case, inputs)
    with ErrorStateKept():
        with Border("the reference", _REFERENCE_FAILED, interrupted):
            values, notes = _trusted(case, padded, known, driver)
            if values is None:
                return [], ()
            device, remarks = driver.device(), [each for each in values if isinstance(each, ReferenceNote)]
            values = [each for each in values if not isinstance(each, ReferenceNote)]
            device_notes = tuple(
                BY_ITSELF
                if each.itself_on and device in (None, each.itself_on)
                else Check(name="expected values", state=CheckState.NOTE, detail=each.text)
                for each in remarks
            )
        terms = _terms_if_needed(cases, padded, interrupted)
    placed = _placed(case, _immutable(values), _immutable(terms))
    if case.descriptor.alternatives is not None and _is_definition(case) and not notes:
        # They say what is as right as the operator's own reference, and nothing of what a user's expects.
        placed = _with_alternatives(case, padded, placed, case.descriptor.alternatives)
    return placed, notes + device_notes


def _immutable(value: Any) -> Any:
    """Return the value with its arrays copied into bytes, which NumPy never makes writeable.

    The code under test reaches all objects by ``gc``, and could write its own answer into what it is compared with.
    """
    if isinstance(value, (list, tuple)):
        copies = [_immutable(each) for each in value]
        return value._make(copies) if hasattr(value, "_make") else copies
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:  # Python's integers cannot be written over
        return np.array(value) if isinstance(value, np.ndarray) else value
    return np.ndarray(value.shape, value.dtype, np.asarray(value).tobytes())


def expected_of_other_inputs(
    case: TestCase,
    inputs: Sequence[Array],
    driver: BackendDriver,
    interrupted: Callable[[], bool] | None = None,
) -> list[Expected] | str:
    """The expected outputs for other inputs than the case's; or why nobody knows them, in words: those of the case's
    own alone are known, or the reference fails with these."""
    if case.generator is not None:
        return "the case's generator knows the values alone that it makes"
    try:
        expected, notes = expected_outputs([case], inputs, None, driver, interrupted)
    except Fault as fault:
        return fault.message.partition("\n")[0]
    return "the backend keeps what it expects of the case's own values alone" if BY_BACKEND in notes else expected


def expected_of_outputs(case: TestCase, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[Expected]:
    """The outputs of a first call as what those of further calls should be; floats of an operator without a rule are
    held to the tolerance of close results.

    Raises:
        Fault: MISSING_OUTPUT, EXTRA_OUTPUT, if the operator cannot have so many.
    """
    count, signature = len(outputs), case.descriptor.tensors
    if signature.output_names(count) is None or len(case.outputs or outputs) != count:
        wanted = len(case.outputs or signature.outputs)
        reason = Reason.MISSING_OUTPUT if count < wanted else Reason.EXTRA_OUTPUT
        raise Fault(reason, f"the number of outputs is {count}, but should be {wanted}")
    with ErrorStateKept():
        terms = _terms_if_needed([case], _with_left_out(case, inputs))
    placed = _placed(replace(case, outputs=()), outputs, terms)
    specs = case.outputs or [TensorSpec(dtype=dtype_of(each.dtype), shape=each.shape) for each in outputs]
    rule = None if case.descriptor.rule else _CLOSE
    return [
        replace(each, dtype=spec.dtype, shape=spec.shape, rule=each.rule or (rule if spec.dtype.is_inexact else None))
        for each, spec in zip(placed, specs, strict=True)
    ]


_CLOSE = Rule(kind=RuleClass.CLOSE, source="torch.testing.assert_close")


def require_refused(case: TestCase, inputs: Sequence[Array], interrupted: Callable[[], bool] | None = None) -> None:
    """The reference has to refuse what the case says is refused, where the operator knows how to ask it.

    Raises:
        Fault: NOT_REFUSED or WRONG_ERROR if it does not; REFERENCE_FAILED if it could not be asked.
    """
    hook = case.descriptor.refused
    if hook is None:
        return
    with ErrorStateKept(), Border("the reference", _REFERENCE_FAILED, interrupted):
        function, _ = _hook(hook)
        function([_read_only_copy(each) for each in inputs], dict(case.attributes), case.expects_error)


def may_refuse(case: TestCase, inputs: Sequence[Array]) -> str:
    """Why an exception is as right as an answer to these inputs, "" where it is not.

    Raises:
        Fault: REFERENCE_FAILED if the operator fails to say.
    """
    hook = case.descriptor.may_refuse
    if hook is None or not _is_definition(case):
        return ""
    with ErrorStateKept(), Border("the operator's `may_refuse`", _REFERENCE_FAILED):
        return str(_call_hook(hook, case, _with_left_out(case, inputs)))


def _is_definition(case: TestCase) -> bool:
    """Whether what is expected is the operator as the catalogue defines it, whoever of optest's computes it."""
    return case.reference is None or is_own(case.reference)


def _with_alternatives(
    case: TestCase, inputs: Sequence[Array | None], expected: list[Expected], hook: str | Callable[..., Any]
) -> list[Expected]:
    """Let the operator say which elements of an output are as right as the reference's."""
    structure = [(each.shape, numpy_dtype(each.dtype)) for each in expected]
    latest: tuple[Sequence[Any], Sequence[Any]] | None = None

    def masks(actual: Sequence[Any]) -> Sequence[Any]:
        """Made once for the outputs of a comparison, which asks for one mask after the other."""
        nonlocal latest
        if latest is None or latest[0] is not actual:
            latest = actual, made(actual)
        return latest[1]

    def made(actual: Sequence[Any]) -> Sequence[Any]:
        if [(getattr(each, "shape", None), getattr(each, "dtype", None)) for each in actual] != structure:
            return (None,) * len(expected)
        with ErrorStateKept(), Border("the operator's `alternatives`", _REFERENCE_FAILED):
            alternatives = _sequence(_hook(hook)[0](inputs, dict(case.attributes), actual))
            if len(alternatives) != len(expected):
                raise ValueError(f"`alternatives` yields {len(alternatives)} masks, but should yield {len(expected)}")
        return alternatives

    def mask_of(index: int) -> Callable[[Sequence[Any]], Any]:
        return lambda actual: masks(actual)[index]

    return [replace(each, alternatives=mask_of(index)) for index, each in enumerate(expected)]


def _trusted(
    case: TestCase, inputs: Sequence[Array | None], known: Sequence[Any] | None, driver: BackendDriver
) -> tuple[list[Any] | None, tuple[Check, ...]]:
    values = driver.golden(case) if isinstance(driver, KeepsGolden) else None
    if values is not None:
        return _arrays(values), (BY_BACKEND,)
    if known is not None:
        return _arrays(known), (_BY_GENERATOR,)
    reference = case.reference or case.descriptor.reference
    if reference is None:
        return None, ()
    values = _call_hook(reference, case, inputs)
    if values is None:
        raise Fault(Reason.REFERENCE_FAILED, "the reference yields None, but should yield the outputs")
    return _arrays(values), ()


def _call_hook(hook: str | Callable[..., Any], case: TestCase, inputs: Sequence[Array | None]) -> Any:
    """What a reference or `terms` yields. A foreign one gets copies: a framework's tensor over our memory can write."""
    function, is_own = _hook(hook)
    if not is_own:
        inputs = [None if each is None else _read_only_copy(each) for each in inputs]
    return function(inputs, dict(case.attributes))


def _read_only_copy(array: Array) -> Array:
    copy = private_copy(array)
    copy.setflags(write=False)
    return copy


def _arrays(values: Any) -> list[Any]:
    arrays = [value if isinstance(value, _MORE_THAN_ARRAYS) else np.asarray(value) for value in _sequence(values)]
    for array in arrays:
        if not isinstance(array, _MORE_THAN_ARRAYS):
            dtype_of(array.dtype)  # which refuses what no operator yields
    return arrays


_MORE_THAN_ARRAYS = (Unrounded, NamedOutput, ReferenceNote)


def _with_left_out(case: TestCase, inputs: Sequence[Array]) -> list[Array | None]:
    """The inputs at the places of the operator's signature, None for an optional one that is left out."""
    signature = case.descriptor.tensors
    names = [argument.name for argument in case.inputs]
    if names == [parameter.name for parameter in signature.inputs] and len(names) == len(inputs):
        return list(inputs)
    by_name = dict(zip(names, inputs, strict=True))
    if signature.is_variadic or len(by_name) != len(inputs):
        return list(inputs)
    return [by_name.get(parameter.name) for parameter in signature.inputs]


def _terms_if_needed(
    cases: Sequence[TestCase], inputs: Sequence[Array | None], interrupted: Callable[[], bool] | None = None
) -> Sequence[Any] | None:
    descriptor = cases[0].descriptor
    if descriptor.terms is None or descriptor.rule is None or descriptor.rule.kind not in _WITH_TERMS:
        return None
    if not any(map(_may_be_judged_by_class, cases)):
        return None
    with Border("the operator's `terms`", _REFERENCE_FAILED, interrupted):
        case = cases[0]
        assert case.descriptor.terms is not None
        terms = _sequence(_call_hook(case.descriptor.terms, case, inputs))
        for each in terms:
            if isinstance(each, Terms) and np.min(each.count, initial=0) < 0:
                raise ValueError(f"a count of terms is {np.min(each.count)}, but should be 0 or more")
            if isinstance(each, ErrorBudget) and np.any(np.less(each.worst, 0)):
                raise ValueError(f"an error budget is {np.nanmin(each.worst)}, but should be 0 or more")
        return terms


def _may_be_judged_by_class(case: TestCase) -> bool:
    """False only if a tolerance for every output decides; integer-exact sums ask for terms before they ask for it."""
    stated = [layer for layer in case.tolerances if layer.tolerance.bounds_errors]
    if not stated or (case.descriptor.rule is not None and case.descriptor.rule.stands):
        return True
    exact = any(argument.fill.kind == "integer-exact" for argument in case.inputs)
    return exact or all(layer.output is not None for layer in stated)


@lru_cache(maxsize=256)
def _loaded(path: str) -> tuple[Callable[..., Any], bool]:
    hook = load_object(path)
    if not callable(hook):
        raise Fault(Reason.BAD_CASE, f"{path} is {type(hook).__name__}, but should be a function")
    return hook, is_own(path)


def _hook(hook: str | Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """The function, and whether it is optest's own."""
    return _loaded(hook) if isinstance(hook, str) else (hook, False)


def is_own(hook: object) -> bool:
    """Whether a reference, or another hook, is optest's own: those are stated by their import paths."""
    return isinstance(hook, str) and hook.startswith("optest.")


def _sequence(returned: Any) -> Sequence[Any]:
    """One value, or several; a NamedTuple of terms is one."""
    if isinstance(returned, (tuple, list)) and not hasattr(returned, "_fields"):
        return returned
    return (returned,)


def _placed(case: TestCase, values: Sequence[Any], terms: Sequence[Any] | None) -> list[Expected]:
    """The outputs that the signature names, then those with a name of their own."""
    named = [each for each in values if isinstance(each, NamedOutput)]
    outputs = [each for each in values if not isinstance(each, NamedOutput)]
    names = case.descriptor.tensors.output_names(len(case.outputs) or len(outputs))
    if names is None or len(outputs) != len(names):
        count = len(case.outputs) or len(case.descriptor.tensors.outputs)
        raise Fault(
            Reason.REFERENCE_FAILED,
            f"the reference yields {len(outputs)} outputs, but {case.descriptor.name} has {count}",
        )
    if terms is not None and len(terms) == 1 and isinstance(terms[0], Rule):
        terms = [terms[0]] * len(names)  # the operator's rule, and its terms, do not hold for this call
    if terms is not None and len(terms) != len(names):
        raise Fault(Reason.REFERENCE_FAILED, f"`terms` yields {len(terms)} entries, but should yield {len(names)}")
    declared: Sequence[TensorSpec | None] = case.outputs or (None,) * len(names)
    return [
        _one(name, value, spec, case, terms[index] if terms is not None else None)
        for index, (name, value, spec) in enumerate(zip(names, outputs, declared, strict=True))
    ] + [replace(_one(each.name, each.value, None, case, each.terms), rule=each.rule) for each in named]


def _one(name: str, value: Any, spec: TensorSpec | None, case: TestCase, terms: Any) -> Expected:
    if isinstance(terms, Rule):
        return replace(_one(name, value, spec, case, None), rule=terms)
    if isinstance(value, Unrounded):
        value, kind = value
        if spec is None:
            return new_expected(name=name, dtype=kind, shape=value.shape, value=value, terms=terms)
    if spec is None:
        entry = undeclared_output_dtype(dtype_of(value.dtype), case.dtypes)
        return new_expected(name=name, dtype=entry, shape=value.shape, value=value, terms=terms)
    if value.shape != spec.shape:
        raise Fault(
            Reason.REFERENCE_FAILED,
            f"the reference yields {name} with the shape {list(value.shape)}, "
            f"but {case.descriptor.name} declares {list(spec.shape)}",
        )
    return new_expected(name=name, dtype=spec.dtype, shape=spec.shape, value=value, terms=terms)
