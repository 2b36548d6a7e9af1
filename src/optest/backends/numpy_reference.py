"""The references as a backend: what a case's reference yields, rounded once to the declared output dtypes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from optest.backends import BackendDriver, PreparedCall, Script, ScriptInput
from optest.backends.arguments import at_their_places, refuse_unfit
from optest.numerics import dtype_of, numpy_dtype, round_to
from optest.registry import load_object
from optest.spec import (
    Fault,
    NamedOutput,
    Numerics,
    Reason,
    ReferenceNote,
    TestCase,
    Unrounded,
    undeclared_output_dtype,
)

Reference = Callable[[Sequence[Any], Mapping[str, Any]], Any]


class NumpyBackend(BackendDriver):
    """Answers with the case's own reference: shows that plan, generator and rules work, never that a kernel does."""

    name = "numpy"
    kind = "cpu"
    isolated = False
    is_reference = True
    numerics = Numerics(accumulator="float64")

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return one array for each output, rounded to the dtype that is declared or follows from the inputs.

        Raises:
            UnfitArguments: for inputs that the operator is not defined for.
        """
        refuse_unfit(case)
        outputs = _answered(case, inputs)
        if len(case.outputs) == len(outputs):
            return [round_to(_values(each), spec.dtype) for each, spec in zip(outputs, case.outputs, strict=True)]
        return [
            round_to(*output)
            if isinstance(output, Unrounded)
            else round_to(output, undeclared_output_dtype(dtype_of(output.dtype), case.dtypes))
            for output in outputs
        ]

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """The reference itself, which computes in float64 whatever the dtype; rounding is not part of the call."""
        yield PreparedCall(
            call=lambda: reference_outputs(case, inputs),
            outputs=lambda: self.run(case, inputs),
            what="the reference in NumPy, in float64",
        )

    def script(self, case: TestCase, inputs: Sequence[ScriptInput], *, may_run: bool) -> Script | str:  # noqa: ARG002
        """The user's own reference, called by its import path; optest's own cannot be had without optest."""
        path = _reference_of_case(case)
        if not isinstance(path, str) or path.startswith("optest."):
            return f"backend {self.name} answers with references of optest itself"
        if not all(numpy_dtype(spec.dtype).isbuiltin == 1 for spec in case.outputs):
            return "only optest rounds to an output dtype that NumPy lacks"
        if not _is_literal(dict(case.attributes)):
            return "an attribute of the case is no literal of Python"
        return reference_script(path, case, inputs)

    def unsupported(self, case: TestCase) -> str | None:
        if _reference_of_case(case) is None:
            return f"operator {case.descriptor.name} has no reference, which is what backend {self.name} answers with"
        return None

    def device(self) -> str | None:
        return "cpu"

    def versions(self) -> Mapping[str, str]:
        return {"numpy": np.__version__}

    def doctor(self) -> Sequence[str]:
        return (f"numpy {np.__version__}",)


class StubBackend(NumpyBackend):
    """The references under a name that has to be asked for: optest tests the way from plan to report with it, on any
    chip name. It is found by its name alone, never by kind or as a fallback."""

    name = "stub"
    kind = "stub"
    chips = ("*",)


def _is_literal(value: Any) -> bool:
    try:
        ast.literal_eval(repr(value))
    except (ValueError, SyntaxError):
        return False
    return True


def reference_script(path: str, case: TestCase, inputs: Sequence[ScriptInput]) -> Script:
    """Lines that import a reference, call it and round what it yields."""
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    places = at_their_places(case, [each.name for each in inputs])
    exotic = not all(each.is_numpys for each in inputs)
    rounded = (f'np.asarray(outputs[{place}]).astype("{spec.dtype.name}")' for place, spec in enumerate(case.outputs))
    return Script(
        imports=(*(("import ml_dtypes",) if exotic else ()), f"import {module}"),
        lines=[
            *(f"{each.name} = {each.array_source}" for each in inputs),
            f"outputs = {module}.{name}([{', '.join(str(each) for each in places)}], {dict(case.attributes)!r})",
            "outputs = [outputs] if isinstance(outputs, np.ndarray) else list(outputs)",
        ],
        outputs=tuple(rounded) or ("np.asarray(outputs[0])",),
        needs=(*(("ml_dtypes",) if exotic else ()), module),
    )


def reference_outputs(case: TestCase, inputs: Sequence[Any]) -> list[Any]:
    """What the case's reference yields for ``inputs``, unrounded."""
    return [_values(each) for each in _answered(case, inputs)]


def _answered(case: TestCase, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of the case's reference, those that state their dtype with it."""
    reference = _reference_of_case(case)
    if reference is None:
        raise Fault(Reason.UNSUPPORTED, f"operator {case.descriptor.name} has no reference")
    loaded: Reference = load_object(reference)
    outputs: Any = loaded(at_their_places(case, inputs), dict(case.attributes))
    if isinstance(outputs, np.ndarray) or np.isscalar(outputs):
        return [np.asarray(outputs)]  # a bare array is one output, not one for each row
    if isinstance(outputs, Mapping):
        outputs = outputs.values()
    values = [each.value if isinstance(each, NamedOutput) else each for each in outputs]
    return [
        each if isinstance(each, Unrounded) else np.asarray(each)
        for each in values
        if not isinstance(each, ReferenceNote)
    ]


def _values(output: Any) -> Any:
    return output.values if isinstance(output, Unrounded) else output


def reference_label(case: TestCase) -> str:
    """The import path of the case's reference, as one word; ``none`` without one."""
    reference = _reference_of_case(case)
    if reference is None or isinstance(reference, str):
        return reference or "none"
    return f"{getattr(reference, '__module__', '?')}:{getattr(reference, '__qualname__', '?')}".replace(" ", "")


def _reference_of_case(case: TestCase) -> str | Reference | None:
    """The user's, else the operator's; one of optest's own in its place says what is expected, and answers nothing."""
    own, stated = case.descriptor.reference, case.reference
    return (own or stated) if stated is None or stated.startswith("optest.") else stated
