"""Run hooks of torch: gradients, the reference's dtype, the compiler's cache folder, and notes at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

from optest.errors import UsageError, plural
from optest.guests import Values
from optest.spec import CaseResult, TestCase
from optest.torch.calls.descriptors import CATEGORY

_REFERENCE_IN_CASE_DTYPE = "optest.torch.calls.reference:expected_in_own_dtype"


def with_gradients(cases: Sequence[TestCase]) -> list[TestCase]:
    """Return the cases, torch calls with gradients requested, unless they expect an error; UsageError without any."""
    if not any(map(_has_gradients, cases)):
        raise UsageError(
            "--backward needs calls of torch functions, but no case is one; run a file of model cases, or drop it"
        )
    return [
        replace(case, attributes={**case.attributes, "grad": True}) if _has_gradients(case) else case for case in cases
    ]


def _has_gradients(case: TestCase) -> bool:
    return case.descriptor.category == CATEGORY and case.expects_error is None


def with_reference_in_case_dtype(cases: Sequence[TestCase]) -> list[TestCase]:
    """Return the cases with the reference of torch calls computed in the case's dtype, unless the case sets one."""
    return [
        replace(
            case, reference=_REFERENCE_IN_CASE_DTYPE, origins={**case.origins, "reference": "--reference-dtype same"}
        )
        if case.descriptor.category == CATEGORY and case.reference is None
        else case
        for case in cases
    ]


def unused_fallbacks(allowed: Sequence[str], results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield a note for each name of ``--allow-fallback`` (``allowed``) that no result needed."""
    called = {result.operator for result in results}
    used = {result.operator for result in results if any(check.name == FELL_BACK for check in result.verdict.checks)}
    for name in dict.fromkeys(split_names(allowed)):
        if name not in used:
            reason = "no call of it fell back" if name in called else "no case calls it"
            yield f"--allow-fallback {name} is not needed: {reason}"


def other_strides(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield one note that names the cases whose outputs have other strides than on the CPU, if there are any."""
    ids = [result.id for result in results if any(check.name == STRIDES for check in result.verdict.checks)]
    if ids:
        more = ", …" if len(ids) > _MAX_NAMES else ""
        yield (
            f"outputs with other strides than those of torch on the CPU: {plural(len(ids), 'case')} "
            f"({', '.join(ids[:_MAX_NAMES])}{more}); --same-strides fails such cases"
        )


_MAX_NAMES = 3

# Names of checks that record what a case is allowed to do: fall back, return other strides than torch on the CPU.
FELL_BACK = "fall-back"
STRIDES = "strides"


def split_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Split texts at commas and return all names, stripped, without empty ones."""
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_REFERENCE = (
    "torch on the CPU in float64, or in the case's dtype if it has no float64 kernel; the case's record notes which"
)


class TorchRunHooks:
    """Implementation of :class:`optest.guests.RunHooks` for torch."""

    def apply_options(self, cases: Sequence[TestCase], settings: Values) -> list[TestCase]:
        """Apply ``--backward`` and ``--reference-dtype same``; raise UsageError if no case has gradients."""
        changed = with_gradients(cases) if settings["backward"] else list(cases)
        return with_reference_in_case_dtype(changed) if settings["reference_dtype"] == "same" else changed

    def describe_reference(self, case: TestCase) -> str:
        return _REFERENCE if case.descriptor.category == CATEGORY and case.reference is None else ""

    def environment(self, settings: Values, folder: Path, stated: Mapping[str, str]) -> dict[str, str]:
        """Return the variables ``stated`` with the compiler's cache in the run's folder if a compiler is selected.

        Then no run loads kernels that another run compiled. A cache folder that the user set stays.
        """
        cache = Path(stated.get(_CACHE, ""))
        # torch sets its default folder in the environment as soon as it is imported: the user did not choose it.
        is_default = cache.name.startswith("torchinductor_") and cache.parent == Path(gettempdir())
        variables = {name: value for name, value in stated.items() if name != _CACHE or not is_default}
        if settings["compile_backend"]:
            variables.setdefault(_CACHE, str((folder / "compiled").absolute()))
        return variables

    def closing_notes(self, settings: Values, results: Sequence[CaseResult]) -> Iterator[str]:
        """Yield the notes of :func:`unused_fallbacks` and :func:`other_strides`."""
        yield from unused_fallbacks(settings["allow_fallback"], results)
        yield from other_strides(results)
