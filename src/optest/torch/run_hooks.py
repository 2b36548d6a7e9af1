"""Torch's part in a run: gradients and another reference for all calls, the compiler's cache, notes at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir

from optest.guests import Values
from optest.spec import CaseResult, TestCase
from optest.torch.calls.descriptors import CATEGORY
from optest.torch.cases import compared_in_own_dtype, differentiated, other_strides, unused_fallbacks

__all__ = ["TorchRunHooks"]

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
