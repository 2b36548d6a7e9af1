"""The references as a backend: outputs of the case's reference, rounded once to the declared output dtypes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from optest.backends import BackendDriver, PreparedCall, Script, ScriptInput
from optest.backends.arguments import in_signature_order, require_defined
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
    """Runs the case's reference: a pass shows that plan, generator and rules work, and nothing about a kernel."""

    name = "numpy"
    kind = "cpu"
    isolated = False
    is_reference = True
    numerics = Numerics(accumulator="float64")

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the reference's outputs, rounded to their dtypes; raise UnfitArguments if it is undefined."""
        require_defined(case)
        outputs = _run_reference(case, inputs)
        if len(case.outputs) == len(outputs):
            return [
                round_to(_unrounded_values(output), spec.dtype)
                for output, spec in zip(outputs, case.outputs, strict=True)
            ]
        return [
            round_to(*output)
            if isinstance(output, Unrounded)
            else round_to(output, undeclared_output_dtype(dtype_of(output.dtype), case.dtypes))
            for output in outputs
        ]

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """Yield the reference as a timed call, which computes in float64 for every dtype and does not round."""
        yield PreparedCall(
            call=lambda: reference_outputs(case, inputs),
            outputs=lambda: self.run(case, inputs),
            description="the reference in NumPy, in float64",
        )

    def script(self, case: TestCase, inputs: Sequence[ScriptInput], *, may_run: bool) -> Script | str:  # noqa: ARG002
        """Return a script that calls the user's reference by its import path; a built-in one needs optest."""
        path = _reference_of_case(case)
        if not isinstance(path, str) or path.startswith("optest."):
            return f"backend {self.name} runs references of optest, which need optest"
        if not all(numpy_dtype(spec.dtype).isbuiltin == 1 for spec in case.outputs):
            return "only optest rounds to an output dtype that NumPy lacks"
        if not _is_literal(dict(case.attributes)):
            return "an attribute of the case is no literal of Python"
        return reference_script(path, case, inputs)

    def unsupported(self, case: TestCase) -> str | None:
        if _reference_of_case(case) is None:
            return f"operator {case.descriptor.name} has no reference, which backend {self.name} needs"
        return None

    def device(self) -> str | None:
        return "cpu"

    def versions(self) -> Mapping[str, str]:
        return {"numpy": np.__version__}

    def doctor(self) -> Sequence[str]:
        return (f"numpy {np.__version__}",)


class StubBackend(NumpyBackend):
    """The references under a name that must be requested, for tests of the way from plan to report on any chip name;
    never selected by kind or as a default."""

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
    """Return a script that imports a reference, calls it and rounds its outputs."""
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    arguments = in_signature_order(case, [entry.name for entry in inputs])
    exotic = not all(entry.is_numpys for entry in inputs)
    rounded = (f'np.asarray(outputs[{index}]).astype("{spec.dtype.name}")' for index, spec in enumerate(case.outputs))
    return Script(
        imports=(*(("import ml_dtypes",) if exotic else ()), f"import {module}"),
        lines=[
            *(f"{entry.name} = {entry.array_source}" for entry in inputs),
            f"outputs = {module}.{name}([{', '.join(map(str, arguments))}], {dict(case.attributes)!r})",
            "outputs = [outputs] if isinstance(outputs, np.ndarray) else list(outputs)",
        ],
        outputs=tuple(rounded) or ("np.asarray(outputs[0])",),
        needs=(*(("ml_dtypes",) if exotic else ()), module),
    )


def reference_outputs(case: TestCase, inputs: Sequence[Any]) -> list[Any]:
    """Return the unrounded outputs of the case's reference for ``inputs``; raise Fault UNSUPPORTED without one."""
    return [_unrounded_values(output) for output in _run_reference(case, inputs)]


def _run_reference(case: TestCase, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of the case's reference, without notes; ``Unrounded`` ones keep their declared dtype."""
    reference = _reference_of_case(case)
    if reference is None:
        raise Fault(Reason.UNSUPPORTED, f"operator {case.descriptor.name} has no reference")
    loaded: Reference = load_object(reference)
    outputs: Any = loaded(in_signature_order(case, inputs), dict(case.attributes))
    if isinstance(outputs, np.ndarray) or np.isscalar(outputs):
        return [np.asarray(outputs)]  # a bare array is one output, not one for each row
    if isinstance(outputs, Mapping):
        outputs = outputs.values()
    values = [output.value if isinstance(output, NamedOutput) else output for output in outputs]
    return [x if isinstance(x, Unrounded) else np.asarray(x) for x in values if not isinstance(x, ReferenceNote)]


def _unrounded_values(output: Any) -> Any:
    return output.values if isinstance(output, Unrounded) else output


def reference_label(case: TestCase) -> str:
    """Return the import path of the case's reference without spaces; ``none`` if it has no reference."""
    reference = _reference_of_case(case)
    if reference is None or isinstance(reference, str):
        return reference or "none"
    return f"{getattr(reference, '__module__', '?')}:{getattr(reference, '__qualname__', '?')}".replace(" ", "")


def _reference_of_case(case: TestCase) -> str | Reference | None:
    """Return the case's reference if a user wrote it, else the operator's, else the case's."""
    # A built-in reference in a case defines expected outputs of the operator's; it is not an implementation.
    operators, cases = case.descriptor.reference, case.reference
    return (operators or cases) if cases is None or cases.startswith("optest.") else cases
