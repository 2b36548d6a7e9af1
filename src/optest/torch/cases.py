"""Torch's part in a run: gradients and another reference for all calls, the compiler's cache, notes at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

from optest.errors import UsageError, plural
from optest.guests import Values
from optest.spec import CaseResult, TestCase
from optest.torch.calls.descriptors import CATEGORY

_IN_OWN_DTYPE = "optest.torch.calls.reference:expected_in_own_dtype"


def differentiated(cases: Sequence[TestCase]) -> list[TestCase]:
    """The cases, those that are calls of torch with their gradients; a call that has to be refused has none.

    Raises:
        UsageError: if no case is such a call.
    """
    if not any(map(_has_gradients, cases)):
        raise UsageError(
            "--backward: no case is a call of torch, and of nothing else the gradient is known; "
            "run a file of model cases, or drop it"
        )
    return [
        replace(case, attributes={**case.attributes, "grad": True}) if _has_gradients(case) else case for case in cases
    ]


def _has_gradients(case: TestCase) -> bool:
    return case.descriptor.category == CATEGORY and case.expects_error is None


def compared_in_own_dtype(cases: Sequence[TestCase]) -> list[TestCase]:
    """The cases, calls of torch with a reference in their own dtype; one that states a reference keeps it."""
    return [
        replace(case, reference=_IN_OWN_DTYPE, origins={**case.origins, "reference": "--reference-dtype same"})
        if case.descriptor.category == CATEGORY and case.reference is None
        else case
        for case in cases
    ]


def unused_fallbacks(stated: Sequence[str], results: Sequence[CaseResult]) -> Iterator[str]:
    """A line for every name of ``--allow-fallback`` of which nothing fell back: it is fixed, or misspelled."""
    called = {result.operator for result in results}
    used = {result.operator for result in results if any(check.name == FELL_BACK for check in result.verdict.checks)}
    for name in dict.fromkeys(names_in(stated)):
        if name not in used:
            why = "no call of it fell back" if name in called else "no case calls it"
            yield f"--allow-fallback {name} is not needed: {why}"


def other_strides(results: Sequence[CaseResult]) -> Iterator[str]:
    """A line if some results have other strides than torch on the CPU gives them."""
    found = [each.id for each in results if any(check.name == STRIDES for check in each.verdict.checks)]
    if found:
        more = ", …" if len(found) > _NAMED else ""
        yield (
            f"results with other strides than torch on the CPU gives them: {plural(len(found), 'case')} "
            f"({', '.join(found[:_NAMED])}{more}); --same-strides fails such cases"
        )


_NAMED = 3


# What is let pass and told: calls that ``--allow-fallback`` names, and results with other strides than torch's.

FELL_BACK = "fall-back"
"""The name of the check that tells of one that is allowed."""

STRIDES = "strides"
"""The name of the check that tells of results with other strides than torch on the CPU gives them."""


def names_in(stated: Sequence[str]) -> tuple[str, ...]:
    """The names in texts that may hold several, separated by commas."""
    return tuple(name.strip() for text in stated for name in text.split(",") if name.strip())


_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_REFERENCE = (
    "torch on the CPU, in float64; where it cannot, in the case's own dtype, and the record of the case says so"
)


class TorchRunHooks:
    """As :class:`optest.guests.RunHooks` says."""

    def changed_cases(self, cases: Sequence[TestCase], settings: Values) -> list[TestCase]:
        """``--backward`` and ``--reference-dtype same``.

        Raises:
            UsageError: if no case is a call of torch that has gradients.
        """
        changed = differentiated(cases) if settings["backward"] else list(cases)
        return compared_in_own_dtype(changed) if settings["reference_dtype"] == "same" else changed

    def describe_reference(self, case: TestCase) -> str:
        return _REFERENCE if case.descriptor.category == CATEGORY and case.reference is None else ""

    def environment(self, settings: Values, folder: Path, stated: Mapping[str, str]) -> dict[str, str]:
        """Where a compiler keeps what it made: with the run, so that no run gets another one's kernels.

        The folder that torch states for itself as soon as it is loaded is nobody's wish.
        """
        cache = Path(stated.get(_CACHE, ""))
        is_default = cache.name.startswith("torchinductor_") and cache.parent == Path(gettempdir())
        variables = {name: value for name, value in stated.items() if name != _CACHE or not is_default}
        if settings["compile_backend"]:
            variables.setdefault(_CACHE, str((folder / "compiled").absolute()))
        return variables

    def closing_notes(self, settings: Values, results: Sequence[CaseResult]) -> Iterator[str]:
        """Fallbacks that were allowed and are not needed, and results with other strides than torch's own."""
        yield from unused_fallbacks(settings["allow_fallback"], results)
        yield from other_strides(results)
