"""Inputs of a case, and its expected outputs with their terms: from a golden file, the generator or the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.arguments import in_signature_order
from optest.compare import Expected
from optest.core.border import Border
from optest.generators.resolve import numpy_generator, resolve_generator
from optest.numerics import Array, ErrorStateKept, dtype_of, numpy_dtype, private_copy
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

_WITH_TERMS = (RuleClass.ULP, RuleClass.ACCUMULATE, RuleClass.COMPOSED)
_REFERENCE_FAILED = Reason.REFERENCE_FAILED
new_expected = constructor(Expected)

BY_BACKEND = Check(name="expected values", state=CheckState.NOTE, detail="from the backend, not the reference")
BY_ITSELF = Check(name="expected values", state=CheckState.NOTE, detail="from the operator itself, which is under test")
_BY_GENERATOR = Check(name="expected values", state=CheckState.NOTE, detail="from the generator, not the reference")


def expected_outputs(
    cases: Sequence[TestCase],
    inputs: Sequence[Array],
    known: Sequence[Any] | None,
    driver: BackendDriver,
    interrupted: Callable[[], bool] | None = None,
) -> tuple[list[Expected], tuple[Check, ...]]:
    """Return the expected outputs in order, no outputs if the case has no reference, and notes on their source.

    A golden file of the backend precedes what the generator ``known``, and that the reference. The cases share one
    execution, but each may have another tolerance rule.

    Raises:
        Fault: REFERENCE_FAILED if the reference raises or contradicts the outputs that the case declares.
    """
    case = cases[0]
    padded = in_signature_order(case, inputs)
    with ErrorStateKept(), Border("the reference", _REFERENCE_FAILED, interrupted) as border:
        values, notes = _outputs_by_priority(case, padded, known, driver)
        if values is None:
            return [], ()
        is_by_reference = not notes
        arrays: list[Any] = []
        for value in values:
            if not isinstance(value, ReferenceNote):
                arrays.append(_immutable(value))
            elif value.itself_on and driver.device() in (None, value.itself_on):
                notes += (BY_ITSELF,)
            else:
                notes += (Check(name="expected values", state=CheckState.NOTE, detail=value.text),)
        border.who = "the operator's `terms`"
        terms = _terms_of(cases, padded)
    expected = _bind_outputs(case, arrays, terms)
    # Alternatives are as right as the built-in reference; a user's reference or values may mean something else.
    if case.descriptor.alternatives is not None and _is_definition(case) and is_by_reference:
        expected = _with_alternatives(case, padded, expected, case.descriptor.alternatives)
    return expected, notes


def _immutable(value: Any) -> Any:
    """Return a copy of an array, or of a named tuple with its arrays, in bytes that NumPy never makes writeable.

    Arrays of Python's integers, which cannot be overwritten, are copied; other values are returned as they are.
    """
    # The code under test reaches all objects by ``gc``, and could write its own results into the expected values.
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return np.array(value)
        return np.ndarray(value.shape, value.dtype, np.asarray(value).tobytes())
    if isinstance(value, tuple):
        copies = [_immutable(each) if isinstance(each, (np.ndarray, tuple)) else each for each in value]
        return value._make(copies) if hasattr(value, "_make") else copies
    return value


def expected_of_other_inputs(
    case: TestCase,
    inputs: Sequence[Array],
    driver: BackendDriver,
    interrupted: Callable[[], bool] | None = None,
) -> list[Expected] | str:
    """Return the expected outputs for inputs other than the case's, or the reason why they are unknown."""
    if case.generator is not None:
        return "the case's generator knows the outputs for its own inputs only"
    try:
        expected, notes = expected_outputs([case], inputs, None, driver, interrupted)
    except Fault as fault:
        return fault.message.partition("\n")[0]
    return "the backend has expected outputs for the inputs of the case only" if BY_BACKEND in notes else expected


def expected_of_outputs(case: TestCase, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[Expected]:
    """Return the outputs of a first call as the expected outputs of further calls.

    Floats of an operator without a rule get the rule CLOSE.

    Raises:
        Fault: MISSING_OUTPUT or EXTRA_OUTPUT if the operator cannot have so many outputs.
    """
    count, signature = len(outputs), case.descriptor.tensors
    if signature.output_names(count) is None or len(case.outputs or outputs) != count:
        required = len(case.outputs or signature.outputs)
        reason = Reason.MISSING_OUTPUT if count < required else Reason.EXTRA_OUTPUT
        raise Fault(reason, f"the number of outputs is {count}, expected {required}")
    with ErrorStateKept(), Border("the operator's `terms`", _REFERENCE_FAILED):
        terms = _terms_of([case], in_signature_order(case, inputs))
    expected = _bind_outputs(replace(case, outputs=()), outputs, terms)
    specs = case.outputs or [TensorSpec(dtype=dtype_of(each.dtype), shape=each.shape) for each in outputs]
    rule = None if case.descriptor.rule else _CLOSE
    return [
        replace(each, dtype=spec.dtype, shape=spec.shape, rule=each.rule or (rule if spec.dtype.is_inexact else None))
        for each, spec in zip(expected, specs, strict=True)
    ]


_CLOSE = Rule(kind=RuleClass.CLOSE, source="torch.testing.assert_close")


def require_refused(case: TestCase, inputs: Sequence[Array], interrupted: Callable[[], bool] | None = None) -> None:
    """Run the operator's refusal hook, if it has one, which raises unless the reference refuses the case as expected.

    Raises:
        Fault: NOT_REFUSED or WRONG_ERROR if the reference does not refuse it; REFERENCE_FAILED if it could not be run.
    """
    hook = case.descriptor.reference_rejects
    if hook is None:
        return
    with ErrorStateKept(), Border("the reference", _REFERENCE_FAILED, interrupted):
        function = _load_hook_path(hook)[0] if isinstance(hook, str) else hook
        function([_read_only_copy(each) for each in inputs], dict(case.attributes), case.expects_error)


def reason_to_refuse(case: TestCase, inputs: Sequence[Array]) -> str:
    """Return why an exception is as right as a result for these inputs, "" if it is not.

    Raises:
        Fault: REFERENCE_FAILED if the operator's hook fails.
    """
    hook = case.descriptor.may_refuse
    if hook is None or not _is_definition(case):
        return ""
    with ErrorStateKept(), Border("the operator's `may_refuse`", _REFERENCE_FAILED):
        return str(_call_hook(hook, case, in_signature_order(case, inputs)))


def _is_definition(case: TestCase) -> bool:
    """Return whether the expected outputs follow the operator's built-in definition, not a user's reference."""
    return case.reference is None or is_built_in(case.reference)


def _with_alternatives(
    case: TestCase, inputs: Sequence[Array | None], expected: list[Expected], hook: str | Callable[..., Any]
) -> list[Expected]:
    """Return the expected outputs with masks of elements as right as the reference's, from the operator's hook."""
    structure = [(each.shape, numpy_dtype(each.dtype)) for each in expected]
    latest: tuple[Sequence[Any], Sequence[Any]] | None = None

    def masks(actual: Sequence[Any]) -> Sequence[Any]:
        nonlocal latest
        # A comparison requests one mask after the other for the same outputs.
        if latest is None or latest[0] is not actual:
            latest = actual, compute_masks(actual)
        return latest[1]

    def compute_masks(actual: Sequence[Any]) -> Sequence[Any]:
        """Return the masks from the hook, None for each output if the outputs have a wrong structure."""
        if [(getattr(each, "shape", None), getattr(each, "dtype", None)) for each in actual] != structure:
            return (None,) * len(expected)
        with ErrorStateKept(), Border("the operator's `alternatives`", _REFERENCE_FAILED):
            function = _load_hook_path(hook)[0] if isinstance(hook, str) else hook
            alternatives = _as_sequence(function(inputs, dict(case.attributes), actual))
            if len(alternatives) != len(expected):
                raise ValueError(f"`alternatives` returned {len(alternatives)} masks, expected {len(expected)}")
        return alternatives

    def mask_of(index: int) -> Callable[[Sequence[Any]], Any]:
        return lambda actual: masks(actual)[index]

    return [replace(each, alternatives=mask_of(index)) for index, each in enumerate(expected)]


def _outputs_by_priority(
    case: TestCase, inputs: Sequence[Array | None], known: Sequence[Any] | None, driver: BackendDriver
) -> tuple[list[Any] | None, tuple[Check, ...]]:
    """Return the outputs of the first source that has them (golden file, generator, reference), and a note on it."""
    values = driver.golden(case)
    if values is not None:
        return _as_arrays(values), (BY_BACKEND,)
    if known is not None:
        return _as_arrays(known), (_BY_GENERATOR,)
    reference = case.reference or case.descriptor.reference
    if reference is None:
        return None, ()
    values = _call_hook(reference, case, inputs)
    if values is None:
        raise Fault(Reason.REFERENCE_FAILED, "the reference returned None, expected the outputs")
    return _as_arrays(values), ()


def _call_hook(hook: str | Callable[..., Any], case: TestCase, inputs: Sequence[Array | None]) -> Any:
    """Return the result of a reference or another hook; a user's hook gets read-only copies of the inputs."""
    # A framework's tensor over our memory could write to it.
    function, is_own = _load_hook_path(hook) if isinstance(hook, str) else (hook, False)
    if not is_own:
        inputs = [None if each is None else _read_only_copy(each) for each in inputs]
    return function(inputs, dict(case.attributes))


def _read_only_copy(array: Array) -> Array:
    copy = private_copy(array)
    copy.setflags(write=False)
    return copy


def _as_arrays(values: Any) -> list[Any]:
    """Return the outputs of a reference as arrays, with annotated ones unchanged; raise for an unknown dtype."""
    arrays: list[Any] = []
    for value in _as_sequence(values):
        arrays.append(value if isinstance(value, _ANNOTATED) else np.asarray(value))
        if not isinstance(value, _ANNOTATED):
            dtype_of(arrays[-1].dtype)  # which refuses what no operator yields
    return arrays


_ANNOTATED = (Unrounded, NamedOutput, ReferenceNote)


def _terms_of(cases: Sequence[TestCase], inputs: Sequence[Array | None]) -> Sequence[Any] | None:
    """Return the immutable error terms of the outputs, None if no case needs them; raise ValueError for negative ones.

    The caller converts the exceptions of the operator's hook.
    """
    descriptor = cases[0].descriptor
    if descriptor.terms is None or descriptor.rule is None or descriptor.rule.kind not in _WITH_TERMS:
        return None
    if not any(map(_may_need_terms, cases)):
        return None
    copies = []
    for terms in _as_sequence(_call_hook(descriptor.terms, cases[0], inputs)):
        if isinstance(terms, Terms) and np.min(terms.count, initial=0) < 0:
            raise ValueError(f"a count of terms is {np.min(terms.count)}, expected 0 or more")
        if isinstance(terms, ErrorBudget) and np.any(np.less(terms.worst, 0)):
            raise ValueError(f"an error budget is {np.nanmin(terms.worst)}, expected 0 or more")
        copies.append(_immutable(terms))
    return copies


def _may_need_terms(case: TestCase) -> bool:
    """Return whether a class rule may apply, or the sum may be integer-exact, which takes terms to decide."""
    if not case.tolerances:
        return True
    tolerances = [layer for layer in case.tolerances if layer.tolerance.bounds_errors]
    if not tolerances or (case.descriptor.rule is not None and case.descriptor.rule.fixed):
        return True
    exact = any(argument.fill.kind == "integer-exact" for argument in case.inputs)
    return exact or all(layer.output is not None for layer in tolerances)


@lru_cache(maxsize=256)
def _load_hook_path(path: str) -> tuple[Callable[..., Any], bool]:
    """Load the function at an import path; raise BAD_CASE if it is none; return whether it is built in, too."""
    hook = load_object(path)
    if not callable(hook):
        raise Fault(Reason.BAD_CASE, f"{path} is {type(hook).__name__}, expected a function")
    return hook, is_built_in(path)


def is_built_in(hook: object) -> bool:
    """Return whether a reference, or another hook, is built in: those are import paths below ``optest.``."""
    return isinstance(hook, str) and hook.startswith("optest.")


def _as_sequence(returned: Any) -> Sequence[Any]:
    """Return several values as they are, a single one (a NamedTuple of terms, too) as a sequence of one."""
    if isinstance(returned, (tuple, list)) and not hasattr(returned, "_fields"):
        return returned
    return (returned,)


def _bind_outputs(case: TestCase, values: Sequence[Any], terms: Sequence[Any] | None) -> list[Expected]:
    """Return the expected outputs for a reference's values: first those of the signature, then those it names itself.

    Raises:
        Fault: REFERENCE_FAILED for another number of outputs or terms, or another shape than declared.
    """
    named: list[NamedOutput] = []
    outputs: list[Any] = []
    for value in values:
        (named if isinstance(value, NamedOutput) else outputs).append(value)
    names = case.descriptor.tensors.output_names(len(case.outputs) or len(outputs))
    if names is None or len(outputs) != len(names):
        count = len(case.outputs) or len(case.descriptor.tensors.outputs)
        raise Fault(
            Reason.REFERENCE_FAILED,
            f"the reference returned {len(outputs)} outputs, expected {count} for {case.descriptor.name}",
        )
    if terms is not None and len(terms) == 1 and isinstance(terms[0], Rule):
        terms = [terms[0]] * len(names)  # a rule in place of terms replaces the operator's for this call
    if terms is not None and len(terms) != len(names):
        raise Fault(Reason.REFERENCE_FAILED, f"`terms` returned {len(terms)} entries, expected {len(names)}")
    declared: Sequence[TensorSpec | None] = case.outputs or (None,) * len(names)
    expected = [
        _expected_output(name, value, spec, case, terms[index] if terms is not None else None)
        for index, (name, value, spec) in enumerate(zip(names, outputs, declared, strict=True))
    ]
    for output in named:
        bound = _expected_output(output.name, output.value, None, case, output.terms)
        expected.append(replace(bound, rule=output.rule))
    return expected


def _expected_output(name: str, value: Any, spec: TensorSpec | None, case: TestCase, terms: Any) -> Expected:
    """Return one expected output; its dtype and shape are those declared in ``spec``, else those of the value."""
    if isinstance(terms, Rule):
        return replace(_expected_output(name, value, spec, case, None), rule=terms)
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
            f"the reference returned {name} with the shape {list(value.shape)}, "
            f"expected {list(spec.shape)} as {case.descriptor.name} declares",
        )
    return new_expected(name=name, dtype=spec.dtype, shape=spec.shape, value=value, terms=terms)


# Inputs


def make_inputs(
    case: TestCase, interrupted: Callable[[], bool] | None = None
) -> tuple[Sequence[np.ndarray[Any, Any]], Sequence[Any] | None]:
    """Return the inputs, read-only, and the expected outputs if the generator knows them, else None.

    Raises:
        Fault: BAD_CASE if the generator raises, or if a user-defined generator returns tensors of another number,
            dtype or shape than the case has.
    """
    with Border("the generator", Reason.BAD_CASE, interrupted):
        # Only a user-defined generator gets a NumPy Generator; the built-in fills draw from optest's own bits.
        random = None if case.generator is None else numpy_generator(case)
        inputs, outputs = resolve_generator(case.generator).generate(case, random)
        if case.generator is not None:
            _require_declared(case, inputs)
    for array in inputs:
        array.setflags(write=False)
    return inputs, outputs


def _require_declared(case: TestCase, inputs: object) -> None:
    """Raise Fault unless ``inputs`` is a list or tuple of arrays with the dtypes and shapes of the case."""
    if not isinstance(inputs, (tuple, list)) or len(inputs) != len(case.inputs):
        actual = f"{len(inputs)} inputs" if isinstance(inputs, (tuple, list)) else type(inputs).__name__
        raise Fault(Reason.BAD_CASE, f"the generator returned {actual}, expected {len(case.inputs)} arrays")
    for argument, array in zip(case.inputs, inputs, strict=True):
        expected = f"{numpy_dtype(argument.spec.dtype)}{list(argument.spec.shape)}"
        actual = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        if actual != expected:
            raise Fault(Reason.BAD_CASE, f"the generator returned {argument.name} as {actual}, expected {expected}")
